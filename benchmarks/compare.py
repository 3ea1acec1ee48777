"""Prints how long a round takes and what it needs, as ratios; `make bench`.

  python -m benchmarks.compare --output=bench.json

Each figure comes from a program of its own on an otherwise idle machine: the
bare limit, ours, ours with correlated noise, ours in bfloat16 and stock TFF one
after the other, twice, and the median of all rounds; beside them, which share
of the machine's peak that is. Then the peak of the memory of a round with
80 updates of 11.1M parameters. Asserts nothing.
"""

import json
import pathlib
import statistics
import time
from collections.abc import Sequence
from typing import Any

from absl import app, flags

from benchmarks import machine, processes, summaries
from benchmarks.workload import WORKLOADS

_OUTPUT = flags.DEFINE_string('output', 'bench.json', 'Where the figures go.')
_WORKLOADS = flags.DEFINE_list(
  'workloads',
  ['mlp', 'alexnet'],
  'Whose time to measure: mlp, alexnet, mobilenet_v2, resnet18.',
)
_STOCK = flags.DEFINE_bool('stock', True, 'Measure the time of stock TFF too.')
_MEMORY = flags.DEFINE_bool('memory', True, 'Measure memory.')
_STOCK_MEMORY = flags.DEFINE_bool(
  'stock_memory', False, 'Of stock TFF too, which needs 16 to 24 GB.'
)
_REPEATS = flags.DEFINE_integer(
  'repeats', 2, 'How often each is measured.', lower_bound=1
)

_MEMORY_WORKLOAD = 'resnet18_memory'


def main(argv: list[str]) -> None:
  """Measures, prints and saves."""
  del argv
  description = machine.describe()
  print(machine.headline(description), flush=True)
  start = time.monotonic()
  results: dict[str, Any] = dict(machine=description, time={}, memory={})
  for name in _WORKLOADS.value:
    results['time'][name] = _time(name)
    print(
      '\n'.join(summaries.time_lines(name, results['time'][name])), flush=True
    )
    _save(results)
  if _MEMORY.value:
    print(
      f'\nMemory of {WORKLOADS[_MEMORY_WORKLOAD].model} (11.1M parameters), '
      f'{WORKLOADS[_MEMORY_WORKLOAD]}'
    )
    modes = ['ours', 'ours_secure']
    if _STOCK_MEMORY.value:
      modes += ['stock', 'stock_secure']
    for mode in ['one_client', *modes]:
      results['memory'][mode] = _memory(mode)
      print(summaries.memory_line(mode, results['memory']), flush=True)
      _save(results)
  print(f'\n{time.monotonic() - start:.0f} s; saved {_OUTPUT.value}')


def _time(name: str) -> dict[str, Any]:
  commands = dict(bare=['-m', 'benchmarks.bare', name])
  modes = ['ours', 'ours_correlated', 'ours_bfloat16']
  if _STOCK.value:
    modes.append('stock')
  for mode in modes:
    commands[mode] = ['-m', 'benchmarks.federated', mode, name]
  arithmetic = processes.run_python(['-m', 'benchmarks.arithmetic', name])
  seconds: dict[str, list[float]] = {mode: [] for mode in commands}
  for _ in range(_REPEATS.value):
    for mode, command in commands.items():
      seconds[mode].extend(processes.run_python(command)['seconds'])
  return dict(
    workload=str(WORKLOADS[name]),
    arithmetic=arithmetic,
    median_seconds={
      mode: statistics.median(found) for mode, found in seconds.items()
    },
    seconds=seconds,
  )


def _memory(mode: str) -> int | str:
  command: Sequence[str] = (
    ['benchmarks.bare', _MEMORY_WORKLOAD, 'one_client']
    if mode == 'one_client'
    else ['benchmarks.federated', mode, _MEMORY_WORKLOAD]
  )
  try:
    return processes.run_python_for_memory(['-m', *command])[1]
  except RuntimeError as e:
    return str(e).splitlines()[0]


def _save(results: dict[str, Any]) -> None:
  pathlib.Path(_OUTPUT.value).write_text(json.dumps(results, indent=2))


if __name__ == '__main__':
  app.run(main)
