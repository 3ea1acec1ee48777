"""Prints how the cores are best used: by clients, or inside of operations.

  python -m benchmarks.core_split

Times a round of each model with a client on each core, and with one client at a
time whose operations use all cores, in turns. What is better is the same for
all of the models here, so the runtime does not measure it when a run starts: a
choice by the clock would change the last bits of a run from one start to the
next.
"""

import os
import pathlib
import statistics
import tempfile
import time

import tensorflow_federated as tff

from benchmarks import federated, machine
from benchmarks.workload import WORKLOADS, Workload
from tff_clipping import runtime

_MODELS = ('mlp', 'alexnet', 'mobilenet_v2', 'resnet18')
_ROUNDS = 5


def main() -> None:
  """Measures and prints."""
  print(machine.headline(machine.describe()))
  cores = len(os.sched_getaffinity(0))
  for name in _MODELS:
    with tempfile.TemporaryDirectory() as folder:
      split, together = _seconds(WORKLOADS[name], pathlib.Path(folder), cores)
    print(
      f'{name:<12} a client on each of {cores} cores {split:6.3f} s, '
      f'one client on all {together:6.3f} s, {together / split:5.2f} times',
      flush=True,
    )


def _seconds(
  workload: Workload, folder: pathlib.Path, cores: int
) -> tuple[float, float]:
  """Returns the medians of a round with clients and with operations split."""
  store = federated.write_store(workload, folder)
  process = federated.build_fed_avg(workload, store)
  client_ids = list(store.client_ids)
  contexts = [
    runtime.InProcessContext(),
    runtime.InProcessContext(num_threads=1, threads_per_client=cores),
  ]
  seconds = [[], []]
  for round_num in range(1 + _ROUNDS):
    for context, found in zip(contexts, seconds, strict=True):
      tff.framework.set_default_context(context)
      state = process.initialize()
      start = time.monotonic()
      process.next(state, client_ids)
      # The first one compiles.
      if round_num > 0:
        found.append(time.monotonic() - start)
  return statistics.median(seconds[0]), statistics.median(seconds[1])


if __name__ == '__main__':
  main()
