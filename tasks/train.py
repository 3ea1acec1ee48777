r"""Trains one model with one algorithm: the binary of every experiment.

  python -m tasks.train --flagfile=tasks/flagfiles/demo/fed_avg.flags \
      --output_dir=runs/fed_avg
  python -m tasks.train --row=table3_mlp_mnist_noniid --scale=paper \
      --algorithm=fed_avg --data_dir=DIR

The second is an experiment of `tasks/experiments/experiment_table.py`; any
other flag overrides what the table says of it, and --print_settings shows what
that is.

--task, --model and --aggregator take your own too; see docs/your_own.md.

A run folder holds config.json, metrics.csv, TensorBoard logs, checkpoints, the
trained model, and for private runs privacy.json and ledger.jsonl, and for
audited ones audit/. The same command continues a run that was stopped, and does
nothing for one that is finished.

Exit codes: 0 finished, 2 wrong flags, 3 diverged, 4 budget exhausted, 5 a file
cannot be written or is damaged, 130 Ctrl-C, 143 SIGTERM, 129 SIGHUP; 1 is a
failure.
"""

import sys
import traceback
from collections.abc import Sequence

from tasks.settings.interrupts import importing

with importing():
  from absl import flags

  from tasks.running import early_checks, run_folder, run_request
  from tasks.running.user_parts import UserParts
  from tasks.settings import command_line

# Listed by --helpshort as this binary's own.
flags.adopt_module_key_flags(run_request)

_EXIT_CODES = {'finished': 0, 'diverged': 3, 'budget exhausted': 4}


def main(argv: Sequence[str]) -> int:
  """Runs the experiment that the flags describe; returns the exit code."""
  try:
    command_line.check_flags_only(argv)
    request = run_request.read()
    if run_request.PRINT_SETTINGS.value:
      print(request.describe(), end='')
      return 0
    config, execution = request.config(), request.execution
    folder = run_folder.RunFolder(request.folder)
    # TensorFlow takes seconds to import: wrong flags are found before that.
    folder.check(config, resume=execution.resume)
    task = early_checks.read_data(config, execution)
    if task is not None:
      early_checks.check_plan(config, task.num_clients, folder)
    # As the bar of the rounds: nothing where nobody looks.
    if sys.stderr.isatty():
      print(f'{config.algorithm}: starting TensorFlow ...', file=sys.stderr)
    with importing():
      from tasks.running import runner

    result = runner.run(
      config,
      folder,
      execution,
      clipping_norm_source=request.clipping_norm_source,
      run_name=request.run_name,
      user=UserParts(task=task),
    )
  except (ValueError, TypeError, ModuleNotFoundError) as e:
    command_line.print_error(e)
    return 2
  except OSError as e:
    command_line.print_error(e)
    return 5
  except RuntimeError as e:
    if not _is_explained(e):
      traceback.print_exc()
    command_line.print_error(e)
    return 1
  measured = _describe_test(config, folder)
  print(f'{config.algorithm}: {result.message}{measured} {folder.path}')
  if result.interrupted is not None:
    return result.interrupted.exit_code
  return _EXIT_CODES[result.reason.value]


def _describe_test(config, folder: run_folder.RunFolder) -> str:
  """Returns a sentence on the metric that decides, if it was measured."""
  objective = config.objective
  try:
    values = folder.read_metrics()[objective.column].dropna()
  except (OSError, ValueError, KeyError):
    return ''
  if values.empty:
    return ''
  value = objective.describe(values.iloc[-1])
  return f' Test {objective.metric}: {value}.'


def _is_explained(error: Exception) -> bool:
  """Returns whether the message says all: a cluster or a check failed."""
  from tff_clipping import runtime

  return any(
    isinstance(e, runtime.ClusterError) for e in (error, error.__cause__)
  ) or str(error) == str(error.__cause__)


if __name__ == '__main__':
  command_line.run(main)
