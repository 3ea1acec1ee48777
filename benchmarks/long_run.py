"""Trains for 500 rounds, and shows whether time and memory grow.

  python -m benchmarks.long_run --rounds=500

A private run of `tasks.train` with everything on: ledger, evaluation, CSV,
TensorBoard, checkpoints. Its memory is looked at from outside, ten times a
second, and put to the round that metrics.csv has come to.
"""

import csv
import json
import pathlib
import subprocess
import sys
import tempfile
import time

from absl import app, flags

from benchmarks import machine, processes, summaries

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
  # For the seconds of each round, which a private run does not tell.
  '--simulation_diagnostics',
  '--clients_per_round=20',
  '--local_steps=4',
  '--batch_size=32',
  '--client_learning_rate=0.1',
  '--clipping_norm=0.5',
  '--sampling=poisson',
  '--noise_multiplier=1.0',
  '--target_delta=1e-3',
)


def main(argv: list[str]) -> None:
  """Trains, prints and saves."""
  del argv
  with tempfile.TemporaryDirectory() as folder:
    samples, round_seconds = _train(pathlib.Path(folder) / 'run')
  description = machine.describe()
  print(machine.headline(description))
  parts = summaries.parts_of_run(samples, round_seconds, _NUM_PARTS)
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
      json.dumps(dict(machine=description, parts=parts), indent=2)
    )


def _train(folder: pathlib.Path) -> tuple[list[summaries.Sample], list[float]]:
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
        summaries.Sample(
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
  end = summaries.Sample(time.monotonic() - start, len(rows) - 1, 0)
  return [*samples, end], [float(row['round_seconds']) for row in rows[1:]]


if __name__ == '__main__':
  app.run(main)
