"""What TFF would leave out of a Keras model, or train to another end.

TFF calls the model and takes steps along the gradients of the loss of what it
gives. Whatever else Keras does in `fit` is left out in silence, and logits that
are probabilities train, badly. Both are looked for in what the model does.
"""

import numpy as np
import tensorflow as tf

# Where the methods are that TFF replaces.
_KERAS = ('keras.', 'tf_keras.')
# Of inputs that a model is looked at with, and how large they are: what stays
# between 0 and 1 for all of them is no logit.
_NUM_EXAMPLES = 8
_SCALES = (0.1, 1.0, 10.0, 1000.0)
# How far the sum of probabilities is from 1, by the type of each.
_TOLERANCES = {tf.bfloat16: 2e-2, tf.float16: 2e-3}


def check_is_trained_by_tff(model: tf.keras.Model, name: str) -> None:
  """Raises if a part of the model would be left out.

  Args:
    model: A model that was built.
    name: What made it.

  Raises:
    ValueError: If there is such a part.
  """
  # TFF sets the loss and the optimizer.
  if getattr(model, 'optimizer', None) is not None:
    raise ValueError(
      f'`model` must not be compiled, found that {name} compiles it: the loss '
      'is the cross-entropy of its logits, and the steps are of '
      '`client_learning_rate`.'
    )
  if not model.trainable_variables:
    raise ValueError(
      f'`model` must have trainable weights, found none of {name}.'
    )
  for method in ('train_step', 'compute_loss', 'fit'):
    if not getattr(type(model), method).__module__.startswith(_KERAS):
      raise ValueError(
        f'`model` must not need its own `{method}`, which TFF never calls, '
        f'found one of {name}: a loss of your own is trained by a '
        '`TrainingProgram`.'
      )
  for variable in model.trainable_variables:
    if getattr(variable, 'constraint', None) is not None:
      raise ValueError(
        '`model` must not have constraints, which TFF does not apply, found '
        f'{type(variable.constraint).__name__} for {variable.name} of {name}: '
        'let the layer compute with, for example, `tf.nn.softplus(kernel)`.'
      )


def check_losses(
  model: tf.keras.Model, input_spec: tf.TensorSpec, name: str
) -> None:
  """Raises if the model adds losses that depend on its inputs.

  Args:
    model: A model that was called, outside of a graph.
    input_spec: The spec of a batch.
    name: What made it.

  Raises:
    ValueError: If it does.
  """
  # TFF calls the model in a graph of its own, out of which such losses do not
  # get; those of weights are computed anew when they are asked for.
  tf.function(lambda x: model(x, training=True)).get_concrete_function(
    input_spec
  )
  if not all(tf.is_tensor(x) and hasattr(x, 'numpy') for x in model.losses):
    raise ValueError(
      '`model` must not add losses of its activations (`activity_regularizer`, '
      f'`add_loss`), which do not reach TFF, found one of {name}. Regularizers '
      'of weights do.'
    )


def check_gives_logits(
  model: tf.keras.Model, input_spec: tf.TensorSpec, name: str
) -> None:
  """Raises if the model gives probabilities for some inputs of all sizes.

  Args:
    model: A model that was called, outside of a graph.
    input_spec: The spec of a batch.
    name: What made it.

  Raises:
    ValueError: If it does.
  """
  outputs = []
  for inputs in _some_inputs(input_spec):
    try:
      found = model(inputs, training=False)
    except (tf.errors.OpError, ValueError, TypeError):
      continue  # It takes others, such as tokens of a vocabulary.
    outputs.append(tf.cast(found, tf.float64).numpy())
  if not outputs:
    return
  given = np.concatenate(outputs)
  # Those of a softmax by hand overflow for large inputs.
  given = given[np.isfinite(given).reshape(len(given), -1).all(axis=1)]
  tolerance = _TOLERANCES.get(found.dtype, 1e-4)
  is_within = (given >= 0) & (given <= 1 + tolerance)
  sums_to_one = np.abs(given.sum(axis=-1) - 1) <= tolerance
  if (
    given.size
    and is_within.all()
    and (sums_to_one.all() or ((given > 0) & (given < 1)).any())
  ):
    raise ValueError(
      f'`model` must give logits, found probabilities of {name}: its outputs '
      'are from 0 to 1 for inputs of all sizes. Leave out the softmax or '
      'sigmoid at its end.'
    )


def _some_inputs(spec: tf.TensorSpec):
  rng = np.random.default_rng(0)
  shape = [_NUM_EXAMPLES, *spec.shape[1:]]
  if spec.dtype.is_floating:
    for scale in _SCALES:
      yield tf.cast(scale * rng.normal(size=shape), spec.dtype)
    return
  yield tf.zeros(shape, spec.dtype)
  largest = 255 if spec.dtype == tf.uint8 else 1
  yield tf.cast(rng.integers(0, largest, shape, endpoint=True), spec.dtype)
