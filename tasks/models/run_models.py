"""The model of a run: what clients train, and what is evaluated."""

import collections
import dataclasses
import types
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tasks import named_functions
from tasks.checks import check
from tasks.config import Config
from tasks.data.task import Task
from tasks.models import keras_models, own_models
from tasks.models import objective as objective_lib
from tasks.models.objective import Objective
from tff_clipping.programs.clients import client_store

ModelFn = Callable[[], tff.learning.models.VariableModel]


@dataclasses.dataclass(frozen=True)
class RunModel:
  """The model of a run on its data.

  Attributes:
    config: The settings.
    task: The data. A Keras model needs no more of them than `input_shape`,
      `input_dtype`, `label_shape` and `num_classes`.
    objective: What is minimised and measured.
  """

  config: Config
  task: Task | types.SimpleNamespace
  objective: Objective

  @property
  def is_own(self) -> bool:
    """Whether a user's function makes the model."""
    return named_functions.is_own(self.config.model)

  def create_model(self, input_dtype: Any = None) -> tf.keras.Model:
    """Returns the Keras model, with its initial weights.

    `input_dtype` is the type of what it is called with, else that of the data.

    Raises:
      TypeError: If a user's function makes no model.
      ValueError: If there is no such model, or a user's model does not fit.
    """
    config, task = self.config, self.task
    num_classes, label_shape = task.num_classes, task.label_shape
    num_outputs = label_shape[-1] if num_classes is None else num_classes
    settings = dict(
      seed=config.model_seed,
      input_dtype=tf.as_dtype(input_dtype or task.input_dtype),
    )
    if self.is_own:
      of_classes = () if num_classes is None else (num_classes,)
      is_own_loss = named_functions.is_own(self.objective.loss)
      return own_models.create_own_model(
        named_functions.find('model', config.model),
        tuple(task.input_shape),
        num_outputs,
        output_shape=None if is_own_loss else (*label_shape, *of_classes),
        gives_logits=self.objective.takes_logits,
        **settings,
      )
    names = ', '.join(keras_models.MODELS)
    must = f'must be one of {names}, module:function or FILE.py:function'
    check('model', config.model in keras_models.MODELS, must, config.model)
    create = keras_models.MODELS[config.model]
    return create(tuple(task.input_shape), num_outputs, **settings)

  def create_model_fn(
    self, element_spec: Mapping[str, tf.TensorSpec] | None = None
  ) -> ModelFn:
    """Returns the `model_fn` for these examples; if none, for the data's."""
    spec = element_spec or self.task.element_spec
    return build_model_fn(
      lambda: self.create_model(spec['x'].dtype),
      spec,
      loss=self.objective.create_loss(self.task),
    )

  def create_initial_weights(self) -> tff.learning.models.ModelWeights | None:
    """Returns what a user's model begins with; `None` for one of ours.

    TFF builds models in graphs, and so leaves out weights that were loaded.
    """
    if not self.is_own:
      return None
    return tff.learning.models.ModelWeights.from_model(self.create_model())

  def preprocess(
    self, store: client_store.ClientStore
  ) -> client_store.ClientStore:
    """Returns the clients with the examples that the model takes.

    Our models take images as bytes or scaled, and clients scale theirs once a
    round. A user's model takes `x` as it is.
    """
    return store if self.is_own else store.preprocess(keras_models.scale_images)


def build_model_fn(
  create_model: Callable[[], tf.keras.Model],
  element_spec: Mapping[str, tf.TensorSpec],
  *,
  loss: tf.keras.losses.Loss | None = None,
) -> ModelFn:
  """Makes the `model_fn` that TFF's algorithms take from a Keras model.

  Args:
    create_model: Returns a new, uncompiled model that gives logits, or what
      `loss` takes.
    element_spec: The specs `x` and `y` of one example, without the batch.
    loss: Takes `y` and what the model gives. By default the cross-entropy of
      the logits, averaged over the batch and, for rows of labels, over their
      positions.

  Returns:
    A function without arguments that returns a new TFF model each time.
  """
  input_spec = collections.OrderedDict(
    (key, tf.TensorSpec([None, *spec.shape], spec.dtype))
    for key, spec in element_spec.items()
  )
  return lambda: tff.learning.models.from_keras_model(
    create_model(),
    loss=loss or objective_lib.cross_entropy(),
    input_spec=input_spec,
  )


def count_parameters(model_fn: ModelFn) -> int:
  """Returns the number of trainable parameters of a model."""
  with tf.Graph().as_default():
    return sum(int(np.prod(v.shape)) for v in model_fn().trainable_variables)
