"""Keras models of a user's own, checked before anything is trained."""

import random
import warnings
from collections.abc import Callable, Sequence

import tensorflow as tf

from tasks.models import own_model_checks
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
  own_model_checks.check_is_trained_by_tff(model, name)
  if tf.executing_eagerly():
    input_spec = tf.TensorSpec([None, *input_shape], input_dtype)
    own_model_checks.check_losses(model, input_spec, name)
    own_model_checks.check_gives_logits(model, input_spec, name)
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
