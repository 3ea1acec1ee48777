"""Prints what it costs to measure the norm and the angle of every update.

  python -m benchmarks.diagnostics

Times rounds of the MLP with and without the measurements, in turns.
"""

import pathlib
import statistics
import tempfile
import time

from benchmarks import federated, machine
from benchmarks.workload import WORKLOADS
from tff_clipping import runtime

_WORKLOAD = WORKLOADS['mlp']
_ROUNDS = 15


def main() -> None:
  """Measures and prints."""
  print(machine.headline(machine.describe()))
  runtime.set_default_context()
  with tempfile.TemporaryDirectory() as folder:
    store = federated.write_store(_WORKLOAD, pathlib.Path(folder))
    client_ids = list(store.client_ids)
    processes = [
      federated.build_fed_avg(_WORKLOAD, store, measure_updates=measured)
      for measured in (False, True)
    ]
    # The first round has no last direction, and compiles.
    states = [p.next(p.initialize(), client_ids).state for p in processes]
    seconds = [[], []]
    for _ in range(_ROUNDS):
      for i, process in enumerate(processes):
        start = time.monotonic()
        states[i] = process.next(states[i], client_ids).state
        seconds[i].append(time.monotonic() - start)
  without, with_them = map(statistics.median, seconds)
  print(
    f'mlp, {_WORKLOAD}\n  without {without:.3f} s a round, '
    f'with {with_them:.3f} s, {with_them / without:.3f} times'
  )


if __name__ == '__main__':
  main()
