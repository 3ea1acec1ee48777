"""The floating-point type in which clients compute their gradients."""

import pathlib
import warnings

import tensorflow as tf
import tensorflow_federated as tff

from tff_clipping import argument_checks
from tff_clipping.learning import (
  keras_classes,
  model_checks,
  untrained_variables,
)
from tff_clipping.learning.untrained_variables import ModelFn

COMPUTE_DTYPES = ('float32', 'bfloat16')

# What Linux calls the instructions that multiply bfloat16 matrices: those of
# x86, with vectors and with tiles, and those of Arm.
_INSTRUCTIONS = ('avx512_bf16', 'amx_bf16', 'bf16')


class SlowDtypeWarning(RuntimeWarning):
  """The processor has no instructions for this type, and is slow."""


@keras_classes.kept
def with_compute_dtype(model_fn: ModelFn, compute_dtype: str) -> ModelFn:
  """Returns a model whose Keras layers compute in a type.

  For the local steps of `build_fed_avg`, or of any other learning process:

    build_fed_avg(with_compute_dtype(model_fn, 'bfloat16'), ...)

  With 'bfloat16', layers multiply numbers of 8 significant bits and add them up
  in `float32`. The weights are `float32`, and so are gradients, updates and the
  clip: a guarantee of privacy does not change, since clip and noise come after.
  The loss is computed in the type of the model's output: give the last layer
  `dtype='float32'`.

  Args:
    model_fn: Returns a new model. It must make its Keras layers when it is
      called, since a layer gets its type when it is made.
    compute_dtype: 'float32', which changes nothing, or 'bfloat16'.

  Returns:
    A function that returns a new model.

  Raises:
    TypeError: If `model_fn` is not a function, or `compute_dtype` no string.
    ValueError: If it is another type, or no layer of the model computes in it.

  Warns:
    SlowDtypeWarning: If the processor has no instructions for bfloat16: it is
      slower than `float32` there.

  Source: `tf.keras.mixed_precision`, the policy 'mixed_bfloat16'; Kalamkar et
    al. 2019 (arXiv 1905.12322).
  """
  model_checks.check_is_function(model_fn)
  argument_checks.check_choice('compute_dtype', compute_dtype, COMPUTE_DTYPES)
  if compute_dtype == 'float32':
    return model_fn

  def model_in_dtype() -> tff.learning.models.VariableModel:
    mixed_precision = tf.keras.mixed_precision
    before = mixed_precision.global_policy()
    mixed_precision.set_global_policy(f'mixed_{compute_dtype}')
    try:
      return model_fn()
    finally:
      mixed_precision.set_global_policy(before)

  if not _computes_in(model_in_dtype, tf.bfloat16):
    raise ValueError(
      '`model_fn` must make Keras layers that follow the policy of '
      '`tf.keras.mixed_precision`, found a model in which nothing is computed '
      f'in {compute_dtype}.'
    )
  if not has_instructions():
    warnings.warn(
      f'`compute_dtype` {compute_dtype} is slower than float32 on this '
      f'processor, which has none of {", ".join(_INSTRUCTIONS)}.',
      SlowDtypeWarning,
      stacklevel=2,
    )
  return model_in_dtype


def has_instructions() -> bool:
  """Whether the processor multiplies bfloat16; True where nobody can say."""
  try:
    lines = pathlib.Path('/proc/cpuinfo').read_text().splitlines()
  except OSError:
    return True
  flags = {
    flag
    for line in lines
    if line.startswith(('flags', 'Features'))
    for flag in line.split()
  }
  return not flags or not flags.isdisjoint(_INSTRUCTIONS)


def _computes_in(model_fn: ModelFn, dtype: tf.DType) -> bool:
  """Whether some operation of a model's forward pass gives a type."""
  with tf.Graph().as_default() as graph:
    untrained_variables.trace_loss(model_fn())
  definition = graph.as_graph_def()
  nodes = [
    *definition.node,
    *(node for f in definition.library.function for node in f.node_def),
  ]
  return any(
    attribute.type == dtype.as_datatype_enum
    for node in nodes
    for attribute in node.attr.values()
  )
