"""The model of a run: what clients train, and what is evaluated."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tasks import named_functions
from tasks.data import features
from tasks.data.task import Task
from tasks.models import (
  evaluation,
  keras_models,
  losses_and_metrics,
  own_models,
  tff_model,
)
from tasks.models.objective import AS_GIVEN, NUMBERS
from tff_clipping import learning
from tff_clipping.programs.clients import client_store


@dataclasses.dataclass(frozen=True)
class RunModel:
  """The model of a run on its data.

  Attributes:
    config: The settings.
    task: The data.
    functions: What names of functions in `config` stand for, of the model,
      the loss and the metrics, where they are not to be loaded by name.
  """

  config: Any
  task: Task
  functions: Mapping[str, Any] = dataclasses.field(default_factory=dict)

  def create_model(self, input_dtype: Any = None) -> tf.keras.Model:
    """Returns the Keras model, with its initial weights.

    Args:
      input_dtype: The type of what the model is called with, by name of several
        inputs; that of the data if not given.
    """
    return create_model(
      self.config,
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
    dtypes = tf.nest.map_structure(lambda each: each.dtype, spec['x'])
    return tff_model.build_model_fn(
      lambda: self.create_model(dtypes),
      spec,
      loss=losses_and_metrics.create_loss(
        self.config.objective.losses,
        masked=self._masked_outputs,
        functions=self._objective_functions,
      ),
    )

  def build_evaluation_fn(self, model_fn):
    """Returns the evaluation on the test set.

    Args:
      model_fn: The model.
    """
    metrics = [
      losses_and_metrics.TestMetric(
        metric.name,
        metric.output,
        losses_and_metrics.create_metric(
          metric.source,
          is_masked=metric.output in self._masked_outputs,
          functions=self._objective_functions,
        ),
      )
      for metric in self.config.objective.metrics
    ]
    return evaluation.build_evaluation_fn(
      model_fn, features.nest(self.task.test), metrics
    )

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
    if list(self.task.train) == [features.INPUT, features.OUTPUT]:
      return store
    return store.preprocess(features.nest)

  @property
  def _objective_functions(self) -> dict[str, Any]:
    """The user's losses and metrics by their names."""
    return {
      name: named_functions.find(self.functions, setting, name)
      for setting, name in self.config.objective.user_functions
    }

  @property
  def _masked_outputs(self) -> frozenset[str | None]:
    """The outputs with rows of classes in which 0 is padding."""
    task = self.task
    return frozenset(
      output
      for output in task.outputs
      if task.has_padding
      and task.num_classes_of(output) is not None
      and task.train[features.feature_of(features.OUTPUT, output)].ndim > 1
    )


def create_model(
  config: Any,
  *,
  input_shape: Any,
  num_classes: Any,
  label_shape: Any,
  input_dtype: Any,
  functions: Mapping[str, Any],
) -> tf.keras.Model:
  """Returns the Keras model of a run, with its initial weights.

  Each of these is as of `Task`: a dictionary by name of several inputs or
  outputs.

  Args:
    config: The settings.
    input_shape: Shape of one example's `x`.
    num_classes: Number of classes; tokens of a sequence task; `None` for
      numbers.
    label_shape: Shape of one example's `y`.
    input_dtype: The type of what the model is called with.
    functions: As of `RunModel`.

  Raises:
    ValueError: If a model of ours is asked for several inputs or outputs, or a
      user's does not fit.
  """
  outputs = _outputs(config, num_classes, label_shape)
  if not named_functions.is_function_name(config.model):
    if isinstance(input_shape, Mapping) or isinstance(outputs, Mapping):
      raise ValueError(
        '`model` must be one of your own, FILE.py:function, for several inputs '
        f'or outputs, found {config.model}.'
      )
    return keras_models.MODELS[config.model](
      tuple(input_shape),
      outputs.size,
      seed=config.model_seed,
      input_dtype=tf.as_dtype(input_dtype),
    )
  return own_models.create_own_model(
    named_functions.find(functions, 'model', config.model),
    input_shape,
    outputs=outputs,
    seed=config.model_seed,
    input_dtype=input_dtype,
  )


def _outputs(
  config: Any, num_classes: Any, label_shape: Any
) -> own_models.Output | dict[str, own_models.Output]:
  """Returns what a model has to give for the loss and the labels."""

  def output_of(name: str | None, classes: int | None, shape: Sequence[int]):
    labels = config.objective.labels_of(name)
    size = shape[-1] if classes is None else classes
    expected = tuple(shape) if classes is None else (*shape, classes)
    return own_models.Output(
      size,
      None if labels == AS_GIVEN else expected,
      is_logits=labels not in (AS_GIVEN, NUMBERS),
    )

  if not isinstance(label_shape, Mapping):
    return output_of(None, num_classes, label_shape)
  return {
    name: output_of(name, num_classes[name], shape)
    for name, shape in label_shape.items()
  }


def count_parameters(model_fn: Callable[[], Any]) -> int:
  """Returns the number of trainable parameters of a model."""
  with tf.Graph().as_default():
    return sum(int(np.prod(v.shape)) for v in model_fn().trainable_variables)
