"""Keras models of a user's own, checked before anything is trained.

TFF calls the model and takes steps along the gradients of the loss of what it
gives. Whatever else Keras does in `fit` is left out in silence, and logits that
are probabilities train, badly. Both are looked for in what the model does.
"""

import random
import warnings
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from tasks.settings import named_functions

# What may scale its inputs, or take them as they are.
_TAKES_BYTES = (
  tf.keras.layers.Rescaling,
  tf.keras.layers.Normalization,
  tf.keras.layers.LayerNormalization,
  tf.keras.layers.GroupNormalization,
  tf.keras.layers.Embedding,
  tf.keras.layers.CategoryEncoding,
  # Functions and operations, of which it is not known.
  tf.keras.layers.Lambda,
)

# Where the methods are that TFF replaces.
_KERAS = ('keras.', 'tf_keras.')
# Of inputs that a model is looked at with, and how large they are: what stays
# between 0 and 1 for all of them is no logit.
_NUM_EXAMPLES = 8
_SCALES = (0.1, 1.0, 10.0, 1000.0)
# How far the sum of probabilities is from 1, by the type of each.
_TOLERANCES = {tf.bfloat16: 2e-2, tf.float16: 2e-3}

CreateModel = Callable[[tuple[int, ...], int], tf.keras.Model]


class ModelWarning(UserWarning):
  """The model may not be what was meant."""


def create_own_model(
  function: CreateModel,
  input_shape: Sequence[int],
  num_classes: int,
  *,
  label_shape: Sequence[int] = (),
  seed: int = 0,
  input_dtype: tf.DType = tf.float32,
) -> tf.keras.Model:
  """Builds a model of a user's own.

  Keras's initializers draw from `random`, whose state is set by `seed` while
  the model is built, and is as before afterwards.

  Args:
    function: Returns a new, uncompiled Keras model from the shape of one
      example and the number of classes. The model takes `x` as it is, and gives
      logits.
    input_shape: Shape of one example's `x`.
    num_classes: Number of classes; tokens of a sequence task.
    label_shape: Shape of one example's `y`: logits are [batch, *label_shape,
      classes].
    seed: Decides the initial weights.
    input_dtype: The type of `x`.

  Raises:
    TypeError: If `function` takes other arguments, or returns something else.
    ValueError: If it fails, or its model does not fit the data.
  """
  if isinstance(function, tf.keras.Model):
    raise TypeError(
      '`model` must be a function that returns a new Keras model, found a '
      f'model, {function.name!r}. Put what builds it into a function of '
      '(input_shape, num_classes).'
    )
  name = named_functions.name_of(function)
  state = random.getstate()
  random.seed(seed)
  try:
    model = named_functions.call(
      'model',
      function,
      '(input_shape, num_classes)',
      tuple(input_shape),
      num_classes,
    )
    if not isinstance(model, tf.keras.Model):
      raise TypeError(
        '`model` must be a function that returns a `tf.keras.Model`, found '
        f'that {name} returns {type(model).__name__}.'
      )
    if (
      not tf.executing_eagerly()
      and model.built
      and not all(tf.is_symbolic_tensor(v.handle) for v in model.variables)
    ):
      raise ValueError(
        '`model` must be a function that builds a new model each time, found '
        f'that {name} returns one that was built before.'
      )
    # The first call builds what has no weights yet.
    try:
      logits = model(tf.zeros([2, *input_shape], input_dtype), training=False)
    except Exception as e:
      raise ValueError(
        '`model` must take examples of '
        f'{tf.as_dtype(input_dtype).name}{list(input_shape)}, found that the '
        f'model of {name} does not: {type(e).__name__}: {e}'
      ) from e
  finally:
    random.setstate(state)
  _warn_of_bytes(model, tf.as_dtype(input_dtype), name)
  if isinstance(logits, (list, tuple, dict)):
    raise ValueError(
      f'`model` must have one output, found {len(logits)} of {name}: a model '
      'with several is trained by a `TrainingProgram`.'
    )
  expected = [2, *label_shape, num_classes]
  found = list(getattr(logits, 'shape', ()))
  if found != expected:
    raise ValueError(
      f'`model` must give logits {expected} for 2 examples, found {found} of '
      f'{name}.{_rows_hint(label_shape, num_classes)}'
    )
  _check_is_trained_by_tff(model, name)
  if tf.executing_eagerly():
    input_spec = tf.TensorSpec([None, *input_shape], input_dtype)
    _check_losses(model, input_spec, name)
    _check_gives_logits(model, input_spec, name)
  return model


def _rows_hint(label_shape: Sequence[int], num_classes: int) -> str:
  if not label_shape:
    return ''
  if num_classes > 2:
    return ' `y` has a row of labels for each example.'
  return (
    ' `y` has a row of labels, 0 or 1, for each example. If they say which of '
    'several classes it has, that takes a program of your own: docs/recipes.md.'
  )


def _warn_of_bytes(model: tf.keras.Model, dtype: tf.DType, name: str) -> None:
  """Warns if a model of Keras's layers alone trains on numbers up to 255."""
  layers = [x for x in model.submodules if isinstance(x, tf.keras.layers.Layer)]
  if (
    dtype == tf.uint8
    and all(type(layer).__module__.startswith('keras') for layer in layers)
    and not any(
      isinstance(layer, _TAKES_BYTES) or 'OpLambda' in type(layer).__name__
      for layer in layers
    )
    and type(model).__module__.startswith('keras')
  ):
    warnings.warn(
      '`model` should scale bytes, which are 0 to 255, found that no layer of '
      f'the model of {name} does: let it begin with '
      '`tf.keras.layers.Rescaling(1 / 255)`.',
      ModelWarning,
      stacklevel=2,
    )


def _check_is_trained_by_tff(model: tf.keras.Model, name: str) -> None:
  """Raises if a part of the model would be left out."""
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


def _check_losses(
  model: tf.keras.Model, input_spec: tf.TensorSpec, name: str
) -> None:
  """Raises if the model adds losses that depend on its inputs."""
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


def _check_gives_logits(
  model: tf.keras.Model, input_spec: tf.TensorSpec, name: str
) -> None:
  """Raises if the model gives probabilities for some inputs of all sizes."""
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
