r"""Trains one model with one algorithm: the binary of every experiment.

  python -m tasks.train --flagfile=tasks/flagfiles/demo/fed_avg.flags \
      --output_dir=runs/fed_avg

A run folder holds config.json, metrics.csv, TensorBoard logs, checkpoints, and
for private runs privacy.json and ledger.jsonl. The same command continues a run
that was stopped, and does nothing for one that is finished.

Exit codes: 0 finished, 2 wrong flags, 3 diverged, 4 budget exhausted, 5 a file
cannot be written or is damaged, 130 Ctrl-C, 143 SIGTERM; 1 is a failure.
"""

import json
import os
import sys
import traceback
from collections.abc import Sequence

from absl import app, flags, logging

from tasks import data_flags, experiment, run_folder

# Listed by --helpshort as this binary's own.
flags.adopt_module_key_flags(data_flags)

# TensorFlow's start-up messages are not about the user's run.
os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')

_EXIT_CODES = {'finished': 0, 'diverged': 3, 'budget exhausted': 4}

_OUTPUT_DIR = flags.DEFINE_string('output_dir', None, 'The folder of the run.')
_RESUME = flags.DEFINE_bool(
  'resume', True, 'Go on with a run of the same settings in --output_dir.'
)
_CHECKPOINTS_TO_KEEP = flags.DEFINE_integer(
  'checkpoints_to_keep', 2, 'How many checkpoints to keep.', lower_bound=1
)
_CLIPPING_NORM_FROM = flags.DEFINE_string(
  'clipping_norm_from',
  None,
  'A finished run of fed_avg: c is --clipping_factor times the mean norm of '
  'its updates.',
)
_CLIPPING_FACTOR = flags.DEFINE_float(
  'clipping_factor', 0.5, 'See --clipping_norm_from; the paper has 0.5.'
)

# The flags that are the fields of `Execution`.
_EXECUTION = (
  flags.DEFINE_string(
    'runtime', 'in_process', 'in_process, or ray for several; docs/cluster.md.'
  ),
  flags.DEFINE_string(
    'ray_address',
    None,
    "The 'host:port' of a running Ray cluster's head; else one is started on "
    'this machine.',
  ),
  flags.DEFINE_integer(
    'num_workers', None, "Ray's worker processes; else one for each CPU."
  ),
  flags.DEFINE_integer(
    'threads_per_worker', 1, 'Clients at a time in each worker.'
  ),
  flags.DEFINE_integer(
    'num_shards',
    None,
    'The parts in which clients are added up, which decides about the last '
    'bits; else 1, or the number of workers. A run keeps it.',
  ),
)

