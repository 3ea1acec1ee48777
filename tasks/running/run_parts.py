"""The parts of a run, each made from its settings and its data."""

import dataclasses
import os
import pathlib

import tensorflow_federated as tff

from tasks.algorithms import local_steps
from tasks.algorithms.experiment import ExperimentConfig
from tasks.data.task import Task
from tasks.models import run_models
from tasks.models.run_models import RunModel
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

  @property
  def model(self) -> RunModel:
    """The model of the run."""
    functions = dict(self.user.functions)
    if self.user.create_model is not None:
      functions[self.config.model] = self.user.create_model
    return RunModel(self.config, self.task, functions)

  def write_client_store(self) -> client_store.ClientStore:
    """Returns the store of the clients, which is written if it is not there."""
    folder = self.folders.cache_dir or client_store.default_cache_dir()
    # The workers of a cluster may run in other folders.
    return self.task.write_client_store(os.path.abspath(folder))

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
        num_parameters=run_models.count_parameters(model_fn),
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
