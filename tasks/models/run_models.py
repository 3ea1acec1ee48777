"""The model of a run: what clients train, and what is evaluated."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tasks import named_functions
from tasks.config import Config
from tasks.data.task import Task
from tasks.models import (
  evaluation,
  keras_models,
  losses_and_metrics,
  own_models,
  tff_model,
)
from tasks.models.objective import Objective, takes_logits
from tff_clipping import learning
from tff_clipping.programs.clients import client_store


@dataclasses.dataclass(frozen=True)
class RunModel:
  """The model of a run on its data.

  Attributes:
    config: The settings.
    task: The data.
    objective: What is minimised and measured.
    functions: What names of functions in `config` stand for, of the model,
      the loss and the metrics, where they are not to be loaded by name.
  """

  config: Config
  task: Task
  objective: Objective
  functions: Mapping[str, Any] = dataclasses.field(default_factory=dict)

  def create_model(self, input_dtype: Any = None) -> tf.keras.Model:
    """Returns the Keras model, with its initial weights.

    Args:
      input_dtype: The type of what the model is called with; that of the data
        if not given.
    """
    return create_model(
      self.config,
      self.objective,
      input_shape=self.task.input_shape,
      num_classes=self.task.num_classes,
      label_shape=self.task.label_shape,
      input_dtype=input_dtype or self.task.input_dtype,
      functions=self.functions,
    )

  def create_model_fn(
    self, element_spec: Mapping[str, tf.TensorSpec] | None = None
  ) -> Callable[[], tff.learning.models.VariableModel]:
    """Returns the `model_fn` of the run.

    Args:
      element_spec: The specs `x` and `y` of what the model is called with;
        those of the data if not given.
    """
    spec = element_spec or self.task.element_spec
    return tff_model.build_model_fn(
      lambda: self.create_model(spec['x'].dtype),
      spec,
      loss=losses_and_metrics.create_loss(
        self.objective, self.task, self._objective_functions
      ),
    )

  def build_evaluation_fn(self, model_fn):
    """Returns the evaluation on the test set.

    Args:
      model_fn: The model.
    """
    metrics = losses_and_metrics.create_metrics(
      self.objective, self.task, self._objective_functions
    )
    return evaluation.build_evaluation_fn(model_fn, self.task.test, metrics)

  def create_client_model_fn(self, clients: Any):
    """Returns the `model_fn` of the clients' local steps."""
    return learning.with_compute_dtype(
      self.create_model_fn(clients.element_spec), self.config.compute_dtype
    )

  def create_initial_weights(self) -> tff.learning.models.ModelWeights | None:
    """Returns what a user's model begins with; `None` for one of ours.

    TFF builds models in graphs, and so leaves out weights that were loaded.
    """
    if not named_functions.is_function_name(self.config.model):
      return None
    return tff.learning.models.ModelWeights.from_model(self.create_model())

  def preprocess(
    self, store: client_store.ClientStore
  ) -> client_store.ClientStore | client_store.PreprocessedClients:
    """Returns the clients with the examples that the model takes.

    Our models take images as bytes or scaled, and clients scale theirs once a
    round. A user's model takes `x` as it is.
    """
    if not named_functions.is_function_name(self.config.model):
      return store.preprocess(keras_models.scale_images)
    return store

  @property
  def _objective_functions(self) -> dict[str, Any]:
    """The user's losses and metrics by their names."""
    return {
      name: named_functions.find(self.functions, setting, name)
      for setting, name in self.objective.user_functions
    }


def create_model(
  config: Config,
  objective: Objective,
  *,
  input_shape: Any,
  num_classes: Any,
  label_shape: Any,
  input_dtype: Any,
  functions: Mapping[str, Any],
) -> tf.keras.Model:
  """Returns the Keras model of a run, with its initial weights.

  Args:
    config: The settings.
    objective: What is minimised, which says what a model has to give.
    input_shape: Shape of one example's `x`.
    num_classes: Number of classes; tokens of a sequence task; `None` for
      numbers.
    label_shape: Shape of one example's `y`.
    input_dtype: The type of what the model is called with.
    functions: As of `RunModel`.

  Raises:
    ValueError: If a user's model does not fit.
  """
  num_outputs = label_shape[-1] if num_classes is None else num_classes
  if not named_functions.is_function_name(config.model):
    if config.model not in keras_models.MODELS:
      raise ValueError(
        f'`model` must be one of {", ".join(keras_models.MODELS)}, '
        f'module:function or FILE.py:function, found {config.model!r}.'
      )
    return keras_models.MODELS[config.model](
      tuple(input_shape),
      num_outputs,
      seed=config.model_seed,
      input_dtype=tf.as_dtype(input_dtype),
    )
  loss = objective.loss
  output_shape = (
    tuple(label_shape) if num_classes is None else (*label_shape, num_classes)
  )
  is_own_loss = named_functions.is_function_name(loss)
  return own_models.create_own_model(
    named_functions.find(functions, 'model', config.model),
    tuple(input_shape),
    num_outputs,
    output_shape=None if is_own_loss else output_shape,
    gives_logits=not is_own_loss and takes_logits(loss),
    seed=config.model_seed,
    input_dtype=tf.as_dtype(input_dtype),
  )


def count_parameters(model_fn: Callable[[], Any]) -> int:
  """Returns the number of trainable parameters of a model."""
  with tf.Graph().as_default():
    return sum(int(np.prod(v.shape)) for v in model_fn().trainable_variables)
