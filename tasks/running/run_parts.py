"""The parts of a run, each made from its settings and its data."""

import dataclasses
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tasks.algorithms import local_steps
from tasks.algorithms.experiment import ExperimentConfig
from tasks.algorithms.objective import AS_GIVEN, NUMBERS
from tasks.data import features
from tasks.data.task import Task
from tasks.models import (
  evaluation,
  keras_models,
  losses_and_metrics,
  own_models,
  tff_model,
)
from tasks.running import early_checks
from tasks.running.user_parts import NO_USER_PARTS, UserParts
from tasks.settings.data_folders import DataFolders
from tff_clipping import learning, privacy
from tff_clipping.privacy import audit
from tff_clipping.programs.audit import canary_clients
from tff_clipping.programs.audit.run_audit import RunAudit
from tff_clipping.programs.clients import (
  client_sampling,
  client_states,
  client_store,
)

Clients = (
  client_store.ClientStore
  | client_store.PreprocessedClients
  | canary_clients.CanaryClients
)

# Of optimizers at the server, as Reddi et al., "Adaptive Federated
# Optimization" (ICLR 2021), have them; tau there is epsilon here.
_MOMENTUM = 0.9
_EPSILON = 1e-3


@dataclasses.dataclass(frozen=True)
class RunParts:
  """What a run is made of.

  Attributes:
    config: The settings.
    folders: Those of the data.
    task: The data, split over the clients.
    user: What the user gives in place of ours.
  """

  config: ExperimentConfig
  folders: DataFolders
  task: Task
  user: UserParts = NO_USER_PARTS

  def create_model(self, input_dtype: Any = None) -> tf.keras.Model:
    """Returns the Keras model of the run, with its initial weights.

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
      user=self.user,
    )

  def create_model_fn(
    self, element_spec: Mapping[str, tf.TensorSpec] | None = None
  ):
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
        functions=self.user.functions,
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
          functions=self.user.functions,
        ),
      )
      for metric in self.config.objective.metrics
    ]
    return evaluation.build_evaluation_fn(
      model_fn, features.nest(self.task.test), metrics
    )

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

  def create_client_model_fn(self, clients: Clients):
    """Returns the `model_fn` of the clients' local steps."""
    return learning.with_compute_dtype(
      self.create_model_fn(clients.element_spec), self.config.compute_dtype
    )

  def create_initial_weights(self) -> tff.learning.models.ModelWeights | None:
    """Returns what a user's model begins with; `None` for one of ours.

    TFF builds models in graphs, and so leaves out weights that were loaded.
    """
    if self.user.create_model is None:
      return None
    return tff.learning.models.ModelWeights.from_model(self.create_model())

  def write_client_store(self) -> client_store.ClientStore:
    """Returns the store of the clients, which is written if it is not there."""
    folder = self.folders.cache_dir or client_store.default_cache_dir()
    # The workers of a cluster may run in other folders.
    return self.task.write_client_store(os.path.abspath(folder))

  def preprocess(self, store: client_store.ClientStore) -> Clients:
    """Returns the clients with the examples that the model takes.

    Our models take images as bytes or scaled, and clients scale theirs once a
    round. A user's model takes `x` as it is.
    """
    if self.user.create_model is None:
      return store.preprocess(keras_models.scale_images)
    if list(self.task.train) == [features.INPUT, features.OUTPUT]:
      return store
    return store.preprocess(features.nest)

  def create_sampler(
    self, plan: privacy.BasePlan | None
  ) -> client_sampling.ClientSampler:
    """Returns what draws the cohorts; that of a private run is the plan's."""
    config, client_ids = self.config, self.task.client_ids
    seed = config.sampling_seed
    if plan is not None:
      return client_sampling.build_private_sampler(plan, client_ids, seed=seed)
    fixed = dict(clients_per_round=config.clients_per_round, seed=seed)
    if config.sampling == 'poisson':
      return client_sampling.PoissonSampler(
        client_ids,
        sampling_prob=config.clients_per_round / len(client_ids),
        seed=seed,
      )
    if config.sampling == 'round_robin':
      return client_sampling.RoundRobinSampler(
        client_ids, min_separation=config.min_separation, **fixed
      )
    return client_sampling.FixedSizeSampler(client_ids, **fixed)

  def create_process(
    self,
    plan: privacy.BasePlan | None,
    model_fn,
    clients: Clients,
    canaries: audit.Canaries | None = None,
  ) -> tff.learning.templates.LearningProcess:
    """Returns the learning process; see `Algorithm.create_process`."""
    return self.config.builder.create_process(
      plan,
      model_fn,
      canaries=canaries,
      user_aggregator=self.user.create_aggregator,
      local_steps=self.config.local_steps,
      batch_size=self.config.batch_size,
      client_learning_rate=self.config.client_learning_rate,
      client_store=clients,
      seed=self.config.seed,
      local_step=self._create_local_step(),
      server_optimizer=self._create_server_optimizer(),
      measure_updates=self.config.measures_updates,
    )

  def create_audit(
    self, plan: privacy.BasePlan | None, folder, model_fn
  ) -> RunAudit | None:
    """Returns the audit of a run, `None` for one that is not audited.

    Args:
      plan: The plan of the run.
      folder: Where its files go.
      model_fn: The model.
    """
    config = self.config
    if config.audit_canaries is None:
      return None
    return RunAudit(
      folder,
      plan=plan,
      canaries=audit.Canaries(
        num_canaries=2 * config.audit_canaries,
        num_parameters=count_parameters(model_fn),
        seed=config.audit_seed,
        relation=plan.actual_relation,
      ),
      release_unit=config.builder.sensitivity / plan.clients_per_round,
    )

  def add_canaries(self, model_fn, canaries: audit.Canaries):
    """Returns the model for clients and canaries alike."""
    config = self.config
    way = config.client_learning_rate * config.local_steps
    return learning.add_canaries(
      model_fn,
      canaries,
      # Far longer than c: a clip that is missing shows itself.
      gradient_norm=100 * config.builder.sensitivity / way,
    )

  def create_client_states(
    self, folder: pathlib.Path, process: tff.learning.templates.LearningProcess
  ) -> client_states.ClientStates | None:
    """Returns the store of what clients keep; `None` if they keep nothing.

    Args:
      folder: Where it is.
      process: The learning process.
    """
    if not local_steps.keeps(self.config):
      return None
    return client_states.ClientStates(folder, process, self.task.client_ids)

  def _create_local_step(self) -> learning.steps.LocalStep:
    return local_steps.build(self.config, self.task.num_clients)

  def _create_server_optimizer(self) -> tff.learning.optimizers.Optimizer:
    """Returns what applies the aggregate to the global model."""
    rate = self.config.server_learning_rate
    optimizers = tff.learning.optimizers
    return {
      'sgd': lambda: optimizers.build_sgdm(rate),
      'momentum': lambda: optimizers.build_sgdm(rate, momentum=_MOMENTUM),
      'adam': lambda: optimizers.build_adam(rate, epsilon=_EPSILON),
      'yogi': lambda: optimizers.build_yogi(rate, epsilon=_EPSILON),
      'adagrad': lambda: optimizers.build_adagrad(rate, epsilon=_EPSILON),
    }[self.config.server_optimizer]()


