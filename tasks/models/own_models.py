"""Keras models of a user's own, checked before anything is trained.

TFF calls the model and takes steps along the gradients of the loss. Whatever
else Keras does in `fit` is left out in silence, logits that are probabilities
train, badly, and Keras writes weights to a file that it does not write whole.
All of it is looked for in what the model does.
"""

import functools
import pathlib
import random
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tasks import named_functions
from tasks.checks import check

# Where the methods are that TFF replaces.
_KERAS = ('keras.', 'tf_keras.')
# The inputs that a model is looked at with: what stays between 0 and 1 for all
# of them is no logit.
_NUM_EXAMPLES = 8
_SCALES = (0.1, 1.0, 10.0, 1000.0)
# How far the sum of probabilities is from 1, by the type of each.
_TOLERANCES = {tf.bfloat16: 2e-2, tf.float16: 2e-3}


def create_own_model(
  function: Callable[..., tf.keras.Model],
  input_shape: Sequence[int],
  num_outputs: int,
  *,
  output_shape: Sequence[int] | None,
  gives_logits: bool = True,
  seed: int = 0,
  input_dtype: tf.DType = tf.float32,
) -> tf.keras.Model:
  """Builds a model of a user's own.

  Keras's initializers draw from `random`, whose state is set by `seed` while
  the model is built, and is as before afterwards. The model is checked outside
  of graphs alone.

  Args:
    function: Returns a new, uncompiled Keras model from the shape of one
      example and the size of its output. The model takes `x` as it is.
    input_shape: Shape of one example's `x`.
    num_outputs: The number of classes, or of the numbers in a row of `y`.
    output_shape: What the model has to give for one example; `None` for any, of
      a loss of a user's own.
    gives_logits: Whether the loss takes logits.
    seed: Decides the initial weights.
    input_dtype: The type of `x`.

  Raises:
    TypeError: If `function` returns something else.
    ValueError: If it fails with these arguments, or its model does not fit the
      data, or would not be trained or written whole.
  """
  name = named_functions.name_of(function)
  state = random.getstate()
  random.seed(seed)
  try:
    model = named_functions.make(
      *('model', tf.keras.Model, function), tuple(input_shape), num_outputs
    )
    if model.built and not tf.executing_eagerly():
      return model
    # The first call builds what has no weights yet.
    examples = tf.zeros([2, *input_shape], input_dtype)
    outputs = _call(functools.partial(model, training=False), examples, name)
  finally:
    random.setstate(state)
  if tf.executing_eagerly():
    spec = tf.TensorSpec([None, *input_shape], input_dtype)
    _check_output(outputs, output_shape, name)
    _check_is_trained_by_tff(model, spec, name)
    if gives_logits:
      _check_gives_logits(model, spec, name)
    _check_is_written_whole(model, name)
  return model


def save_weights(model: tf.keras.Model, path: pathlib.Path) -> None:
  """Writes the weights of a model to NAME.weights.h5, and reads them back.

  Raises:
    ValueError: If the file does not give each weight back.
  """
  given = model.get_weights()
  model.save_weights(path)
  # What the file does not give stays as it was: another number.
  model.set_weights([np.where(w == 0, 1, 0).astype(w.dtype) for w in given])
  model.load_weights(path)
  found = model.get_weights()
  model.set_weights(given)
  lost = [
    variable.name
    for variable, a, b in zip(model.weights, given, found, strict=True)
    if a.tobytes() != b.tobytes()
  ]
  if lost:
    raise ValueError(
      f'{path.name} has {len(given) - len(lost)} of {len(given)} weights of '
      f'the model, without {", ".join(lost)}: Keras looks for no layer in '
      'lists of lists, of tuples or in dictionaries. Keep each layer in an '
      'attribute or in a flat list.'
    )


def _call(function: Callable, x: Any, name: str) -> Any:
  """Calls a model with examples, or with their spec."""
  try:
    return function(x)
  except Exception as e:
    raise ValueError(
      f'`model` must take examples of {x.dtype.name}{list(x.shape[1:])}, found '
      f'that the model of {name} does not: {type(e).__name__}: {e}'
    ) from e


