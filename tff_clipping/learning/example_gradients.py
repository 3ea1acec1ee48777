"""The sum of the gradients of single examples, each of them clipped by itself.

The loss of an example is that of a batch of it alone, whatever the model does
with a batch: `tf.vectorized_map` computes it for all examples at once. Where
every trainable variable is the matrix of one product [M, a] x [a, b] of a row
for each example, or is added to one such product, as in dense layers, nothing
as large as M models is needed: with the rows a_j of the inputs and d_j of the
gradients of the outputs, the gradient of an example is a_j d_j^T, which has the
norm ||a_j|| ||d_j||, and the sum is A^T D (Goodfellow 2015, "Efficient
per-example gradient computations", arXiv 1510.01799). All other models take M
gradients, by `tf.vectorized_map` too.

Plain TensorFlow functions, without TFF.
"""

import contextlib
from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple

import tensorflow as tf
import tensorflow_federated as tff

# What is clipped is shorter than C by this, more than what norms in `float64`
# are off by.
_SLACK = 1e-6


class _Use(NamedTuple):
  """Where a trainable variable is used.

  Attributes:
    inputs: What is multiplied with it, [M, a]; `None` if it is added.
    output: Of the product, or of the sum, [M, ..., b], with a row for each
      example.
  """

  inputs: tf.Tensor | None
  output: tf.Tensor


def clipped_sum(
  model: tff.learning.models.VariableModel,
  batch: Any,
  is_used: tf.Tensor,
  clipping_norm: float,
) -> list[tf.Tensor]:
  """Returns sum_j clip(g_j, C) over the examples of a batch that are used.

  g_j is the gradient of the loss of example j alone, and clip(g, C) is
  g min(1, C / ||g||), where the norm is that of all variables together. A
  gradient with a NaN or an infinity counts as zero.

  Guarantee: what an example adds has a norm of at most C, in real numbers, and
  sums are in `float64`. It does not depend on the other examples, but for the
  last bits of what `float32` computes of a batch of M rows.

  Args:
    model: Its variables hold the point.
    batch: M examples, as the model takes them; M is known.
    is_used: Which of them count, [M].
    clipping_norm: C, positive.

  Returns:
    `float64` tensors of the shapes of the trainable variables.
  """
  losses = tf.vectorized_map(lambda one: _loss(model, one), batch)
  uses = _find_dense_uses(
    losses, model.trainable_variables, tf.nest.flatten(batch), is_used.shape[0]
  )
  if uses is None:
    return _sum_of_gradients(model, batch, is_used, clipping_norm)
  return _sum_of_products(losses, uses, is_used, clipping_norm)


def _loss(model: tff.learning.models.VariableModel, example: Any) -> tf.Tensor:
  alone = tf.nest.map_structure(lambda t: t[tf.newaxis], example)
  with _inlined():
    return model.forward_pass(alone, training=True).loss


@contextlib.contextmanager
def _inlined() -> Iterator[None]:
  """Traces functions as what they are made of, in place of one operation.

  Nobody sees the inside of an operation; and metrics, which a function would
  compute too, are left out where the loss does not depend on them.
  """
  was_set = tf.config.functions_run_eagerly()
  tf.config.run_functions_eagerly(True)
  try:
    yield
  finally:
    tf.config.run_functions_eagerly(was_set)


def _sum_of_products(
  losses: tf.Tensor,
  uses: Sequence[_Use],
  is_used: tf.Tensor,
  clipping_norm: float,
) -> list[tf.Tensor]:
  """Returns the sum where gradients are products of two rows."""
  gradients = tf.gradients(
    tf.reduce_sum(losses),
    [use.output for use in uses],
    unconnected_gradients=tf.UnconnectedGradients.ZERO,
  )
  outputs = [
    tf.reshape(tf.cast(gradient, tf.float64), [-1, gradient.shape[-1]])
    for gradient in gradients
  ]
  inputs = [
    None if use.inputs is None else tf.cast(use.inputs, tf.float64)
    for use in uses
  ]
  squares = tf.add_n(
    [
      _squares(d) if a is None else _squares(a) * _squares(d)
      for a, d in zip(inputs, outputs, strict=True)
    ]
  )
  scale, is_kept = _scale(squares, is_used, clipping_norm)

  def keep(rows):
    return tf.where(is_kept[:, tf.newaxis], rows, tf.zeros_like(rows))

  sums = []
  for a, d in zip(inputs, outputs, strict=True):
    clipped = keep(d) * scale[:, tf.newaxis]
    sums.append(
      tf.reduce_sum(clipped, axis=0)
      if a is None
      else tf.matmul(keep(a), clipped, transpose_a=True)
    )
  return sums


