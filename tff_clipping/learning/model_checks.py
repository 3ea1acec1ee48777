"""The check of a model that is to be trained."""

from typing import Any

import tensorflow as tf
import tensorflow_federated as tff


def check_model(model_fn: Any, client_store: Any) -> None:
  """Refuses a model that cannot be averaged, or does not fit the store.

  Args:
    model_fn: Returns a new `tff.learning.models.VariableModel`.
    client_store: The store, or `None` for data sets.

  Raises:
    TypeError: If `model_fn` is not a function that returns such a model.
    ValueError: If the model has non-trainable variables, or the store's
      examples are not what it takes.
  """
  # A Keras model is callable too.
  if isinstance(model_fn, tf.keras.Model) or not callable(model_fn):
    raise TypeError(
      '`model_fn` must be a function that returns a '
      f'new `tff.learning.models.VariableModel`, found {model_fn!r}.'
    )
  with tf.Graph().as_default():
    model = model_fn()
  if not isinstance(model, tff.learning.models.VariableModel):
    raise TypeError(
      '`model_fn` must return a `tff.learning.models.VariableModel`, found '
      f'{type(model)}; wrap a Keras model with '
      '`tff.learning.models.from_keras_model`, and a functional one with '
      '`tff.learning.models.model_from_functional`.'
    )
  if model.non_trainable_variables:
    names = [v.name for v in model.non_trainable_variables]
    more = f' and {len(names) - 3} more' if len(names) > 3 else ''
    raise ValueError(
      '`model_fn` must return a model without non-trainable variables, found '
      f"{', '.join(names[:3])}{more}. They are no part of a client's update: "
      'nothing would clip, noise or average what changes in training. Use '
      '`tf.keras.layers.GroupNormalization` in place of batch normalization; '
      'of layers that are frozen, give the clients the outputs as `x`, '
      'computed once, and train the rest.'
    )
  if client_store is None:
    return
  if not hasattr(client_store, 'element_spec'):
    raise TypeError(
      '`client_store` must be a `ClientStore`, found '
      f'{type(client_store).__name__}; `write_client_store` makes one.'
    )
  expected = tf.nest.flatten(model.input_spec)
  found = tf.nest.flatten(client_store.element_spec)
  if len(expected) != len(found) or not all(
    e.dtype == f.dtype and e.shape[1:].is_compatible_with(f.shape)
    for e, f in zip(expected, found, strict=True)
  ):
    raise ValueError(
      '`client_store` must hold the examples that the model takes, found '
      f'{client_store.element_spec} for a model of {model.input_spec}.'
    )