def _check_output(given: Any, output_shape: Any, name: str) -> None:
  """Raises unless a model gives what the loss takes, for 2 examples."""
  must = 'must have one output, but for a `TrainingProgram`'
  num_outputs = len(tf.nest.flatten(given))
  check('model', tf.is_tensor(given), must, f'{num_outputs} of {name}')
  found = list(given.shape)
  expected = [2, *(found[1:] if output_shape is None else output_shape)]
  must = f'must give the shape {expected} for 2 examples'
  check('model', found == expected, must, f'{found} of {name}')


def _check_is_trained_by_tff(
  model: tf.keras.Model, spec: tf.TensorSpec, name: str
) -> None:
  """Raises if TFF would leave out a part of the model's training."""
  for method in ('train_step', 'compute_loss', 'fit'):
    is_kerass = getattr(type(model), method).__module__.startswith(_KERAS)
    must = f'must not need its own `{method}`, which TFF never calls'
    check('model', is_kerass, must, f'one of {name}; `loss` takes your own')
  for variable in model.trainable_variables:
    constraint = getattr(variable, 'constraint', None)
    check(
      'model',
      constraint is None,
      'must not have constraints, which TFF does not apply: let the layer '
      'compute with, for example, `tf.nn.softplus(kernel)`',
      f'{type(constraint).__name__} for {variable.name} of {name}',
    )
  # TFF calls the model in a graph of its own, out of which such losses do not
  # get; those of weights are computed anew when they are asked for.
  trained = tf.function(lambda x: model(x, training=True))
  _call(trained.get_concrete_function, spec, name)
  check(
    'model',
    all(tf.is_tensor(x) and hasattr(x, 'numpy') for x in model.losses),
    'must not add losses of its activations (`activity_regularizer`, '
    '`add_loss`), which do not reach TFF, as regularizers of weights do',
    f'one of {name}',
  )


def _check_gives_logits(
  model: tf.keras.Model, spec: tf.TensorSpec, name: str
) -> None:
  """Raises if the model gives probabilities for inputs of all sizes."""
  rng = np.random.default_rng(0)
  shape = [_NUM_EXAMPLES, *spec.shape[1:]]
  largest = 255 if spec.dtype == tf.uint8 else 1
  inputs = (
    [scale * rng.normal(size=shape) for scale in _SCALES]
    if spec.dtype.is_floating
    else [np.zeros(shape), rng.integers(largest + 1, size=shape)]
  )
  outputs = []
  for x in inputs:
    try:
      outputs.append(model(tf.cast(x, spec.dtype), training=False))
    except (tf.errors.OpError, ValueError, TypeError):
      continue  # It takes others, such as tokens of a vocabulary.
  if not outputs:
    return
  given = np.concatenate([tf.cast(x, tf.float64).numpy() for x in outputs])
  # Those of a softmax by hand overflow for large inputs.
  given = given[np.isfinite(given).reshape(len(given), -1).all(axis=1)]
  tolerance = _TOLERANCES.get(outputs[-1].dtype, 1e-4)
  is_within = (given >= 0) & (given <= 1 + tolerance)
  sums_to_one = np.abs(given.sum(axis=-1) - 1) <= tolerance
  check(
    'model',
    not given.size
    or not is_within.all()
    or not (sums_to_one.all() or ((given > 0) & (given < 1)).any()),
    'must give logits, without a softmax or sigmoid at its end',
    f'probabilities of {name}: from 0 to 1 for inputs of all sizes',
  )


def _check_is_written_whole(model: tf.keras.Model, name: str) -> None:
  """Raises if a file of the model's weights would lack some."""
  with tempfile.TemporaryDirectory() as folder:
    try:
      save_weights(model, pathlib.Path(folder) / 'model.weights.h5')
    except (TypeError, ValueError) as e:
      raise ValueError(
        f'`model` must have weights that Keras can write, found of {name}: {e}'
      ) from e