def _sum_of_gradients(
  model: tff.learning.models.VariableModel,
  batch: Any,
  is_used: tf.Tensor,
  clipping_norm: float,
) -> list[tf.Tensor]:
  """Returns the sum of M gradients, which are all there at once."""

  def differentiate(example):
    with tf.GradientTape() as tape:
      loss = _loss(model, example)
    gradients = tape.gradient(
      loss,
      model.trainable_variables,
      unconnected_gradients=tf.UnconnectedGradients.ZERO,
    )
    return [tf.convert_to_tensor(gradient) for gradient in gradients]

  # Rows, so that all variables are treated alike.
  gradients = [
    tf.reshape(tf.cast(g, tf.float64), [is_used.shape[0], -1])
    for g in tf.vectorized_map(differentiate, batch)
  ]
  squares = tf.add_n([_squares(g) for g in gradients])
  scale, is_kept = _scale(squares, is_used, clipping_norm)
  return [
    tf.reshape(
      tf.linalg.matvec(
        tf.where(is_kept[:, tf.newaxis], g, tf.zeros_like(g)),
        scale,
        transpose_a=True,
      ),
      variable.shape,
    )
    for g, variable in zip(gradients, model.trainable_variables, strict=True)
  ]


def _squares(rows: tf.Tensor) -> tf.Tensor:
  return tf.reduce_sum(tf.square(rows), axis=1)


def _scale(
  squares: tf.Tensor, is_used: tf.Tensor, clipping_norm: float
) -> tuple[tf.Tensor, tf.Tensor]:
  """Returns what each gradient is multiplied with, and which ones count."""
  limit = tf.constant(clipping_norm * (1 - _SLACK), tf.float64)
  is_kept = is_used & tf.math.is_finite(squares)
  squares = tf.where(is_kept, squares, tf.zeros_like(squares))
  # Of a gradient of zero the quotient is infinite.
  scale = tf.minimum(tf.constant(1.0, tf.float64), limit / tf.sqrt(squares))
  return tf.where(is_kept, scale, tf.zeros_like(scale)), is_kept


def _find_dense_uses(
  losses: tf.Tensor,
  variables: Sequence[tf.Variable],
  features: Sequence[tf.Tensor],
  num_examples: int,
) -> list[_Use] | None:
  """Returns the one use of each variable; `None` if one has another.

  Seen in the graph of the losses, with a row for each example.

  Args:
    losses: [M].
    variables: The trainable variables.
    features: The tensors of the batch.
    num_examples: M.
  """
  needed = set(_ancestors(losses.op))
  # In the order of the graph, where what is read comes before its use.
  operations = [o for o in losses.graph.get_operations() if o in needed]
  captured = {id(outer): inner for outer, inner in _captures()}
  # What does not depend on the examples may have M rows that are none of them.
  of_examples = {captured.get(id(f), f).op for f in features}
  for operation in operations:
    if any(tensor.op in of_examples for tensor in operation.inputs):
      of_examples.add(operation)
  uses = []
  for variable in variables:
    handle = captured.get(id(variable.handle), variable.handle)
    values = {handle.ref()}
    consumers = []
    for operation in operations:
      places = [i for i, t in enumerate(operation.inputs) if t.ref() in values]
      if not places:
        continue
      if operation.type in ('ReadVariableOp', 'Identity'):
        values.add(operation.outputs[0].ref())
      else:
        consumers.append((operation, places))
    use = _as_use(consumers, of_examples, num_examples)
    if use is None:
      return None
    uses.append(use)
  return uses


def _as_use(
  consumers: Sequence[tuple[tf.Operation, Sequence[int]]],
  of_examples: Collection[tf.Operation],
  num_examples: int,
) -> _Use | None:
  """Returns the use of a variable that is consumed once, as a dense layer's."""
  if len(consumers) != 1 or consumers[0][1] != [1]:
    return None
  operation = consumers[0][0]
  first, output = operation.inputs[0], operation.outputs[0]
  if first.op not in of_examples:
    return None
  for rows in (first, output):
    shape = rows.shape
    if not shape.is_fully_defined() or shape.rank < 2:
      return None
    if shape[0] != num_examples or shape[:-1].num_elements() != num_examples:
      return None
  if operation.type == 'BiasAdd':
    return _Use(None, output)
  if operation.type == 'MatMul' and not any(
    operation.get_attr(name) for name in ('transpose_a', 'transpose_b')
  ):
    return _Use(first, output)
  return None


def _ancestors(operation: tf.Operation) -> Iterator[tf.Operation]:
  """Yields an operation, and all that its value is computed from."""
  waiting, seen = [operation], {operation}
  while waiting:
    found = waiting.pop()
    yield found
    for tensor in found.inputs:
      if tensor.op not in seen:
        seen.add(tensor.op)
        waiting.append(tensor.op)


def _captures() -> Sequence[tuple[tf.Tensor, tf.Tensor]]:
  """Returns what a function, such as the body of a loop, has from outside."""
  return getattr(tf.compat.v1.get_default_graph(), 'captures', ())
