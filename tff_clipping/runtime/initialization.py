"""Initializes the variables of a graph in the run that uses them.

TFF names the operation that initializes. A run of its own for it would take
0.1 ms for each client of a round.
"""

import collections
from collections.abc import Iterable

from tensorflow.core.framework import graph_pb2, node_def_pb2

# What these give is there before anything runs.
_VALUES = frozenset(['Const', 'Placeholder'])


def initialize_first(graph_def: graph_pb2.GraphDef, initialize_op: str) -> None:
  """Makes all uses of variables and tables wait until these are initialized.

  Args:
    graph_def: The graph, which is changed.
    initialize_op: The name of the operation that initializes.
  """
  nodes = {node.name: node for node in graph_def.node}
  initializing = _ancestors(initialize_op, nodes)
  resources = {_resource(nodes[name]) for name in initializing} - {None}
  made = {
    node.name
    for node in graph_def.node
    if (node.name in initializing and node.op not in _VALUES)
    or _resource(node) in resources
  }
  for node in graph_def.node:
    if node.name not in initializing and not made.isdisjoint(
      _names(node.input)
    ):
      node.input.append(f'^{initialize_op}')


def _resource(node: node_def_pb2.NodeDef) -> bytes | None:
  """Returns what a variable or a table is called, by all who have its name."""
  # To look for it in a message without it would put it there.
  if 'shared_name' not in node.attr:
    return None
  return node.attr['shared_name'].s or None


def _ancestors(name: str, nodes: dict) -> set[str]:
  """Returns the names of an operation, and of all that it needs."""
  waiting, seen = collections.deque([name]), {name}
  while waiting:
    for other in _names(nodes[waiting.popleft()].input):
      if other not in seen:
        seen.add(other)
        waiting.append(other)
  return seen


def _names(inputs: Iterable[str]) -> list[str]:
  """Returns the names of the operations that give some inputs."""
  return [each.lstrip('^').split(':')[0] for each in inputs]
