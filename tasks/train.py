r"""Trains one model with one algorithm: the binary of every experiment.

  python -m tasks.train --flagfile=tasks/flagfiles/demo/fed_avg.flags \
      --output_dir=runs/fed_avg
  python -m tasks.train --row=table3_mlp_mnist_noniid --scale=paper \
      --algorithm=fed_avg --data_dir=DIR

The second is an experiment of `tasks/experiments.py`; any other flag overrides
what the table says of it, and --print_settings shows the settings.

--task, --model, --aggregator and --local_step take your own too; see
docs/your_own.md.

A run folder holds config.json, metrics.csv, TensorBoard logs, checkpoints, the
trained model, and for private runs privacy.json and ledger.jsonl, and for
audited ones audit/. The same command continues a run that was stopped, and does
nothing for one that is finished.

Exit codes: 0 finished, 2 wrong flags, 3 diverged, 4 budget exhausted, 5 a file
cannot be written or is damaged, 130 Ctrl-C, 143 SIGTERM, 129 SIGHUP; 1 is a
failure.
"""

import dataclasses
import json
import pathlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from absl import flags

from tasks import command_line, experiments
from tasks import config as config_lib

# How a run is watched, and where: not another experiment.
NOT_OF_THE_ROW = frozenset(
  (
    *config_lib.OF_THE_MACHINE,
    *('rounds_per_evaluation', 'rounds_per_checkpoint', 'update_rounds'),
    *('algorithm', 'seed'),
  )
)

# The names of the flags that describe a run.
RUN_FLAGS = (
  *(field.name for field in dataclasses.fields(config_lib.Config)),
  *('row', 'scale', 'variants'),
)
_EXIT_CODES = {'finished': 0, 'diverged': 3, 'budget exhausted': 4}


def main() -> int:
  """Runs the experiment that the flags describe; returns the exit code."""
  config, name = read_flags(flags.FLAGS)
  if flags.FLAGS['print_settings'].value:
    with command_line.importing():
      from tasks import algorithms

    algorithms.check(config)
    print(json.dumps(dataclasses.asdict(config), indent=2))
    return 0
  if config.output_dir is None:
    raise ValueError('`output_dir` must be given.')
  # As the bar of the rounds: nothing where nobody looks.
  if sys.stderr.isatty():
    print(f'{config.algorithm}: starting TensorFlow ...', file=sys.stderr)
  with command_line.importing():
    from tasks.running import run
    from tff_clipping import privacy, runtime
    from tff_clipping.programs.training.training_program import RoundError
  # In place of TFF's own, which complains as Python ends where a user's module
  # outlives it.
  runtime.set_default_context()

  try:
    result = run.run(config, name=name)
  except (RoundError, runtime.ClusterError) as e:
    command_line.print_error(e)
    return 1
  except privacy.DamagedLedgerError as e:
    command_line.print_error(e)
    return 5
  measured = run.describe_test(config)
  print(f'{config.algorithm}: {result.message}{measured} {config.output_dir}')
  if result.interrupted is not None:
    return result.interrupted.exit_code
  return _EXIT_CODES[result.reason.value]


def define_flags(values: flags.FlagValues = flags.FLAGS) -> None:
  """Defines the flags of a run."""
  config_lib.define_flags(values)
  row = (
    'A row of the table of experiments, which gives the settings that are not '
    'given as flags; python -m tasks.experiments lists them.'
  )
  scale = f'How large, with --row: {", ".join(experiments.SCALES)}.'
  common = dict(flag_values=values, module_name='run')
  flags.DEFINE_string('row', None, row, **common)
  flags.DEFINE_string('scale', None, scale, **common)
  flags.DEFINE_list('variants', [], 'What is changed, with --row.', **common)


def parse(arguments: Sequence[str]) -> flags.FlagValues:
  """Returns the flags of a run, of these arguments.

  Raises:
    absl.flags.Error: If there is no such flag, or it cannot be read.
  """
  values = flags.FlagValues()
  define_flags(values)
  command_line.parse(values, ['tasks.train', *arguments])
  return values


def read_flags(
  values: flags.FlagValues,
) -> tuple[config_lib.Config, Mapping[str, Any] | None]:
  """Returns the settings, and which run of the table they are, if one.

  Raises:
    TypeError: If a setting is of the wrong kind.
    ValueError: If one is missing or out of range, or there is no such row.
  """
  given = {n: values[n].value for n in RUN_FLAGS if values[n].present}
  row, scale, variants = (
    given.pop(name, None) for name in ('row', 'scale', 'variants')
  )
  if row is None:
    if scale or variants:
      raise ValueError('`scale` and `variants` must be given with `row` only.')
    return config_lib.Config(**given), None
  for name in ('scale', 'algorithm'):
    if not values[name].present:
      raise ValueError(f'`{name}` must be given with `row`.')
  run = experiments.NamedRun(
    row, scale, given['algorithm'], given.get('seed', 0), variants or ()
  )
  settings = run.settings
  # One of the two sets the noise.
  if 'noise_multiplier' in given:
    settings.pop('target_epsilon', None)
  if 'clipping_norm_from' in given:
    settings.pop('clipping_norm', None)
  settings |= given
  if 'update_rounds' not in given:
    rounds = settings.get('update_rounds', ())
    settings['update_rounds'] = [
      t for t in rounds if t < settings['num_rounds']
    ]
  settings.setdefault('output_dir', str(pathlib.Path('runs') / run.name))
  config = config_lib.Config(**settings)
  source = config.clipping_norm_from
  is_of_the_row = NOT_OF_THE_ROW.issuperset(given) and (
    source is None or _is_run(source, run.threshold_run)
  )
  return config, dataclasses.asdict(run) if is_of_the_row else None


def _is_run(folder: str, run: experiments.NamedRun | None) -> bool:
  """Returns whether a folder has this run of the table, or an equal one."""
  with command_line.importing():
    from tasks.running.folder import RunFolder

  name = (RunFolder(folder).read_description() or {}).get('run')
  if name is None or run is None:
    return False
  try:
    return experiments.NamedRun(**name).name == run.name
  except (TypeError, ValueError):
    return False  # Of a row that went.


if __name__ == '__main__':
  define_flags()
  flags.DEFINE_bool(
    'print_settings', False, 'Print every setting; do not train.'
  )
  command_line.run(main)
