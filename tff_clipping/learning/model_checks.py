"""Checks of a model before it is trained."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff
import tree

from tff_clipping.learning import untrained_variables


def check_model(model_fn: Any, client_store: Any) -> None:
  """Refuses a model that cannot be averaged or does not fit the store.

  Args:
    model_fn: Returns a new `tff.learning.models.VariableModel`.
    client_store: The store, or `None` for data sets.

  Raises:
    TypeError: If `model_fn` is not a function that returns such a model.
    ValueError: If the model has no trainable variables, variables that
      `model_fn` did not make or that it does not list, or non-trainable ones
      that a step changes; or if the store's examples are not what it takes, or,
      without a store, its examples have no fixed shape.
  """
  check_is_function(model_fn)
  created: list[tf.Variable] = []

  def create(next_creator, **settings):
    created.append(next_creator(**settings))
    return created[-1]

  with tf.Graph().as_default() as graph, tf.variable_creator_scope(create):
    model = model_fn()
  if not isinstance(model, tff.learning.models.VariableModel):
    raise TypeError(
      '`model_fn` must return a `tff.learning.models.VariableModel`, found '
      f'{type(model)}; wrap a Keras model with '
      '`tff.learning.models.from_keras_model`, and a functional one with '
      '`tff.learning.models.model_from_functional`.'
    )
  if any(
    getattr(v.handle, 'graph', None) is not graph
    for v in (*model.trainable_variables, *model.non_trainable_variables)
  ):
    raise ValueError(
      '`model_fn` must make its variables itself, found a model with variables '
      'from outside: build the Keras model inside of the function.'
    )
  if not model.trainable_variables:
    raise ValueError(
      '`model_fn` must return a model with trainable variables, found none.'
    )
  if client_store is None:
    _check_shapes(model.input_spec)
  else:
    _check_store(model.input_spec, client_store)
  with graph.as_default():
    names = untrained_variables.not_listed(model, created)
  if names:
    raise ValueError(
      '`model_fn` must return a model that lists all of its variables, found '
      f'one whose loss needs {_enumerate(names)}, which it does not list: '
      'nobody would train them, and each computation would draw them anew. '
      'Keras sees the variables of layers, which `add_weight` makes, and not '
      'those of a `tf.Module`.'
    )
  names = untrained_variables.changed_by_a_step(model_fn)
  if names:
    raise ValueError(
      '`model_fn` must return a model whose steps change nothing but its '
      'trainable variables, found one whose steps change '
      f"{_enumerate(names)}. They are no part of a client's update: nothing "
      'would clip, noise or average what changes in training. Use '
      '`tf.keras.layers.GroupNormalization(groups=2)` in place of batch '
      'normalization. To freeze a layer set its `trainable` to False; batch '
      'normalization then keeps its statistics.'
    )


def _check_store(input_spec: Any, client_store: Any) -> None:
  """Refuses a store whose examples are not what the model takes."""
  if not hasattr(client_store, 'element_spec'):
    raise TypeError(
      '`client_store` must be a `ClientStore`, found '
      f'{type(client_store).__name__}; `write_client_store` makes one.'
    )
  _check_names(input_spec, client_store.element_spec)
  of_model = tf.nest.flatten(input_spec)
  of_store = tf.nest.flatten(client_store.element_spec)
  names = _names(input_spec)
  for place, (expected, found) in enumerate(
    zip(of_model, of_store, strict=True)
  ):
    shape = expected.shape[1:]
    if expected.dtype != found.dtype or not shape.is_compatible_with(
      found.shape
    ):
      raise ValueError(
        '`client_store` must hold the examples that the model takes, found '
        f'{names[place]}, tensor {place + 1} of {len(names)}, as '
        f'{found.dtype.name}{list(found.shape)} for a model of '
        f'{expected.dtype.name}{list(shape)} (its `input_spec` less the first '
        'dimension, which is that of the batch).'
      )


def check_is_function(model_fn: Any) -> None:
  """Refuses a model in place of a function that returns one.

  Args:
    model_fn: What the user passed.

  Raises:
    TypeError: If it is not a function.
  """
  if isinstance(model_fn, tff.learning.models.FunctionalModel):
    raise TypeError(
      '`model_fn` must be a function that returns a new '
      '`tff.learning.models.VariableModel`, found a `FunctionalModel`: give '
      '`lambda: tff.learning.models.model_from_functional(model)`.'
    )
  # A Keras model is callable too.
  if isinstance(model_fn, tf.keras.Model) or not callable(model_fn):
    raise TypeError(
      '`model_fn` must be a function that returns a '
      f'new `tff.learning.models.VariableModel`, found {model_fn!r}.'
    )


def _enumerate(names: Sequence[str]) -> str:
  more = f' and {len(names) - 3} more' if len(names) > 3 else ''
  return ', '.join(names[:3]) + more


def _check_shapes(input_spec: Any) -> None:
  """Refuses examples whose shapes differ, which cannot be put together."""
  for spec in tf.nest.flatten(input_spec):
    if spec.shape[1:].is_fully_defined():
      continue
    # Batches of any shape are dense ones: TFF has no type for ragged tensors.
    other = (
      "pad them, or take TFF's `build_unweighted_fed_avg`, whose data sets may "
      'have batches of any shape'
      if isinstance(spec, tf.TensorSpec)
      else 'pad them, as `RaggedTensor.to_tensor(shape=[None, length])` does; '
      "TFF's own processes take no ragged tensors either"
    )
    raise ValueError(
      '`model_fn` must return a model of examples of a fixed shape, found '
      f'{spec}: {other}.'
    )


def _check_names(input_spec: Any, element_spec: Any) -> None:
  """Refuses a store whose features the model would take for other ones.

  Both are flattened, which puts dictionaries in the order of their names:
  tensors of one type and shape could change places without an error.
  """
  expected, found = _names(input_spec), _names(element_spec)
  if expected != found:
    raise ValueError(
      '`client_store` must have the features of the `input_spec` of the model, '
      'with the same names, `x` and `y` for a pair, and in their order, found '
      f'{", ".join(found)} for a model of {", ".join(expected)}. The '
      '`preprocess` of a store can name them anew.'
    )


def _names(spec: Any) -> list[str]:
  """The names of the tensors of a structure, in the order of `tf.nest`."""
  if isinstance(spec, (tuple, list)) and len(spec) == 2:
    spec = dict(x=spec[0], y=spec[1])
  return [
    str(next((key for key in reversed(path) if isinstance(key, str)), path))
    for path, _ in tree.flatten_with_path(spec)
  ]
