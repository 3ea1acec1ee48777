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
import sys
import traceback
from collections.abc import Sequence

from absl import flags

from tasks import command_line, run_flags

_PRINT_SETTINGS = flags.DEFINE_bool(
  'print_settings', False, 'Print every setting; do not train.'
)
_EXIT_CODES = {'finished': 0, 'diverged': 3, 'budget exhausted': 4}


def main(argv: Sequence[str]) -> int:
  """Runs the experiment that the flags describe; returns the exit code."""
  del argv
  config, name = run_flags.read()
  if _PRINT_SETTINGS.value:
    print(json.dumps(dataclasses.asdict(config), indent=2))
    return 0
  if config.output_dir is None:
    raise ValueError('`output_dir` must be given.')
  # As the bar of the rounds: nothing where nobody looks.
  if sys.stderr.isatty():
    print(f'{config.algorithm}: starting TensorFlow ...', file=sys.stderr)
  with command_line.importing():
    from tasks.running import run

  try:
    result = run.run(config, name=name)
  except RuntimeError as e:
    if not _is_explained(e):
      traceback.print_exc()
    command_line.print_error(e)
    return 1
  measured = run.describe_test(config)
  print(f'{config.algorithm}: {result.message}{measured} {config.output_dir}')
  if result.interrupted is not None:
    return result.interrupted.exit_code
  return _EXIT_CODES[result.reason.value]


def _is_explained(error: Exception) -> bool:
  """Returns whether the message says all: a cluster or a check failed."""
  from tff_clipping import runtime

  return any(
    isinstance(e, runtime.ClusterError) for e in (error, error.__cause__)
  ) or str(error) == str(error.__cause__)


if __name__ == '__main__':
  run_flags.define()
  command_line.run(main)