# The flags that are the fields of `ExperimentConfig`.
_SETTINGS = {
  'task': (flags.DEFINE_string, None, 'The data set; see docs/data.md.'),
  'partition': (
    flags.DEFINE_string,
    None,
    'The split over clients: iid, class_balanced, label_skew (the paper), '
    'dirichlet, shards or natural.',
  ),
  'num_clients': (flags.DEFINE_integer, None, 'N.'),
  'examples_per_client': (flags.DEFINE_integer, None, "A client's examples."),
  'dirichlet_alpha': (flags.DEFINE_float, 0.5, 'For --partition=dirichlet.'),
  'shards_per_client': (flags.DEFINE_integer, 2, 'For --partition=shards.'),
  'model': (
    flags.DEFINE_string,
    None,
    'mlp, alexnet, mobilenet_v2, resnet18 or shakespeare_lstm.',
  ),
  'algorithm': (
    flags.DEFINE_string,
    None,
    'fed_avg, ce_fed_avg (clips updates), dp_fed_avg (and adds noise) or '
    'model_clipping_fed_avg (clips models).',
  ),
  'clients_per_round': (
    flags.DEFINE_integer,
    None,
    'P, the size of a cohort; the expected size for --sampling=poisson.',
  ),
  'num_rounds': (flags.DEFINE_integer, None, 'T.'),
  'local_steps': (flags.DEFINE_integer, None, 'Q, the SGD steps of a client.'),
  'batch_size': (flags.DEFINE_integer, None, 'Examples in a local step.'),
  'client_learning_rate': (flags.DEFINE_float, None, 'eta_l.'),
  'server_learning_rate': (flags.DEFINE_float, 1.0, 'eta_g.'),
  'server_optimizer': (
    flags.DEFINE_string,
    'sgd',
    "sgd (the paper's step), momentum, adam, yogi or adagrad.",
  ),
  'clipping_norm': (flags.DEFINE_float, None, 'c.'),
  'sampling': (
    flags.DEFINE_string,
    'fixed_size',
    'poisson, fixed_size, shuffled_epochs or round_robin; for dp_fed_avg '
    'poisson, '
    "fixed_size or paper (the paper's accounting).",
  ),
  'min_separation': (flags.DEFINE_integer, 1, 'For --sampling=round_robin.'),
  'target_epsilon': (flags.DEFINE_float, None, 'Sets the noise.'),
  'target_delta': (flags.DEFINE_float, None, "The budget's delta."),
  'noise_multiplier': (
    flags.DEFINE_float,
    None,
    'Noise on the sum over c, in place of --target_epsilon.',
  ),
  'accountant': (flags.DEFINE_string, 'rdp', 'rdp or pld.'),
  'seed': (flags.DEFINE_integer, 0, 'For the split and local shuffling.'),
  'model_seed': (flags.DEFINE_integer, 0, 'For the initial model.'),
  'sampling_seed': (
    flags.DEFINE_integer,
    None,
    'For the cohorts; else 0, and for dp_fed_avg fresh entropy, which '
    'config.json keeps.',
  ),
  'noise_seed': (
    flags.DEFINE_integer,
    None,
    'Repeatable noise, for tests alone; else fresh entropy.',
  ),
  'rounds_per_evaluation': (flags.DEFINE_integer, 1, 'Evaluate how often.'),
  'test_examples': (
    flags.DEFINE_integer,
    None,
    'Evaluate on so many test examples, evenly spaced; all by default.',
  ),
  'rounds_per_checkpoint': (flags.DEFINE_integer, 10, 'Save how often.'),
  'update_rounds': (
    flags.DEFINE_list,
    [],
    'The rounds t, from 0, whose updates are written to updates/.',
  ),
  'estimate_repeats': (
    flags.DEFINE_integer,
    0,
    'Repeat the local work of --update_rounds so often, to estimate the norms '
    'of expected updates (alpha~ of Theorem 1); 0 not to.',
  ),
  'simulation_diagnostics': (
    flags.DEFINE_bool,
    False,
    "Measure the clients' exact updates in a private run too. Not private.",
  ),
}
_FLAGS = {
  name: define(name, default, text)
  for name, (define, default, text) in _SETTINGS.items()
}
_REQUIRED = (
  'task',
  'partition',
  'model',
  'algorithm',
  'clients_per_round',
  'num_rounds',
  'local_steps',
  'batch_size',
  'client_learning_rate',
)


def main(argv: Sequence[str]) -> int:
  """Runs the experiment that the flags describe; returns the exit code."""
  try:
    if len(argv) > 1:
      raise ValueError(f'Only flags are taken, found {argv[1]!r}.')
    config = config_from_flags()
    folder = run_folder.RunFolder(_OUTPUT_DIR.value)
    # TensorFlow takes seconds to import: wrong flags are found before that.
    from tasks import execution, runner

    result = runner.run(
      config,
      folder,
      resume=_RESUME.value,
      data_dir=data_flags.DATA_DIR.value,
      cache_dir=data_flags.CACHE_DIR.value,
      checkpoints_to_keep=_CHECKPOINTS_TO_KEEP.value,
      clipping_norm_source=_clipping_norm_source(),
      execution=execution.Execution(**{f.name: f.value for f in _EXECUTION}),
    )
  except (ValueError, TypeError, ModuleNotFoundError) as e:
    print_error(e)
    return 2
  except OSError as e:
    print_error(e)
    return 5
  except RuntimeError as e:
    if not _is_explained(e):
      traceback.print_exc()
    print_error(e)
    return 1
  except KeyboardInterrupt:
    print('Interrupted.', file=sys.stderr)
    return 130
  print(f'{config.algorithm}: {result.message} {folder.path}')
  if result.interrupted is not None:
    return result.interrupted.exit_code
  return _EXIT_CODES[result.reason.value]


