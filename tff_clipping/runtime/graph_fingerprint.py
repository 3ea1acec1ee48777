"""A text by which what a TensorFlow graph computes is told from others.

The names of operations, functions and variables count up with whatever else a
process has built, and decide nothing. They are numbered anew here, in the order
in which the results lead to them.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import tensorflow as tf

# Attributes of operations that hold such names, or notes for debugging.
_NAMES = frozenset(['shared_name', 'container', 'metadata'])
# Of those whose names begin with _, which are notes for TensorFlow itself, the
# one that says how something is computed.
_COMPILED = '_XlaMustCompile'


def compute_fingerprint(
  graph: tf.Graph, feeds: Sequence[str], fetches: Sequence[str]
) -> str:
  """Returns a text that is the same for graphs that compute the same.

  Args:
    graph: The graph.
    feeds: The names of the tensors that are fed, in order.
    fetches: The names of the tensors that are fetched, in order.
  """
  graph_def = graph.as_graph_def()
  writer = _Writer(
    {
      function.signature.name: function
      for function in graph_def.library.function
    }
  )
  writer.write_graph(graph_def.node, feeds, fetches)
  writer.write_gradients(graph_def.library.gradient)
  return writer.digest()


class _Writer:
  """Writes graphs without their names."""

  def __init__(self, functions: Mapping[str, Any]):
    self._functions = functions
    self._hash = hashlib.sha256()
    # By the names of functions and variables, their numbers.
    self._numbers: dict[str | bytes, int] = {}

  def digest(self) -> str:
    return self._hash.hexdigest()

  def write_graph(
    self, nodes: Iterable, inputs: Sequence[str], outputs: Sequence[str]
  ) -> None:
    """Writes what leads to some outputs.

    Args:
      nodes: The operations, as `NodeDef`.
      inputs: The names of what is given.
      outputs: The names of what is computed.
    """
    by_name = {node.name: node for node in nodes}
    numbers = {_operation(name): i for i, name in enumerate(inputs)}
    waiting = [*reversed(outputs)]
    self._write('graph', len(inputs), len(outputs))
    while waiting:
      name = _operation(waiting.pop())
      if name in numbers:
        self._write(numbers[name])
        continue
      numbers[name] = len(numbers)
      node = by_name[name]
      self._write(node.op, [_port(each) for each in node.input])
      for key in sorted(node.attr):
        self._write_attribute(key, node.attr[key])
      waiting += reversed(node.input)
    self._write(
      'outputs', [(numbers[_operation(x)], _port(x)) for x in outputs]
    )

  def write_gradients(self, gradients: Iterable) -> None:
    """Writes which functions are the gradients of those that were written."""
    known = {g.function_name: g.gradient_func for g in gradients}
    for name in sorted({*known} & {*self._numbers}, key=self._number):
      self._write('gradient', self._number(name))
      self._write_called(known[name])

  def _write_attribute(self, key: str, value) -> None:
    if key.startswith('_') and key != _COMPILED:
      return
    if key in _NAMES:
      self._write(
        key, self._number(value.SerializeToString(deterministic=True))
      )
      return
    called = [value.func, *value.list.func]
    if not any(each.name for each in called):
      self._write(key, value.SerializeToString(deterministic=True))
      return
    for each in called:
      self._write_function(key, each)

  def _write_function(self, key: str, called) -> None:
    self._write(key)
    for name in sorted(called.attr):
      self._write_attribute(name, called.attr[name])
    self._write_called(called.name)

  def _write_called(self, name: str) -> None:
    """Writes a function, and what it computes if it is a new one."""
    is_new = name not in self._numbers
    self._write(self._number(name))
    function = self._functions.get(name)
    if function is None:
      self._write(name)
    elif is_new:
      self.write_graph(
        function.node_def,
        [each.name for each in function.signature.input_arg],
        [
          *(function.ret[each.name] for each in function.signature.output_arg),
          *sorted(function.control_ret.values()),
        ],
      )

  def _number(self, name: str | bytes) -> int:
    return self._numbers.setdefault(name, len(self._numbers))

  def _write(self, *parts) -> None:
    self._hash.update(f'{parts!r};'.encode())


def _operation(name: str) -> str:
  """The name of the operation that an input of another one comes from."""
  return name.lstrip('^').partition(':')[0]


def _port(name: str) -> str:
  """Which of the results of the operation it is."""
  if name.startswith('^'):
    return '^'
  # In a graph, the first one has no number.
  return name.partition(':')[2] or '0'
