"""Prints what a round costs beside its local steps, and where.

  python -m benchmarks.overheads [WORKLOAD]

Times one client's work with Q steps and with one, in turns with that of the
bare loop; the server's part of a round; and rounds of one step, of the process
and of the training program, whose difference is what the program does besides.
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
  short_workload = dataclasses.replace(
    workload, local_steps=1, num_rounds=_ROUNDS
  )
  context = runtime.InProcessContext()
  tff.framework.set_default_context(context)
  with tempfile.TemporaryDirectory() as folder:
    long, short = (
      _Round(of, context, pathlib.Path(folder, str(of.local_steps)))
      for of in (workload, short_workload)
    )
    ours, loops, ours_short, loops_short = _medians(
      [long.work, _bare(workload), short.work, _bare(short_workload)], _CALLS
    )
    server, whole = _medians([long.serve, short.run], _ROUNDS)
    program = statistics.median(
      federated.run_ours(short_workload, pathlib.Path(folder, 'run'))['seconds']
    )
  steps = workload.local_steps
  step = (ours - ours_short) / (steps - 1)
  bare_step = (loops - loops_short) / (steps - 1)
  # Clients that one thread serves in a round.
  turns = workload.clients_per_round / len(os.sched_getaffinity(0))
  print(f'{name}, {workload}; milliseconds')
  for label, seconds, times in (
    ('a local step', step, steps * turns),
    ('a local step of the bare loop', bare_step, steps * turns),
    ('a client beside its steps', ours_short - step, turns),
    ('the same in the bare loop', loops_short - bare_step, turns),
    ('the server: noise, step', server, 1),
    ('the program: ledger, files', program - whole, 1),
  ):
    print(
      f'  {label:31} {1e3 * seconds:8.3f}, {1e3 * seconds * times:7.1f} a round'
    )


class _Round:
  """The parts of a round of DP-FedAvg, to call one by one."""

  def __init__(
    self,
    workload: Workload,
    context: runtime.InProcessContext,
    folder: pathlib.Path,
  ):
    store = federated.write_store(workload, folder)
    self._process = federated.build_fed_avg(
      workload,
      store,
      federated.private_aggregator(federated.private_plan(workload)),
    )
    self._argument = self._process.initialize(), list(store.client_ids)
    self._compiled = context.compile(self._process.next)
    self._server, clients = self._split()
    self._broadcast = self._compiled.prepare(self._server)
    self._turns = itertools.cycle(clients)

  def work(self) -> None:
    """Does the work of one client, of another one in each call."""
    self._compiled.work(next(self._turns), self._broadcast)

  def serve(self) -> None:
    """Does all that is done once in a round."""
    server, _ = self._split()
    self._compiled.prepare(server)
    self._compiled.finish(
      server,
      self._compiled.zero(),
      self._process.next.type_signature.result,
    )

  def run(self) -> None:
    """Runs a round."""
    self._process.next(*self._argument)

  def _split(self) -> tuple[list, list[list]]:
    return self._compiled.split_argument(
      tff.structure.Struct([(None, part) for part in self._argument])
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
