"""Adds up what clients send, as a TFF computation says.

What a computation only adds is added by NumPy, in place: a session that returns
new arrays takes many times as long, for each client of a round. The bits are
the same, but for numbers below 1.2e-38, which TensorFlow takes for 0. All else,
such as a list that grows with each client, is computed by TensorFlow.
"""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_clipping.runtime.tensorflow_computation import (
  TensorFlowComputation,
  import_computation,
)

_ADDED_TYPES = (tf.float32, tf.float64, tf.int32, tf.int64)


class Accumulation:
  """A TFF computation of two lists of n arrays that returns n arrays."""

  def __init__(self, computation: tff.framework.ConcreteComputation):
    """Compiles `computation`, as `MapReduceForm` has it to accumulate or merge.

    Args:
      computation: Plain TensorFlow, of 2 n leaves, with n of the first
        parameter before those of the second.
    """
    self._sums = _find_sums(computation)
    self._others = [i for i, is_sum in enumerate(self._sums) if not is_sum]
    self._compute_others = (
      TensorFlowComputation(computation, results=self._others)
      if self._others
      else None
    )

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
    result = [
      # A sum of scalars would be no array.
      np.asarray(np.add(a, b, out=a if in_place else None)) if is_sum else None
      for is_sum, a, b in zip(self._sums, total, addend, strict=True)
    ]
    if self._compute_others is not None:
      others = self._compute_others(*total, *addend)
      for i, leaf in zip(self._others, others, strict=True):
        result[i] = leaf
    return result


def _find_sums(
  computation: tff.framework.ConcreteComputation,
) -> list[bool]:
  """Returns which of the n results only add parameters i and n + i."""
  graph, parameters, results = import_computation(computation)
  places = {name: i for i, name in enumerate(parameters)}

  def place(tensor: tf.Tensor) -> int | None:
    """Returns which parameter a tensor is, `None` if it is none."""
    return places.get(_source(tensor).name)

  def is_sum(i: int, tensor: tf.Tensor) -> bool:
    tensor = _source(tensor)
    if tensor.op.type != 'AddV2' or tensor.dtype not in _ADDED_TYPES:
      return False
    left, right = tensor.op.inputs
    return (
      left.shape.is_fully_defined()
      and left.shape == right.shape
      and {place(left), place(right)} == {i, i + len(results)}
    )

  return [
    is_sum(i, graph.get_tensor_by_name(name)) for i, name in enumerate(results)
  ]


def _source(tensor: tf.Tensor) -> tf.Tensor:
  """Returns the tensor that some identities pass on."""
  while tensor.op.type == 'Identity':
    tensor = tensor.op.inputs[0]
  return tensor
