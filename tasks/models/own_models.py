"""Keras models of a user's own, checked before anything is trained.

TFF calls the model and takes steps along the gradients of the loss of what it
gives. Whatever else Keras does in `fit` is left out in silence, and logits that
are probabilities train, badly. Both are looked for in what the model does.
"""

import random
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tasks import named_functions

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

CreateModel = Callable[..., tf.keras.Model]


class ModelWarning(UserWarning):
  """The model may not be what was meant."""


class Output(NamedTuple):
  """What an output of a model has to be.

  Attributes:
    size: What the function of the model gets: the number of classes, or of the
      numbers in a row of `y`.
    shape: That of one example; `None` for any, of a loss of a user's own.
    is_logits: Whether it is of logits.
  """

  size: int
  shape: tuple[int, ...] | None
  is_logits: bool = True


def create_own_model(
  function: CreateModel,
  input_shape: Any,
  *,
  outputs: Output | Mapping[str, Output],
  seed: int = 0,
  input_dtype: Any = tf.float32,
) -> tf.keras.Model:
  """Builds a model of a user's own.

  Keras's initializers draw from `random`, whose state is set by `seed` while
  the model is built, and is as before afterwards.

  Args:
    function: Returns a new, uncompiled Keras model from the shape of one
      example and the size of its output, dictionaries by name of several. The
      model takes `x` as it is.
    input_shape: Shape of one example's `x`; by name of several inputs.
    outputs: What the model has to give; by name of several.
    seed: Decides the initial weights.
    input_dtype: The type of `x`; by name of several inputs.

  Raises:
    TypeError: If `function` takes other arguments, or returns something else.
    ValueError: If it fails, or its model does not fit the data.
  """
  if isinstance(function, tf.keras.Model):
    raise TypeError(
      '`model` must be a function that returns a new Keras model, found a '
      f'model, {function.name!r}. Put what builds it into a function of '
      '(input_shape, num_outputs).'
    )
  name = named_functions.name_of(function)
  inputs = _input_spec(input_shape, input_dtype)
  state = random.getstate()
  random.seed(seed)
  try:
    model = named_functions.call(
      'model',
      function,
      '(input_shape, num_outputs)',
      _map(lambda spec: tuple(spec.shape[1:]), inputs),
      _map(lambda output: output.size, outputs),
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
      given = model(
        _map(lambda spec: tf.zeros([2, *spec.shape[1:]], spec.dtype), inputs),
        training=False,
      )
    except Exception as e:
      raise ValueError(
        f'`model` must take examples of {_describe(inputs)}, found that the '
        f'model of {name} does not: {type(e).__name__}: {e}'
      ) from e
  finally:
    random.setstate(state)
  _warn_of_bytes(model, inputs, name)
  _check_outputs(given, outputs, name)
  _check_is_trained_by_tff(model, name)
  if tf.executing_eagerly():
    _check_losses(model, inputs, name)
    _check_gives_logits(model, inputs, outputs, name)
  return model


def _map(function: Callable[[Any], Any], given: Any) -> Any:
  """Returns what a function makes of the only part, or of each by name."""
  if not isinstance(given, Mapping):
    return function(given)
  return {name: function(part) for name, part in given.items()}


def _input_spec(input_shape: Any, input_dtype: Any) -> Any:
  """Returns the specs of batches; by name of several inputs."""
  if not isinstance(input_shape, Mapping):
    return tf.TensorSpec([None, *input_shape], tf.as_dtype(input_dtype))
  return {
    name: tf.TensorSpec([None, *shape], tf.as_dtype(input_dtype[name]))
    for name, shape in input_shape.items()
  }


def _describe(inputs: Any) -> str:
  if not isinstance(inputs, Mapping):
    return f'{inputs.dtype.name}{list(inputs.shape[1:])}'
  return 'a dictionary of ' + ', '.join(
    f'{name} {_describe(spec)}' for name, spec in inputs.items()
  )


def _check_outputs(
  given: Any, outputs: Output | Mapping[str, Output], name: str
) -> None:
  """Raises unless a model gives what the loss takes, for 2 examples."""
  if isinstance(outputs, Mapping):
    if not isinstance(given, Mapping) or set(given) != set(outputs):
      found = (
        f'{", ".join(map(str, given))}'
        if isinstance(given, Mapping)
        else type(given).__name__
      )
      raise ValueError(
        '`model` must give a dictionary of the outputs '
        f'{", ".join(outputs)}, found {found} of {name}.'
      )
    for key, output in outputs.items():
      _check_shape(given[key], output, f'{name}, output {key}')
    return
  if isinstance(given, (list, tuple, dict)):
    raise ValueError(
      f'`model` must have one output, found {len(given)} of {name}: of '
      'several, the data have y_NAME for each.'
    )
  _check_shape(given, outputs, name)


def _check_shape(given: Any, output: Output, name: str) -> None:
  found = list(getattr(given, 'shape', ()))
  if output.shape is None:
    if found[:1] != [2]:
      raise ValueError(
        '`model` must give an output for each example, found the shape '
        f'{found} for 2 of {name}.'
      )
    return
  expected = [2, *output.shape]
  if found == expected:
    return
  kind = 'logits' if output.is_logits else 'numbers'
  hint = ''
  if output.shape == (*found[1:], 2):
    # As many as labels in a row of 0 and 1.
    hint = (
      ' `y` has a row of labels, 0 or 1, for each example. If they say which '
      'of several classes it has, give `loss` binary_crossentropy.'
    )
  elif output.is_logits and len(output.shape) > 1:
    hint = ' `y` has a row of labels for each example.'
  raise ValueError(
    f'`model` must give {kind} {expected} for 2 examples, found {found} of '
    f'{name}.{hint}'
  )


def _warn_of_bytes(model: tf.keras.Model, inputs: Any, name: str) -> None:
  """Warns if a model of Keras's layers alone trains on numbers up to 255."""
  layers = [x for x in model.submodules if isinstance(x, tf.keras.layers.Layer)]
  if (
    any(spec.dtype == tf.uint8 for spec in tf.nest.flatten(inputs))
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
      f'`model` must not be compiled, found that {name} compiles it: `loss` is '
      'a setting of the run, and the steps are of `client_learning_rate`.'
    )
  if not model.trainable_variables:
    raise ValueError(
      f'`model` must have trainable weights, found none of {name}.'
    )
  for method in ('train_step', 'compute_loss', 'fit'):
    if not getattr(type(model), method).__module__.startswith(_KERAS):
      raise ValueError(
        f'`model` must not need its own `{method}`, which TFF never calls, '
        f'found one of {name}: a loss of your own is `loss`, FILE.py:function.'
      )
  for variable in model.trainable_variables:
    if getattr(variable, 'constraint', None) is not None:
      raise ValueError(
        '`model` must not have constraints, which TFF does not apply, found '
        f'{type(variable.constraint).__name__} for {variable.name} of {name}: '
        'let the layer compute with, for example, `tf.nn.softplus(kernel)`.'
      )


def _check_losses(model: tf.keras.Model, input_spec: Any, name: str) -> None:
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
  model: tf.keras.Model,
  input_spec: Any,
  outputs: Output | Mapping[str, Output],
  name: str,
) -> None:
  """Raises if the model gives probabilities for some inputs of all sizes."""
  given = []
  for inputs in _some_inputs(input_spec):
    try:
      given.append(model(inputs, training=False))
    except (tf.errors.OpError, ValueError, TypeError):
      continue  # It takes others, such as tokens of a vocabulary.
  if not given:
    return
  if not isinstance(outputs, Mapping):
    if outputs.is_logits:
      _check_are_logits(given, name)
    return
  for key, output in outputs.items():
    if output.is_logits:
      _check_are_logits([each[key] for each in given], f'{name}, output {key}')


