r"""Runs many configurations, one after the other, and makes a table of them.

  python -m tasks.sweep --grid=GRID --output_dir=DIR

A grid file has a flag of `tasks.train` on each line, with the values to try:

  --flagfile=tasks/flagfiles/demo/fed_avg.flags
  --client_learning_rate=0.03,0.1,0.3
  --seed=0,1

Flags on the command line are common to all runs. Each run gets a folder in DIR
that is named after its values. The same command skips the runs that have ended
and continues the one that was stopped. DIR/sweep.csv and DIR/sweep.md hold the
table.

Exit codes: 0 all runs ended (finished, diverged or with their budget spent),
1 a run failed, 2 wrong flags, 5 a file cannot be written, 130 Ctrl-C,
143 SIGTERM.
"""

import pathlib
import sys

from tasks.settings.interrupts import importing

with importing():
  from absl import flags

  from tasks.running import grid, run_queue

_GRID = flags.DEFINE_string('grid', None, 'The grid file.')


def plan() -> tuple[list[run_queue.QueuedRun], pathlib.Path]:
  """Returns the runs of the grid, and where their folders go."""
  output_dir = flags.FLAGS['output_dir'].value
  for name, value in (('grid', _GRID.value), ('output_dir', output_dir)):
    if value is None:
      raise ValueError(f'`{name}` must be given.')
  runs = grid.read_grid(
    _GRID.value,
    pathlib.Path(output_dir),
    common_flags=run_queue.given_flags(),
    typed_flags=run_queue.typed_flags(sys.argv),
  )
  return runs, pathlib.Path(output_dir)


if __name__ == '__main__':
  run_queue.run_planned(plan)
