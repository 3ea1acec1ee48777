"""What of a graph can be computed before all that is fed is there.

The noise of a round does not wait for its clients: it is drawn while the last
of them work, by who has none left.
"""

import collections
from collections.abc import Collection, Iterable, Mapping, Sequence

import tensorflow as tf

from tff_clipping.runtime import graph_state

# What is there without work: both parts have it.
_LIGHT = frozenset(['Const', 'Placeholder', 'Identity', 'NoOp'])
# What a loop begins and ends with, in a graph that was optimised.
_ENTER, _EXIT = 'Enter', 'Exit'
# What takes time: other early work is done with the rest.
_LOOPS = frozenset([_ENTER, 'While', 'StatelessWhile'])

_Consumers = Mapping[tf.Operation, Sequence[tf.Operation]]


def find_cut(
  graph: tf.Graph, feeds: Sequence[str], fetches: Sequence[str], num_early: int
) -> list[str]:
  """Returns the tensors that early work makes for the rest.

  Nothing but constants is computed by both: each draw is drawn once.

  Args:
    graph: A graph without variables.
    feeds: The names of the tensors that are fed.
    fetches: The names of the tensors that are fetched.
    num_early: How many of `feeds`, the first, are there early.

  Returns:
    Their names; none where there is no loop in the early work, or where what it
    makes cannot be fetched.
  """
  fetched = [graph.get_tensor_by_name(name) for name in fetches]
  operations = list(graph_state.ancestors([t.op for t in fetched]))
  consumers = collections.defaultdict(list)
  for op in operations:
    for before in _before(op):
      consumers[before].append(op)
  late = _reached(
    (graph.get_tensor_by_name(name).op for name in feeds[num_early:]), consumers
  )
  early = _reached(
    (op for op in operations if op.type not in _LIGHT), consumers
  )
  early -= late
  in_loops = _reached(
    (op for op in operations if op.type == _ENTER), consumers, until=_EXIT
  )
  rest = [op for op in operations if op not in early]
  taken = [*fetched, *(tensor for op in rest for tensor in op.inputs)]
  cut = [tensor for tensor in dict.fromkeys(taken) if tensor.op in early]
  if (
    all(op.type not in _LOOPS for op in early)
    or any(tensor.op in in_loops for tensor in cut)
    or any(tensor.dtype in (tf.resource, tf.variant) for tensor in cut)
    or any(not early.isdisjoint(op.control_inputs) for op in rest)
  ):
    return []
  return [tensor.name for tensor in cut]


def _before(op: tf.Operation) -> Collection[tf.Operation]:
  """Returns what runs before an operation."""
  return {*(tensor.op for tensor in op.inputs), *op.control_inputs}


def _reached(
  starts: Iterable[tf.Operation],
  consumers: _Consumers,
  *,
  until: str | None = None,
) -> set[tf.Operation]:
  """Returns some operations, and all that runs after them.

  Args:
    starts: The first of them.
    consumers: What runs after each.
    until: The type of operations that are not reached, nor what is after them.
  """
  found = set(starts)
  waiting = [*found]
  while waiting:
    for op in consumers.get(waiting.pop(), ()):
      if op not in found and op.type != until:
        found.add(op)
        waiting.append(op)
  return found
