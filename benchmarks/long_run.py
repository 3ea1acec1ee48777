"""Trains for 500 rounds, and shows whether time and memory grow.

  python -m benchmarks.long_run --rounds=500

A private run of `tasks.train` with everything on: ledger, evaluation, CSV,
TensorBoard, checkpoints. Its memory is looked at from outside, ten times a
second, and put to the round that metrics.csv has come to.
"""

import csv
import dataclasses
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence

from absl import app, flags

from benchmarks import machine, processes

_ROUNDS = flags.DEFINE_integer('rounds', 500, 'T.', lower_bound=10)
_OUTPUT = flags.DEFINE_string('output', None, 'Where to save the figures.')
_FLAGS = flags.DEFINE_list(
  'train_flags', [], 'More flags of tasks.train, with commas between.'
)
_NUM_PARTS = 5
_SECONDS_BETWEEN_SAMPLES = 0.1

_TRAIN_FLAGS = (
  '--task=embedded_digits',
  '--partition=iid',
  '--num_clients=100',
  '--model=mlp',
  '--algorithm=dp_fed_avg',
  '--clients_per_round=20',
  '--local_steps=4',
  '--batch_size=32',
  '--client_learning_rate=0.1',
  '--clipping_norm=0.5',
  '--sampling=poisson',
  '--noise_multiplier=1.0',
  '--target_delta=1e-3',
)


@dataclasses.dataclass(frozen=True)
class Sample:
  """What was seen at one moment.

  Attributes:
    seconds: Since the start of the program.
    round_num: The rounds that are in metrics.csv.
    memory: Bytes of all processes.
  """

  seconds: float
  round_num: int
  memory: int


def main(argv: list[str]) -> None:
  """Trains, prints and saves."""
  del argv
  with tempfile.TemporaryDirectory() as folder:
    samples, round_seconds = _train(pathlib.Path(folder) / 'run')
  print(machine.headline(machine.describe()))
  parts = summarize(samples, round_seconds, _NUM_PARTS)
  print('rounds      s a round   wall s a round   memory (MB)')
  for part in parts:
    print(
      f'{part["first"]:4}-{part["last"]:<4}  {part["median_seconds"]:9.4f}  '
      f'{part["wall_seconds"]:14.4f}  {part["memory"] / 1e6:11.0f}'
    )
  first, last = parts[1], parts[-1]
  print(
    'Last part to the second: time '
    f'{last["median_seconds"] / first["median_seconds"]:.3f}, wall '
    f'{last["wall_seconds"] / first["wall_seconds"]:.3f}, memory '
    f'{last["memory"] / first["memory"]:.3f}'
  )
  if _OUTPUT.value:
    pathlib.Path(_OUTPUT.value).write_text(
      json.dumps(dict(machine=machine.describe(), parts=parts), indent=2)
    )


def summarize(
  samples: Sequence[Sample], round_seconds: Sequence[float], num_parts: int
) -> list[dict[str, float]]:
  """Returns time and memory in equal parts of a run.

  Args:
    samples: What was seen, in order of time.
    round_seconds: The program's own time of each round, from round 1 on.
    num_parts: How many parts; the rounds are divided into them.

  Returns:
    For each part `first` and `last`, the numbers of its rounds;
    `median_seconds` of its rounds; `wall_seconds`, the time from its start to
    its end over its rounds, with all that is between rounds; and `memory`, the
    median of the samples in it, in bytes.
  """
  size = len(round_seconds) // num_parts
  parts = []
  for part in range(num_parts):
    first, last = part * size + 1, (part + 1) * size
    inside = [s for s in samples if first <= s.round_num + 1 <= last]
    ends = [s.seconds for s in samples if s.round_num >= last]
    # The first part starts where the initial model is in the metrics.
    wall = ends[0] - inside[0].seconds
    parts.append(
      dict(
        first=first,
        last=last,
        median_seconds=statistics.median(round_seconds[first - 1 : last]),
        wall_seconds=wall / size,
        memory=statistics.median(s.memory for s in inside),
      )
    )
  return parts


def _train(folder: pathlib.Path) -> tuple[list[Sample], list[float]]:
  start = time.monotonic()
  process = subprocess.Popen(
    [
      *(sys.executable, '-m', 'tasks.train', f'--output_dir={folder}'),
      *_TRAIN_FLAGS,
      f'--num_rounds={_ROUNDS.value}',
      *_FLAGS.value,
    ]
  )
  metrics = folder / 'metrics.csv'
  samples = []
  while process.poll() is None:
    if metrics.exists():
      samples.append(
        Sample(
          time.monotonic() - start,
          # The heading, and the row of the initial model.
          len(metrics.read_text().splitlines()) - 2,
          processes.tree_memory(process.pid),
        )
      )
    time.sleep(_SECONDS_BETWEEN_SAMPLES)
  if process.returncode:
    sys.exit(process.returncode)
  with open(metrics) as file:
    rows = list(csv.DictReader(file))
  end = Sample(time.monotonic() - start, len(rows) - 1, 0)
  return [*samples, end], [float(row['round_seconds']) for row in rows[1:]]


if __name__ == '__main__':
  app.run(main)
