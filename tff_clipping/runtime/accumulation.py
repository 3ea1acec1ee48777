"""Adds up what clients send, as a TFF computation says.

Where the computation only adds two arrays, or appends a row, NumPy does so in
place. A session would return new arrays, which takes many times as long for
each client, and for rows grows with the number of clients before. The bits are
the same, but for sums below 1.2e-38, which TensorFlow takes for 0. TensorFlow
computes everything else.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_clipping.runtime import values
from tff_clipping.runtime.tensorflow_computation import (
  TensorFlowComputation,
  import_computation,
  source,
)

_TYPES = (tf.float32, tf.float64, tf.int32, tf.int64)

# In bytes. A session takes an array that begins at a multiple of it as it is,
# and a copy of any other.
_ALIGNMENT = 64


class Accumulation:
  """A TFF computation of n arrays and m others that returns n arrays."""

  def __init__(self, computation: tff.framework.ConcreteComputation):
    """Compiles `computation`, as `MapReduceForm` has it to accumulate or merge.

    Args:
      computation: Plain TensorFlow, of n + m leaves: the n of the first
        parameter, then the m of the second. A client's m leaves need not be
        like the n leaves of the total: statistics grow from a norm.
    """
    self._parts = _find_parts(computation)
    self._others = [i for i, part in enumerate(self._parts) if part is None]
    self._compute_others = (
      TensorFlowComputation(computation, results=self._others)
      if self._others
      else None
    )

  def __call__(
    self, total: Sequence[np.ndarray], addend: Sequence[np.ndarray]
  ) -> Sequence[np.ndarray]:
    """Returns the arrays of both together.

    Args:
      total: The arrays of some clients. They are used up: a sum is written into
        an array that can be written, and a row behind the other rows.
      addend: The arrays of other clients.
    """
    # First, since they may depend on what is overwritten.
    others = (
      []
      if self._compute_others is None
      # What a client has sent may be an array of its own, which can change.
      else values.detached(self._compute_others(*total, *addend), addend)
    )
    result: list[Any] = [
      part and part.combine(a, addend[part.addend])
      for a, part in zip(total, self._parts, strict=True)
    ]
    for i, leaf in zip(self._others, others, strict=True):
      result[i] = leaf
    return result


class _Part(NamedTuple):
  """What NumPy does for one of the n results.

  Attributes:
    combine: A function of the parameter and of what is put to it.
    addend: Which of the m others is put to it.
  """

  combine: Callable[[np.ndarray, np.ndarray], np.ndarray]
  addend: int


def begin(zero: np.ndarray) -> np.ndarray:
  """Returns an array to begin a total with, which cannot be written.

  Zeros take no memory until something is added: to write them first would take
  as long as to add up a client.

  Args:
    zero: What a session has returned, which may be a constant of its graph.
  """
  bits = np.atleast_1d(zero)
  if bits.dtype.kind in 'fiu' and not bits.view(np.uint8).any():
    return np.broadcast_to(np.zeros([], bits.dtype), np.shape(zero))
  return values.read_only(np.asarray(zero))


def _add(total: np.ndarray, addend: np.ndarray) -> np.ndarray:
  """Returns the sum; in the place of the total, if that can be written."""
  if total.flags.writeable:
    return np.add(total, addend, out=total)
  return np.add(total, addend, out=_empty(total.shape, total.dtype))


def _empty(shape: Sequence[int], dtype: np.dtype) -> np.ndarray:
  """Returns an array that a session takes without a copy."""
  size = math.prod(shape) * dtype.itemsize
  room = np.empty(size + _ALIGNMENT, np.uint8)
  start = -room.ctypes.data % _ALIGNMENT
  return room[start : start + size].view(dtype).reshape(shape)


def _append(rows: np.ndarray, row: np.ndarray) -> np.ndarray:
  """Returns rows and one more, in the room behind them if there is some."""
  num_rows, room = len(rows), rows.base
  if room is None or not _begins(rows, room):
    room = np.empty((max(8, 2 * num_rows), *rows.shape[1:]), rows.dtype)
    room[:num_rows] = rows
  room[num_rows] = row
  return room[: num_rows + 1]


def _begins(rows: np.ndarray, room: Any) -> bool:
  """Returns whether rows are the first ones of an array that has more."""
  return (
    isinstance(room, np.ndarray)
    and rows.dtype == room.dtype
    and rows.strides == room.strides
    and rows.shape[1:] == room.shape[1:]
    and len(rows) < len(room)
    and rows.ctypes.data == room.ctypes.data
  )


def _join(above: np.ndarray, below: np.ndarray) -> np.ndarray:
  """Returns the rows of both."""
  return np.concatenate([above, below])


def _find_parts(
  computation: tff.framework.ConcreteComputation,
) -> list[_Part | None]:
  """Returns what NumPy does for each result; `None` where TensorFlow does it.

  It does what is nothing but the sum of parameters i and n + j, the rows of i
  and below them those of n + j, or the rows of i and n + j as one below them.
  """
  graph, parameters, results = import_computation(computation)
  places = {name: i for i, name in enumerate(parameters)}

  def place(tensor: tf.Tensor) -> int:
    """Returns a parameter's place; -1 for what is none."""
    return places.get(source(tensor).name, -1)

  def part(i: int, tensor: tf.Tensor) -> _Part | None:
    tensor = source(tensor)
    if tensor.dtype not in _TYPES:
      return None
    op = tensor.op
    combine: Callable | None = None
    left = right = -1
    if op.type == 'AddV2':
      left, right = sorted(map(place, op.inputs), key=lambda p: p != i)
      shape, other = (each.shape for each in op.inputs)
      if shape.is_fully_defined() and shape == other:
        combine = _add
    elif op.type == 'ConcatV2' and len(op.inputs) == 3 and _is_0(op.inputs[2]):
      left = place(op.inputs[0])
      below = source(op.inputs[1])
      if below.op.type == 'ExpandDims' and _is_0(below.op.inputs[1]):
        combine, below = _append, below.op.inputs[0]
      else:
        combine = _join
      right = place(below)
    if combine is None or left != i or right < len(results):
      return None
    return _Part(combine, right - len(results))

  return [
    part(i, graph.get_tensor_by_name(name)) for i, name in enumerate(results)
  ]


def _is_0(tensor: tf.Tensor) -> bool:
  value = tf.get_static_value(tensor)
  return value is not None and value.size == 1 and int(value) == 0