def _check_are_logits(outputs: Sequence[tf.Tensor], name: str) -> None:
  """Raises if all of a model's outputs are probabilities."""
  given = np.concatenate([tf.cast(x, tf.float64).numpy() for x in outputs])
  # Those of a softmax by hand overflow for large inputs.
  given = given[np.isfinite(given).reshape(len(given), -1).all(axis=1)]
  tolerance = _TOLERANCES.get(outputs[-1].dtype, 1e-4)
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


def _some_inputs(input_spec: Any) -> Iterator[Any]:
  """Yields batches of all sizes; those of several inputs go together."""
  rng = np.random.default_rng(0)
  specs = tf.nest.flatten(input_spec)
  is_floating = any(spec.dtype.is_floating for spec in specs)
  for scale in _SCALES if is_floating else (0, 1):
    yield tf.nest.pack_sequence_as(
      input_spec, [_some_input(spec, scale, rng) for spec in specs]
    )


def _some_input(
  spec: tf.TensorSpec, scale: float, rng: np.random.Generator
) -> tf.Tensor:
  shape = [_NUM_EXAMPLES, *spec.shape[1:]]
  if spec.dtype.is_floating:
    return tf.cast(scale * rng.normal(size=shape), spec.dtype)
  if not scale:
    return tf.zeros(shape, spec.dtype)
  largest = 255 if spec.dtype == tf.uint8 else 1
  return tf.cast(rng.integers(0, largest, shape, endpoint=True), spec.dtype)
