"""The parts of a run, each made from its configuration."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tasks.algorithms.experiment import ExperimentConfig
from tasks.data.task import Task
from tasks.models import keras_models, own_models, tff_model
from tasks.running import early_checks
from tasks.running.run_folder import RunFolder
from tasks.running.user_parts import NO_USER_PARTS, UserParts
from tff_clipping import learning, privacy
from tff_clipping.privacy import audit
from tff_clipping.programs.audit import canary_clients
from tff_clipping.programs.audit.run_audit import RunAudit
from tff_clipping.programs.clients import client_sampling, client_store
from tff_clipping.programs.training.update_records import EstimateFn

# Of optimizers at the server, as Reddi et al., "Adaptive Federated
# Optimization" (ICLR 2021), have them; tau there is epsilon here.
_MOMENTUM = 0.9
_EPSILON = 1e-3


def create_task(
  config: ExperimentConfig,
  *,
  data_dir: str | None,
  cache_dir: str,
  user: UserParts = NO_USER_PARTS,
) -> Task:
  """Returns the data of a run, split over its clients; see `runner.run`."""
  if user.task is not None:
    return early_checks.check_task(config, user.task)
  return early_checks.read_task(config, data_dir=data_dir, cache_dir=cache_dir)


def create_model(
  config: ExperimentConfig,
  *,
  input_shape: Sequence[int],
  num_classes: int,
  is_sequence: bool,
  input_dtype: tf.DType,
  user: UserParts = NO_USER_PARTS,
) -> tf.keras.Model:
  """Returns the Keras model of the run, with its initial weights.

  Args:
    config: The experiment.
    input_shape: Shape of one example's `x`.
    num_classes: Number of classes; tokens of a sequence task.
    is_sequence: Whether every position of an example has a label.
    input_dtype: The type of what the model is called with.
    user: What is the user's own.
  """
  shape = tuple(input_shape), num_classes
  settings: dict[str, Any] = dict(
    seed=config.model_seed, input_dtype=input_dtype
  )
  if user.create_model is None:
    return keras_models.MODELS[config.model](*shape, **settings)
  return own_models.create_own_model(
    user.create_model, *shape, is_sequence=is_sequence, **settings
  )


def create_model_fn(
  config: ExperimentConfig,
  task: Task,
  element_spec=None,
  user: UserParts = NO_USER_PARTS,
):
  """Returns the `model_fn` of the run, as TFF's algorithms take it.

  Args:
    config: The experiment.
    task: Its data.
    element_spec: The specs `x` and `y` of what the model is called with; those
      of `task` if not given.
    user: What is the user's own.
  """
  element_spec = element_spec or task.element_spec
  return tff_model.build_model_fn(
    lambda: create_task_model(config, task, element_spec['x'].dtype, user),
    element_spec,
  )


def create_client_model_fn(
  config: ExperimentConfig,
  task: Task,
  clients: client_store.ClientStore | client_store.PreprocessedClients,
  user: UserParts = NO_USER_PARTS,
):
  """Returns the `model_fn` of the clients' local steps."""
  return learning.with_compute_dtype(
    create_model_fn(config, task, clients.element_spec, user),
    config.compute_dtype,
  )


def create_task_model(
  config: ExperimentConfig,
  task: Task,
  input_dtype: tf.DType | None = None,
  user: UserParts = NO_USER_PARTS,
) -> tf.keras.Model:
  """Returns `create_model` for the data of the run.

  Args:
    config: The experiment.
    task: Its data.
    input_dtype: The type of what the model is called with; that of the data if
      not given.
    user: What is the user's own.
  """
  return create_model(
    config,
    input_shape=task.input_shape,
    num_classes=task.num_classes,
    is_sequence=task.is_sequence,
    input_dtype=input_dtype or tf.as_dtype(task.train['x'].dtype),
    user=user,
  )


def create_initial_weights(
  config: ExperimentConfig, task: Task, user: UserParts = NO_USER_PARTS
) -> tff.learning.models.ModelWeights | None:
  """Returns what a model of a user's own begins with; `None` for one of ours.

  TFF builds models in graphs, and so leaves out weights that were loaded.
  """
  if user.create_model is None:
    return None
  model = create_task_model(config, task, user=user)
  return tff.learning.models.ModelWeights.from_model(model)


