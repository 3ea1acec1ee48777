"""Prints how long a round takes and what it needs, as ratios; `make bench`.

  python -m benchmarks.compare --workloads=mlp

The sides, of which each is a program of its own, run their rounds in turns:
`benchmarks.alternate`. Beside their times and ratios, TFF's own processes in
our context and in TFF's, and the peak of the memory of a round with 80 updates
of 11.1M parameters. What is printed is Markdown, for docs/benchmarks.md.
Asserts nothing.
"""

from absl import app, flags

from benchmarks import alternate, processes, tables
from benchmarks.alternate import Side
from benchmarks.workload import NUM_CONTEXT_ROUNDS, WORKLOADS

_WORKLOADS = flags.DEFINE_list(
  'workloads', ['mlp', 'alexnet'], 'Whose time to measure: mlp, alexnet.'
)
_CONTEXTS = flags.DEFINE_bool(
  'contexts', True, "Measure TFF's own processes in both contexts."
)
_MEMORY = flags.DEFINE_list(
  'memory',
  ['ours'],
  'Whose memory to measure: ours, and stock, which needs 16 GB.',
)

# The program of each side; the name of the workload is its last argument.
_SIDES = {
  'bare': ['-m', 'benchmarks.bare'],
  'ours': ['-m', 'benchmarks.federated', 'ours'],
  'stock': ['-m', 'benchmarks.federated', 'stock'],
}
# Of TFF's own processes: the process, and the examples of a client.
_TFF_PROCESSES = (('fed_avg', 40), ('fed_avg', 1000), ('fed_eval', 100))
_MEMORY_WORKLOAD = 'resnet18_memory'


def main(argv: list[str]) -> None:
  """Measures and prints."""
  del argv
  print(f'{tables.describe_machine()}\n', flush=True)
  of = ('bare', 'ours')
  print(tables.time_heading('model', of), flush=True)
  for name in _WORKLOADS.value:
    found = alternate.compare(
      {side: Side([*program, name]) for side, program in _SIDES.items()},
      num_rounds=WORKLOADS[name].num_rounds,
    )
    print(tables.time_rows(name, _SIDES, of, found), flush=True)
  if _CONTEXTS.value:
    _compare_contexts()
  if _MEMORY.value:
    _measure_memory()


def _compare_contexts() -> None:
  """Measures TFF's own processes in our context and in TFF's."""
  contexts = ('native', 'ours')
  print(f'\n{tables.time_heading("process of TFF", contexts[:1])}', flush=True)
  for kind, num_examples in _TFF_PROCESSES:
    program = ['-m', 'benchmarks.tff_processes', kind, str(num_examples)]
    found = alternate.compare(
      {context: Side([*program, context]) for context in contexts},
      num_rounds=NUM_CONTEXT_ROUNDS,
    )
    name = f'{kind}, {num_examples} examples a client'
    print(tables.time_rows(name, contexts, contexts[:1], found), flush=True)


def _measure_memory() -> None:
  """Measures the peak of a round beside that of one client's training."""
  model = WORKLOADS[_MEMORY_WORKLOAD].model
  print(f'\n{tables.heading(f"memory of {model}", "at the peak")}', flush=True)
  programs = {'one client': [*_SIDES['bare'], _MEMORY_WORKLOAD, 'one_client']}
  for side in _MEMORY.value:
    programs[side] = [*_SIDES[side], _MEMORY_WORKLOAD]
  for name, program in programs.items():
    try:
      peak = f'{processes.run_python_for_memory(program)[1] / 1e9:.2f} GB'
    except RuntimeError as e:
      peak = str(e).splitlines()[0]
    print(tables.row(name, peak), flush=True)


if __name__ == '__main__':
  app.run(main)
