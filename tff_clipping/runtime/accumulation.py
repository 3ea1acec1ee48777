"""Adds up what clients send, as a TFF computation says.

What a computation only adds is added by NumPy, in place: a session that returns
new arrays takes many times as long, for each client of a round. The bits are
the same, but for numbers below 1.2e-38, which TensorFlow takes for 0. All else,
such as a list that grows with each client, is computed by TensorFlow.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_clipping.runtime.tensorflow_computation import (
  TensorFlowComputation,
  import_computation,
)

_ADDED_TYPES = (tf.float32, tf.float64, tf.int32, tf.int64)


class Accumulation:
  """A TFF computation of n arrays and m others that returns n arrays."""

  def __init__(self, computation: tff.framework.ConcreteComputation):
    """Compiles `computation`, as `MapReduceForm` has it to accumulate or merge.

    Args:
      computation: Plain TensorFlow, of n + m leaves, with n of the first
        parameter before those of the second. What a client sends need not be
        like what it is added to: statistics grow from a norm.
    """
    self._addends = _find_addends(computation)
    self._others = [i for i, j in enumerate(self._addends) if j is None]
    self._compute_others = (
      TensorFlowComputation(computation, results=self._others)
      if self._others
      else None
    )

  @property
  def fingerprint(self) -> str | None:
    """As that of a `TensorFlowComputation`."""
    if self._compute_others is None:
      return repr(self._addends)
    others = self._compute_others.fingerprint
    return others and f'{self._addends} {others}'

  def __call__(
    self,
    total: Sequence[np.ndarray],
    addend: Sequence[np.ndarray],
    *,
    in_place: bool,
  ) -> Sequence[np.ndarray]:
    """Returns the arrays of both together.

    Args:
      total: The arrays of some clients.
      addend: Those of others.
      in_place: Whether what is added up takes the place of `total`, which must
        be of no use to anybody else.
    """
    # First, since they may depend on what is overwritten.
    others = (
      []
      if self._compute_others is None
      else self._compute_others(*total, *addend)
    )
    result: list[Any] = [
      None
      if j is None
      # A sum of scalars would be no array.
      else np.asarray(np.add(a, addend[j], out=a if in_place else None))
      for a, j in zip(total, self._addends, strict=True)
    ]
    for i, leaf in zip(self._others, others, strict=True):
      result[i] = leaf
    return result


def _find_addends(
  computation: tff.framework.ConcreteComputation,
) -> list[int | None]:
  """Returns which of the m others each result adds to its parameter.

  Returns:
    j where result i is nothing but the sum of parameters i and n + j, `None`
    where it is something else.
  """
  graph, parameters, results = import_computation(computation)
  places = {name: i for i, name in enumerate(parameters)}

  def addend(i: int, tensor: tf.Tensor) -> int | None:
    tensor = _source(tensor)
    if tensor.op.type != 'AddV2' or tensor.dtype not in _ADDED_TYPES:
      return None
    left, right = tensor.op.inputs
    if not left.shape.is_fully_defined() or left.shape != right.shape:
      return None
    # A parameter's place; -1 for what is none.
    found = {places.get(_source(side).name, -1) for side in (left, right)}
    if len(found) < 2 or i not in found:
      return None
    (other,) = found - {i}
    return other - len(results) if other >= len(results) else None

  return [
    addend(i, graph.get_tensor_by_name(name)) for i, name in enumerate(results)
  ]


def _source(tensor: tf.Tensor) -> tf.Tensor:
  """Returns the tensor that some identities pass on."""
  while tensor.op.type == 'Identity':
    tensor = tensor.op.inputs[0]
  return tensor
