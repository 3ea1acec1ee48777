"""What of a graph can be computed before all that is fed is there.

The noise of a round does not wait for its clients: it is drawn while the last
of them are at work.
"""

import collections
from collections.abc import Iterable, Mapping, Sequence

import tensorflow as tf

from tff_clipping.runtime import graph_state

# What takes no time: both parts have it.
_LIGHT = frozenset(['Const', 'Placeholder', 'Identity', 'NoOp'])
# What a loop begins and ends with, in a graph that was optimised.
_ENTER, _EXIT = 'Enter', 'Exit'
# Where a branch begins, there.
_SWITCH = 'Switch'
# Without one of these, nothing early takes time.
_LOOPS = frozenset([_ENTER, 'While', 'StatelessWhile'])

_Consumers = Mapping[tf.Operation, Sequence[tf.Operation]]


def find_cut(
  graph: tf.Graph, feeds: Sequence[str], fetches: Sequence[str], num_early: int
) -> list[str]:
  """Returns the tensors that early work makes for the rest.

  What draws, or changes anything, is in one part alone.

  Args:
    graph: A graph without variables.
    feeds: The names of the tensors that are fed.
    fetches: The names of the tensors that are fetched.
    num_early: How many of `feeds`, the first, are there early.

  Returns:
    Their names; none where there is no loop in the early work, or where what it
    makes cannot be fetched: inside of a loop, or where a branch may have been
    left out.
  """
  fetched = [graph.get_tensor_by_name(name) for name in fetches]
  operations = list(graph_state.ancestors([t.op for t in fetched]))
  consumers = collections.defaultdict(list)
  for op in operations:
    for before in {*(tensor.op for tensor in op.inputs), *op.control_inputs}:
      consumers[before].append(op)
  late = _reached(
    (graph.get_tensor_by_name(name).op for name in feeds[num_early:]), consumers
  )
  worked = _reached(
    (op for op in operations if op.type not in _LIGHT), consumers
  )
  early = worked - late
  rest = [op for op in operations if op not in early]
  taken = [*fetched, *(tensor for op in rest for tensor in op.inputs)]
  cut = [tensor for tensor in dict.fromkeys(taken) if tensor.op in early]
  depths = _loop_depths(operations, consumers)
  in_branches = _reached(
    (op for op in early if op.type == _SWITCH and not depths[op]), consumers
  )
  if (
    all(op.type not in _LOOPS for op in early)
    or any(depths[tensor.op] or tensor.op in in_branches for tensor in cut)
    or any(tensor.dtype in (tf.resource, tf.variant) for tensor in cut)
    or any(not early.isdisjoint(op.control_inputs) for op in rest)
  ):
    return []
  return [tensor.name for tensor in cut]


def _reached(
  starts: Iterable[tf.Operation], consumers: _Consumers
) -> set[tf.Operation]:
  """Returns some operations, and all that runs after them."""
  found = set(starts)
  waiting = [*found]
  while waiting:
    for op in consumers.get(waiting.pop(), ()):
      if op not in found:
        found.add(op)
        waiting.append(op)
  return found


def _loop_depths(
  operations: Sequence[tf.Operation], consumers: _Consumers
) -> dict[tf.Operation, int]:
  """Returns in how many loops what each operation gives is."""
  depths = {
    op: 0 for op in operations if not op.inputs and not op.control_inputs
  }
  waiting = [*depths]
  while waiting:
    before = waiting.pop()
    for op in consumers.get(before, ()):
      if op not in depths:
        depths[op] = depths[before] + (op.type == _ENTER) - (op.type == _EXIT)
        waiting.append(op)
  return depths
