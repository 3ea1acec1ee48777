"""Shows what a large population costs: on the disk, at the start, in a round.

  python -m benchmarks.population
  python -m benchmarks.population --rounds=2000 --clients_per_round=1000
  python -m benchmarks.population --parameters=100000000 --clients_per_round=2

For each population: the seconds to write its clients, to open them and to take
them up again as a resumed run does; the time to read a client; and the rounds
of the training program, with sampler, metrics and checkpoints, in four parts,
in which time and memory must not grow. Asserts nothing.
"""

import json
import math
import os
import pathlib
import statistics
import tempfile
import time

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff
from absl import app, flags, logging

from benchmarks import machine, processes
from tff_clipping import learning, runtime
from tff_clipping.programs.clients import client_sampling, client_store
from tff_clipping.programs.training.checkpoints import Checkpoints
from tff_clipping.programs.training.metrics_files import MetricsFiles
from tff_clipping.programs.training.training_program import TrainingProgram
from tff_clipping.programs.training.watchers import AfterRounds

_POPULATIONS = flags.DEFINE_list(
  'populations', ['1920', '1000000'], 'Numbers of clients, with commas.'
)
_CLIENTS_PER_ROUND = flags.DEFINE_integer('clients_per_round', 80, 'P.')
_ROUNDS = flags.DEFINE_integer('rounds', 40, 'T, at least 8.', lower_bound=8)
_PARAMETERS = flags.DEFINE_integer(
  'parameters', 10_000, 'About the size of the model.'
)
_OUTPUT = flags.DEFINE_string('output', None, 'Where to save the figures.')

_EXAMPLES_PER_CLIENT = 10
_FEATURES = 64
_NUM_PARTS = 4
_NUM_READS = 200


def main(argv: list[str]) -> None:
  """Measures, prints and saves."""
  del argv
  logging.set_verbosity(logging.WARNING)
  description = machine.describe()
  print(machine.headline(description), flush=True)
  found = {}
  for population in map(int, _POPULATIONS.value):
    with tempfile.TemporaryDirectory() as folder:
      found[population] = _measure(population, pathlib.Path(folder))
  if _OUTPUT.value:
    pathlib.Path(_OUTPUT.value).write_text(
      json.dumps(dict(machine=description, found=found), indent=2)
    )


def _measure(population: int, folder: pathlib.Path) -> dict[str, object]:
  """Prints and returns what a population costs."""
  rng = np.random.default_rng(0)
  examples = dict(
    x=rng.normal(size=(60_000, _FEATURES)).astype(np.float32),
    y=rng.integers(10, size=60_000).astype(np.int32),
  )
  partition = rng.integers(60_000, size=(population, _EXAMPLES_PER_CLIENT))

  def write() -> client_store.ClientStore:
    return client_store.write_client_store(folder, 'bench', examples, partition)

  written, store = _seconds(write)
  resumed, _ = _seconds(write)
  opened, _ = _seconds(lambda: client_store.ClientStore(store.path))
  files = [path.stat().st_size for path in store.path.iterdir()]
  print(
    f'\n{population:,} clients: {len(files)} files, {sum(files) / 1e6:.0f} MB; '
    f'written in {written:.1f} s, opened in {opened:.2f} s, resumed in '
    f'{resumed:.1f} s'
  )
  ids = rng.choice(store.client_ids, _NUM_READS)
  reads = [
    _seconds(lambda i=i: store.read_client(tf.constant(i)))[0] for i in ids
  ]
  print(f'a client is read in {statistics.median(reads) * 1e3:.2f} ms')
  parts = _train(store, folder)
  print('rounds       s a round   memory (MB)')
  for part in parts:
    print(
      f'{part["first"]:5}-{part["last"]:<5}  {part["seconds"]:9.4f}  '
      f'{part["memory"] / 1e6:11.0f}',
      flush=True,
    )
  return dict(
    written=written,
    opened=opened,
    resumed=resumed,
    read=statistics.median(reads),
    parts=parts,
  )


def _train(
  store: client_store.ClientStore, folder: pathlib.Path
) -> list[dict[str, float]]:
  """Returns time and memory of parts of a run."""
  runtime.set_default_context()
  ends, memory = [], []

  def note(metrics) -> None:
    del metrics
    ends.append(time.monotonic())
    memory.append(processes.tree_memory(os.getpid()))

  result = TrainingProgram(
    process=learning.build_fed_avg(
      _model_fn,
      local_steps=1,
      batch_size=_EXAMPLES_PER_CLIENT,
      client_learning_rate=1e-4,
      client_store=store,
    ),
    sampler=client_sampling.FixedSizeSampler(
      store.client_ids, clients_per_round=_CLIENTS_PER_ROUND.value, seed=0
    ),
    num_rounds=_ROUNDS.value,
    evaluate=lambda weights: dict(test_accuracy=0.0, test_loss=0.0),
    checkpoints=Checkpoints(folder / 'checkpoints', keep=1),
    watchers=[
      MetricsFiles(folder / 'metrics.csv', tensorboard_dir=folder / 'board'),
      AfterRounds(note),
    ],
  ).run()
  assert result.round_num == _ROUNDS.value, result.message
  # The first round compiles.
  seconds = np.diff(ends)
  parts = []
  for rows in np.array_split(np.arange(len(seconds)), _NUM_PARTS):
    parts.append(
      dict(
        first=int(rows[0]) + 2,
        last=int(rows[-1]) + 2,
        seconds=float(np.median(seconds[rows])),
        memory=float(np.median(np.array(memory)[rows + 1])),
      )
    )
  return parts


def _model_fn() -> tff.learning.models.VariableModel:
  """A linear model, or one with two hidden layers of the size asked for."""
  layers = [tf.keras.Input((_FEATURES,))]
  if _PARAMETERS.value > _FEATURES * 1000:
    width = math.isqrt(_PARAMETERS.value)
    for _ in range(2):
      layers.append(tf.keras.layers.Dense(width, activation='relu'))
  layers.append(tf.keras.layers.Dense(10))
  return tff.learning.models.from_keras_model(
    tf.keras.Sequential(layers),
    loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    input_spec=(
      tf.TensorSpec([None, _FEATURES]),
      tf.TensorSpec([None], tf.int32),
    ),
  )


def _seconds(run) -> tuple[float, object]:
  start = time.monotonic()
  result = run()
  return time.monotonic() - start, result


if __name__ == '__main__':
  app.run(main)
