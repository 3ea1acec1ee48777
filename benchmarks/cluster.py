"""Prints how a round's time splits on Ray: broadcast, work and reduce.

  python -m benchmarks.cluster
  python -m benchmarks.cluster --ray_address=10.0.0.1:6379 --workers=8,64

With a row for each number of workers, and one for the in-process runtime. Then
what a client costs the program that drives the workers. Asserts nothing.
"""

import dataclasses
import pathlib
import pickle
import statistics
import tempfile
import time
from collections.abc import Sequence

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff
from absl import app, flags

from benchmarks import machine
from benchmarks.federated import build_fed_avg, write_store
from benchmarks.workload import NUM_WARM_UP_ROUNDS, WORKLOADS, Workload
from tff_clipping import runtime
from tff_clipping.runtime.map_reduce import MapReduceRound

_WORKERS = flags.DEFINE_list('workers', ['1', '2', '4'], 'Numbers of workers.')
_ADDRESS = flags.DEFINE_string(
  'ray_address', None, "A cluster's head; else Ray is started here."
)
_FOLDER = flags.DEFINE_string(
  'store_dir',
  None,
  'Where the clients are written: on a cluster, a folder that all nodes share.',
)
_MODELS = flags.DEFINE_list('models', ['mlp', 'resnet18'], 'What to train.')
_NUM_CLIENTS = 100_000

_WORKLOADS = {
  'mlp': WORKLOADS['mlp'],
  # As much to send as the paper's round of it, and a tenth of the work.
  'resnet18': dataclasses.replace(
    WORKLOADS['resnet18_memory'], clients_per_round=8, num_rounds=3
  ),
}


def main(argv: Sequence[str]) -> None:
  """Measures and prints."""
  del argv
  print(machine.headline(machine.describe()), flush=True)
  with tempfile.TemporaryDirectory(dir=_FOLDER.value) as folder:
    for model in _MODELS.value:
      _measure(model, _WORKLOADS[model], pathlib.Path(folder))
  _measure_clients()


def _measure(model: str, workload: Workload, folder: pathlib.Path) -> None:
  """Prints the table of one workload; all figures are medians of rounds."""
  store = write_store(workload, folder)
  process = build_fed_avg(workload, store)
  print(f'\n{model}, {workload}\n')
  print('workers         broadcast    work  reduce   round (seconds)')
  runtime.set_default_context()
  seconds = [s for s, _ in _rounds(workload, process, store, None)]
  print(f'{"in process":<14} {"":>27} {statistics.median(seconds):7.3f}')
  for num_workers in map(int, _WORKERS.value):
    with runtime.set_ray_context(
      address=_ADDRESS.value,
      num_workers=num_workers,
      required_paths=[store.path],
    ) as context:
      rounds = _rounds(workload, process, store, context)
    parts = [
      statistics.median(getattr(times, part) for _, times in rounds)
      for part in ('broadcast', 'work', 'reduce')
    ]
    total = statistics.median(s for s, _ in rounds)
    print(
      f'{num_workers:<14} {parts[0]:11.3f} {parts[1]:7.3f} {parts[2]:7.3f} '
      f'{total:7.3f}',
      flush=True,
    )


def _rounds(workload: Workload, process, store, context) -> list[tuple]:
  """Returns the seconds of each round, and where they went."""
  state = process.initialize()
  found = []
  for _ in range(NUM_WARM_UP_ROUNDS + workload.num_rounds):
    start = time.monotonic()
    state = process.next(state, list(store.client_ids)).state
    seconds = time.monotonic() - start
    found.append((seconds, context and context.last_round))
  return found[NUM_WARM_UP_ROUNDS:]


def _measure_clients() -> None:
  """Prints what a client's id costs on its way to the workers."""

  @tff.tensorflow.computation(np.str_)
  def length(client_id):
    return tf.strings.length(client_id)

  @tff.federated_computation(tff.FederatedType(np.str_, tff.CLIENTS))
  def comp(ids):
    return tff.federated_sum(tff.federated_map(length, ids))

  compiled = MapReduceRound(comp)
  ids = [f'client_{i:07d}' for i in range(_NUM_CLIENTS)]
  start = time.monotonic()
  _, clients = compiled.split_argument(ids)
  middle = time.monotonic()
  content = pickle.dumps(clients, protocol=5)
  end = time.monotonic()
  print(
    f'\nOne client in the program that drives the workers: '
    f'{(middle - start) / _NUM_CLIENTS * 1e6:.1f} us to check its id, '
    f'{(end - middle) / _NUM_CLIENTS * 1e6:.1f} us and '
    f'{len(content) / _NUM_CLIENTS:.0f} bytes to send it.'
  )


if __name__ == '__main__':
  app.run(main)