def run() -> None:
  """Parses the flags, runs `main` and exits with its code.

  `absl.app.run` would break Keras here: TensorFlow 2.14, imported after it has
  started, runs an operation in the midst of its own import.
  """
  app.define_help_flags()
  try:
    argv = flags.FLAGS(sys.argv)
  except flags.Error as e:
    print_error(e)
    sys.exit(2)
  logging.use_absl_handler()
  if not flags.FLAGS['verbosity'].present:
    logging.set_verbosity(logging.WARNING)
  sys.exit(main(argv))


def config_from_flags() -> experiment.ExperimentConfig:
  """Returns the settings that the flags describe.

  Raises:
    TypeError: If a flag is of the wrong kind.
    ValueError: If a flag is missing, out of range or does not fit another.
  """
  for name in ('output_dir', *_REQUIRED):
    if flags.FLAGS[name].value is None:
      raise ValueError(f'`{name}` must be given.')
  settings = {name: flag.value for name, flag in _FLAGS.items()}
  settings['update_rounds'] = tuple(map(_integer, settings['update_rounds']))
  if _CLIPPING_NORM_FROM.value:
    if settings['clipping_norm'] is not None:
      raise ValueError(
        '`clipping_norm` and `clipping_norm_from` exclude each other, found '
        'both.'
      )
    if settings['algorithm'] == 'model_clipping_fed_avg':
      raise ValueError(
        '`clipping_norm_from` must not be given for model_clipping_fed_avg, '
        'whose threshold is on models and not on updates, found '
        f'{_CLIPPING_NORM_FROM.value!r}.'
      )
    settings['clipping_norm'] = _clipping_norm_from(
      _CLIPPING_NORM_FROM.value, _CLIPPING_FACTOR.value
    )
  return experiment.ExperimentConfig(**settings)


def _integer(text: str) -> int:
  try:
    return int(text)
  except ValueError:
    raise ValueError(
      f'`update_rounds` must be integers with commas, found {text!r}.'
    ) from None


def _clipping_norm_source() -> str:
  """Returns where c comes from.

  The paper takes it from the clients' data, and does not count its cost.
  """
  if not _CLIPPING_NORM_FROM.value:
    return 'given'
  return (
    f'{_CLIPPING_FACTOR.value:g} times the mean norm of the updates of a run '
    "of fed_avg: a figure of the clients' data, whose cost is not in any "
    'epsilon'
  )


def _clipping_norm_from(run_dir: str, factor: float) -> float:
  """Returns c as the paper sets it, from a run of FedAvg.

  Source: Sec. 2.2: half of the mean, over clients and rounds, of the norms of
  the updates of an unclipped run.
  """
  import numpy as np
  import pandas as pd

  folder = run_folder.RunFolder(run_dir)
  if not factor > 0:
    raise ValueError(f'`clipping_factor` must be positive, found {factor}.')
  try:
    config = json.loads(folder.config.read_text())
    metrics = pd.read_csv(folder.metrics)
    rounds = metrics[metrics['round_num'] > 0]
    algorithm = config['algorithm']
    num_rounds = config['experiment']['num_rounds']
    norms, sizes = rounds['update_norm_mean'], rounds['num_clients']
  except (OSError, ValueError, KeyError) as e:
    raise ValueError(
      f'`clipping_norm_from` must be the folder of a run, found {run_dir!r}: '
      f'{e}'
    ) from e
  if algorithm != 'fed_avg' or len(rounds) < num_rounds:
    raise ValueError(
      '`clipping_norm_from` must be a finished run of fed_avg, found '
      f'{len(rounds)} of {num_rounds} rounds of {algorithm} in {run_dir!r}.'
    )
  return float(factor * np.average(norms, weights=sizes))


def _is_explained(error: Exception) -> bool:
  """Returns whether the message says all: a cluster, and not a program."""
  from tff_clipping import runtime

  return any(
    isinstance(e, runtime.ClusterError) for e in (error, error.__cause__)
  )


def print_error(error: Exception) -> None:
  """Prints an error in one line, with arguments as the flags that they are."""
  text = ' '.join(str(error).split())
  for name in flags.FLAGS:
    text = text.replace(f'`{name}`', f'--{name}')
  print(f'Error: {text}', file=sys.stderr)


if __name__ == '__main__':
  run()