def create_run_parts(
  config: ExperimentConfig,
  folders: DataFolders,
  user: UserParts = NO_USER_PARTS,
) -> RunParts:
  """Returns the parts of a run: reads its data, loads the user's functions.

  Args:
    config: The settings.
    folders: Those of the data.
    user: What the user gives, and is not to be loaded by the name in `config`.
  """
  user = user.with_named(config).with_objective(config)
  task = (
    early_checks.read_task(config, folders)
    if user.task is None
    else early_checks.check_task(config, user.task)
  )
  return RunParts(config, folders, task, user)


def create_model(
  config: ExperimentConfig,
  *,
  input_shape: Any,
  num_classes: Any,
  label_shape: Any,
  input_dtype: Any,
  user: UserParts = NO_USER_PARTS,
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
    user: What the user gives in place of ours.

  Raises:
    ValueError: If a model of ours is asked for several inputs or outputs, or a
      user's does not fit.
  """
  outputs = _outputs(config, num_classes, label_shape)
  if user.create_model is None:
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
    user.create_model,
    input_shape,
    outputs=outputs,
    seed=config.model_seed,
    input_dtype=input_dtype,
  )


def _outputs(
  config: ExperimentConfig, num_classes: Any, label_shape: Any
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


def count_parameters(model_fn) -> int:
  with tf.Graph().as_default():
    return sum(int(np.prod(v.shape)) for v in model_fn().trainable_variables)