def preprocess(
  store: client_store.ClientStore, user: UserParts = NO_USER_PARTS
) -> client_store.ClientStore | client_store.PreprocessedClients:
  """Returns the clients with the examples that the model takes.

  Our models take images as bytes or scaled, and clients scale theirs once a
  round. A model of a user's own takes `x` as it is.
  """
  if user.create_model is not None:
    return store
  return store.preprocess(keras_models.scale_images)


def create_sampler(
  config: ExperimentConfig,
  plan: privacy.BasePlan | None,
  client_ids: tuple[str, ...],
) -> client_sampling.ClientSampler:
  """Returns the sampler of a run; a private one's is the plan's."""
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
  if config.sampling == 'shuffled_epochs':
    return client_sampling.ShuffledEpochsSampler(client_ids, **fixed)
  if config.sampling == 'round_robin':
    return client_sampling.RoundRobinSampler(
      client_ids, min_separation=config.min_separation, **fixed
    )
  return client_sampling.FixedSizeSampler(client_ids, **fixed)


def create_process(
  config: ExperimentConfig,
  plan: privacy.BasePlan | None,
  model_fn,
  clients: client_store.PreprocessedClients | canary_clients.CanaryClients,
  canaries: audit.Canaries | None = None,
  user: UserParts = NO_USER_PARTS,
) -> tff.learning.templates.LearningProcess:
  """Returns the learning process of a run; see `Algorithm.create_process`."""
  return config.builder.create_process(
    plan,
    model_fn,
    canaries=canaries,
    user_aggregator=user.create_aggregator,
    **local_work(config, clients),
    server_optimizer=create_server_optimizer(config),
    measure_updates=config.measures_updates,
  )


def local_work(
  config: ExperimentConfig,
  clients: client_store.PreprocessedClients | canary_clients.CanaryClients,
) -> dict[str, Any]:
  """Returns the arguments of `tff_clipping.learning` on the clients' work."""
  return dict(
    local_steps=config.local_steps,
    batch_size=config.batch_size,
    client_learning_rate=config.client_learning_rate,
    client_store=clients,
    seed=config.seed,
  )


def create_server_optimizer(
  config: ExperimentConfig,
) -> tff.learning.optimizers.Optimizer:
  """Returns what applies the aggregate to the global model."""
  rate = config.server_learning_rate
  optimizers = tff.learning.optimizers
  return {
    'sgd': lambda: optimizers.build_sgdm(rate),
    'momentum': lambda: optimizers.build_sgdm(rate, momentum=_MOMENTUM),
    'adam': lambda: optimizers.build_adam(rate, epsilon=_EPSILON),
    'yogi': lambda: optimizers.build_yogi(rate, epsilon=_EPSILON),
    'adagrad': lambda: optimizers.build_adagrad(rate, epsilon=_EPSILON),
  }[config.server_optimizer]()


def create_audit(
  config: ExperimentConfig,
  plan: privacy.BasePlan | None,
  folder: RunFolder,
  model_fn,
) -> RunAudit | None:
  """Returns the audit of a run, `None` for one that is not audited."""
  if config.audit_canaries is None:
    return None
  return RunAudit(
    folder.audit,
    plan=plan,
    canaries=audit.Canaries(
      num_canaries=2 * config.audit_canaries,
      num_parameters=count_parameters(model_fn),
      seed=config.audit_seed,
      relation=audit.audited_relation(plan),
    ),
    release_unit=config.builder.sensitivity / plan.clients_per_round,
  )


def add_canaries(config: ExperimentConfig, model_fn, canaries: audit.Canaries):
  """Returns the model for clients and canaries alike."""
  way = config.client_learning_rate * config.local_steps
  return learning.add_canaries(
    model_fn,
    canaries,
    # Far longer than c: a clip that is missing shows itself.
    gradient_norm=100 * config.builder.sensitivity / way,
  )


def create_update_estimate(
  config: ExperimentConfig,
  model_fn,
  clients: client_store.PreprocessedClients,
) -> EstimateFn | None:
  """Returns what estimates the expected norms, `None` without estimates."""
  if not config.estimate_repeats:
    return None
  estimate = learning.build_update_estimates(
    model_fn,
    num_repeats=config.estimate_repeats,
    **local_work(config, clients),
  )
  return lambda weights, t, cohort: estimate(weights, t, list(cohort))[
    'expected_norm'
  ]


def count_parameters(model_fn) -> int:
  with tf.Graph().as_default():
    return sum(int(np.prod(v.shape)) for v in model_fn().trainable_variables)
