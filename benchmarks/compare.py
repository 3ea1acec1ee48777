"""Prints how long a round takes and what it needs, as ratios; `make bench`.

  python -m benchmarks.compare --output=bench.json

The sides, of which each is a program of its own, run their rounds in turns:
`benchmarks.alternate`. Beside their times and ratios, which share of the
machine's peak that is. Then the start-up of the trainer, TFF's own processes in
our context and in TFF's, and the peak of the memory of a round with 80 updates
of 11.1M parameters. What is printed is Markdown, for docs/benchmarks.md; it
says how busy other programs kept the machine. Asserts nothing.
"""

import dataclasses
import json
import pathlib
from typing import Any

from absl import app, flags

from benchmarks import alternate, machine, processes, start_up, tables
from benchmarks.alternate import Side
from benchmarks.workload import (
  NUM_CONTEXT_ROUNDS,
  NUM_LAST_ROUNDS,
  NUM_WARM_UP_ROUNDS,
  WORKLOADS,
)

_OUTPUT = flags.DEFINE_string('output', 'bench.json', 'Where the figures go.')
_WORKLOADS = flags.DEFINE_list(
  'workloads',
  ['mlp', 'alexnet'],
  'Whose time to measure: mlp, alexnet, mobilenet_v2, resnet18.',
)
_STOCK = flags.DEFINE_bool('stock', True, 'Measure the time of stock TFF too.')
_CONTEXTS = flags.DEFINE_bool(
  'contexts', True, "Measure TFF's own processes in both contexts."
)
_MEMORY = flags.DEFINE_bool('memory', True, 'Measure memory.')
_STOCK_MEMORY = flags.DEFINE_bool(
  'stock_memory', False, 'Of stock TFF too, which needs 16 to 24 GB.'
)
_REPEATS = flags.DEFINE_integer(
  'repeats', 2, 'How often all programs are started.', lower_bound=1
)

# The program of each side; the name of the workload is its last argument.
_SIDES = {
  'bare': ['-m', 'benchmarks.bare'],
  'ours': ['-m', 'benchmarks.federated', 'ours'],
  'ours_correlated': ['-m', 'benchmarks.federated', 'ours_correlated'],
  'ours_bfloat16': ['-m', 'benchmarks.federated', 'ours_bfloat16'],
  'stock': ['-m', 'benchmarks.federated', 'stock'],
}
# Of TFF's own processes: the process, and the examples of a client.
_STOCK_PROCESSES = (
  ('fed_avg', 40),
  ('fed_avg', 100),
  ('fed_avg', 400),
  ('fed_avg', 1000),
  ('weighted_fed_avg', 100),
  ('fed_prox', 100),
  ('dp_fed_avg', 100),
  ('fed_eval', 100),
  ('computation', 100),
)
_MEMORY_WORKLOAD = 'resnet18_memory'
_MEMORY_MODES = ('ours', 'ours_secure')
_STOCK_MEMORY_MODES = ('stock', 'stock_secure')


def main(argv: list[str]) -> None:
  """Measures, prints and saves."""
  del argv
  description = machine.describe()
  results = dict(machine=description, time={}, memory={})
  print(machine.headline(description), end='\n\n')
  print(tables.time_heading('of the peak'), flush=True)
  busy_lines = []
  for name in _WORKLOADS.value:
    sides = [side for side in _SIDES if side != 'stock' or _STOCK.value]
    found = alternate.compare(
      {side: Side([*_SIDES[side], name]) for side in sides},
      num_rounds=WORKLOADS[name].num_rounds,
      num_warm_up_rounds=NUM_WARM_UP_ROUNDS,
      num_last_rounds=NUM_LAST_ROUNDS,
      num_starts=_REPEATS.value,
    )
    arithmetic = processes.run_python(['-m', 'benchmarks.arithmetic', name])
    shares = {
      side: f'{_share_of_peak(side, found, arithmetic):.0%}'
      for side in found.seconds
    }
    print('\n'.join(tables.time_rows(name, sides, found, shares)), flush=True)
    busy_lines.append(tables.busy_line(name, found))
    results['time'][name] = dict(
      dataclasses.asdict(found),
      workload=str(WORKLOADS[name]),
      arithmetic=arithmetic,
    )
    _save(results)
  print('', *busy_lines, sep='\n')
  results['start_up'] = start_up.measure()
  print(f'\n{start_up.sentence(results["start_up"])}', flush=True)
  if _CONTEXTS.value:
    results['contexts'] = _compare_contexts()
    _save(results)
  if _MEMORY.value:
    model = WORKLOADS[_MEMORY_WORKLOAD].model
    columns = f'memory of {model}', 'at the peak', 'beyond one client'
    print(f'\n{tables.heading(*columns)}')
    modes = ['one_client', *_MEMORY_MODES]
    if _STOCK_MEMORY.value:
      modes += _STOCK_MEMORY_MODES
    for mode in modes:
      results['memory'][mode] = _memory(mode)
      print(tables.memory_row(mode, results['memory']), flush=True)
      _save(results)


def _compare_contexts() -> dict[str, Any]:
  """Measures TFF's own processes in our context and in TFF's, and prints it."""
  columns = 'process of TFF', 'examples a client', 'TFF, s', 'ours, s'
  print(f'\n{tables.heading(*columns, "ours of TFF")}', flush=True)
  results: dict[str, Any] = {}
  busy_lines = []
  for kind, num_examples in _STOCK_PROCESSES:
    found = alternate.compare(
      {
        context: Side(
          ['-m', 'benchmarks.stock', context, kind, f'{num_examples}']
        )
        for context in ('native', 'ours')
      },
      num_rounds=NUM_CONTEXT_ROUNDS,
      num_warm_up_rounds=NUM_WARM_UP_ROUNDS,
    )
    print(tables.context_row(kind, num_examples, found), flush=True)
    results[f'{kind} {num_examples}'] = dataclasses.asdict(found)
    busy_lines.append(tables.busy_line(f'{kind} {num_examples}', found))
  print('', *busy_lines, sep='\n')
  return results


def _share_of_peak(
  side: str, found: alternate.Comparison, arithmetic: dict[str, Any]
) -> float:
  dtype = 'bfloat16' if side == 'ours_bfloat16' else 'float32'
  seconds_at_peak = arithmetic['operations'] / arithmetic['peak'][dtype]
  return seconds_at_peak / found.median(side)


def _memory(mode: str) -> int | str:
  """Returns the bytes of a mode at its peak, or why there are none."""
  program = (
    [*_SIDES['bare'], _MEMORY_WORKLOAD, 'one_client']
    if mode == 'one_client'
    else ['-m', 'benchmarks.federated', mode, _MEMORY_WORKLOAD]
  )
  try:
    return processes.run_python_for_memory(program)[1]
  except RuntimeError as e:
    return str(e).splitlines()[0]


def _save(results: dict[str, Any]) -> None:
  pathlib.Path(_OUTPUT.value).write_text(json.dumps(results, indent=2))


if __name__ == '__main__':
  app.run(main)
