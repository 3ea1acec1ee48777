"""How long `tasks.train` takes until its first round begins.

  python -m benchmarks.start_up

From the start of Python to the row of the initial model in metrics.csv, with
the settings of the demo's FedAvg: imports, data, process, initial evaluation.
"""

import pathlib
import statistics
import tempfile
import time

from benchmarks.processes import Program

_MAX_SECONDS = 120.0


def main() -> None:
  """Prints the seconds of the median start."""
  print(sentence(measure()))


def measure(num_starts: int = 5) -> float:
  """Returns the seconds of the median start."""
  return statistics.median(_seconds_of_a_start() for _ in range(num_starts))


def sentence(seconds: float) -> str:
  """Returns what was measured, in words."""
  return f'{seconds:.1f} s until the first round of `tasks.train` begins.'


def _seconds_of_a_start() -> float:
  with tempfile.TemporaryDirectory() as folder:
    metrics = pathlib.Path(folder) / 'run' / 'metrics.csv'
    arguments = [
      '-m',
      'tasks.train',
      '--flagfile=tasks/flagfiles/demo/fed_avg.flags',
      '--num_rounds=1',
      '--update_rounds=0',
      f'--output_dir={metrics.parent}',
    ]
    start = time.monotonic()
    with Program(arguments) as program:
      # The heading is the first line, and the initial model the second.
      while not metrics.exists() or metrics.read_text().count('\n') < 2:
        if time.monotonic() - start > _MAX_SECONDS:
          raise RuntimeError(f'No first round in {_MAX_SECONDS:.0f} s.')
        if not program.is_running:
          program.result()
        time.sleep(0.02)
      return time.monotonic() - start


if __name__ == '__main__':
  main()
