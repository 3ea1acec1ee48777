"""Prints what a round costs beside its local steps, and where.

  python -m benchmarks.overheads [WORKLOAD]

Times one client's work with Q steps and with one, in turns with that of the
bare loop; rounds of the process with one step; and rounds of the training
program with one step. What they differ by is the cost of each layer.
"""

import dataclasses
import itertools
import os
import pathlib
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence

os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
# As the bare loop has it.
os.environ['TF_NUM_INTRAOP_THREADS'] = '1'

# ruff: noqa: E402
import tensorflow_federated as tff

from benchmarks import bare, federated, machine
from benchmarks.workload import WORKLOADS, Workload
from tff_clipping import runtime

_WARM_UP = 10
_CALLS = 200
_ROUNDS = 30


def main(name: str = 'mlp') -> None:
  """Measures and prints."""
  workload = WORKLOADS[name]
  print(machine.headline(machine.describe()))
  num_threads = len(os.sched_getaffinity(0))
  short = dataclasses.replace(workload, local_steps=1, num_rounds=_ROUNDS)
  context = runtime.InProcessContext()
  tff.framework.set_default_context(context)
  with tempfile.TemporaryDirectory() as folder:
    (long_work, _), (short_work, run_round) = (
      _process(of, context, pathlib.Path(folder, str(of.local_steps)))
      for of in (workload, short)
    )
    ours, loops, ours_short, loops_short = _medians(
      [long_work, _bare(workload), short_work, _bare(short)], _CALLS
    )
    (round_seconds,) = _medians([run_round], _ROUNDS)
    program_seconds = statistics.median(
      federated.run_ours(short, pathlib.Path(folder, 'run'))['seconds']
    )
  steps = workload.local_steps
  step = (ours - ours_short) / (steps - 1)
  bare_step = (loops - loops_short) / (steps - 1)
  # Clients that one thread serves in a round.
  turns = workload.clients_per_round / num_threads
  print(f'{name}, {workload}; milliseconds')
  for label, seconds, times in (
    ('a local step', step, steps * turns),
    ('a local step of the bare loop', bare_step, steps * turns),
    ('a client beside its steps', ours_short - step, turns),
    ('the same in the bare loop', loops_short - bare_step, turns),
    ('the server: sum, noise, step', round_seconds - turns * ours_short, 1),
    ('the program: ledger, files', program_seconds - round_seconds, 1),
  ):
    print(
      f'  {label:31} {1e3 * seconds:8.3f}, {1e3 * seconds * times:7.1f} a round'
    )


def _process(
  workload: Workload, context: runtime.InProcessContext, folder: pathlib.Path
) -> tuple[Callable, Callable]:
  """Returns what runs a client's work, one after the other, and a round."""
  store = federated.write_store(workload, folder)
  plan = federated.private_plan(workload)
  process = federated.build_fed_avg(
    workload, store, federated.private_aggregator(plan)
  )
  state, client_ids = process.initialize(), list(store.client_ids)
  compiled = context.compile(process.next)
  server, clients = compiled.split_argument(
    tff.structure.Struct([(None, state), (None, client_ids)])
  )
  broadcast = compiled.prepare(server)
  turns = itertools.cycle(clients)
  return (
    lambda: compiled.work(next(turns), broadcast),
    lambda: process.next(state, client_ids),
  )


def _bare(workload: Workload) -> Callable:
  train = bare.build(workload)
  turns = itertools.cycle(bare.clients(workload))
  return lambda: train(*next(turns))


def _medians(calls: Sequence[Callable], count: int) -> list[float]:
  """Returns the median seconds of each of some calls, made in turns."""
  seconds = [[] for _ in calls]
  for turn in range(_WARM_UP + count):
    for call, found in zip(calls, seconds, strict=True):
      start = time.monotonic()
      call()
      if turn >= _WARM_UP:
        found.append(time.monotonic() - start)
  return [statistics.median(found) for found in seconds]


if __name__ == '__main__':
  main(*sys.argv[1:])
