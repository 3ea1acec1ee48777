"""Runs an experiment: from its configuration to the files of its run folder."""

import collections
import contextlib
import dataclasses
import os
import platform
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff
import tqdm

import tff_clipping
from tasks import evaluation, keras_models, registry, tff_model
from tasks.execution import Execution
from tasks.experiment import ExperimentConfig
from tasks.experiment_table import ALGORITHMS
from tasks.run_folder import RunFolder
from tasks.task import Task
from tff_clipping import aggregators, learning, privacy
from tff_clipping.privacy import audit
from tff_clipping.programs import (
  canary_clients,
  client_sampling,
  client_store,
  managers,
  storage,
)
from tff_clipping.programs.checkpoints import Checkpoints
from tff_clipping.programs.run_audit import RunAudit
from tff_clipping.programs.training import TrainingProgram, TrainingResult
from tff_clipping.programs.update_records import EstimateFn, UpdateRecords

_AUDIT_CONFIDENCE = 0.95


def run(
  config: ExperimentConfig,
  folder: RunFolder,
  *,
  resume: bool = True,
  data_dir: str | None = None,
  cache_dir: str | None = None,
  checkpoints_to_keep: int = 2,
  clipping_norm_source: str = 'given',
  execution: Execution | None = None,
) -> TrainingResult:
  """Runs an experiment, or goes on with it where it stopped.

  Args:
    config: What to do.
    folder: Where its files go.
    resume: Whether to go on with a run of the same configuration.
    data_dir: The folder of the data's official files, `None` to download them.
    cache_dir: The folder of downloads and client stores, `None` for the user's
      cache folder.
    checkpoints_to_keep: How many checkpoints to keep, at least 1.
    clipping_norm_source: Where c comes from, for config.json.
    execution: Where the rounds are computed; `None` for this process.

  Returns:
    How the run ended.

  Raises:
    ValueError: If the configuration does not fit the data, or `folder` cannot
      be used. Nothing has been overwritten.
    OSError: If a file cannot be written, or is damaged.
    ClusterError: If the rounds cannot be computed on the cluster.
  """
  execution = execution or Execution()
  # The workers of a cluster may run in other folders.
  cache_dir = os.path.abspath(cache_dir or client_store.default_cache_dir())
  caveats = config.caveats
  config = folder.with_drawn_seeds(config)
  task = create_task(config, data_dir=data_dir, cache_dir=cache_dir)
  plan = create_plan(config, task.num_clients)
  model_fn = create_model_fn(config, task)
  run_audit = create_audit(config, plan, folder, model_fn)
  sampler = (
    create_sampler(config, plan, task.client_ids)
    if run_audit is None
    else run_audit.build_sampler(task.client_ids, seed=config.sampling_seed)
  )
  with folder.open(config, resume=resume), contextlib.ExitStack() as stack:
    store = task.write_client_store(cache_dir)
    where = stack.enter_context(
      execution.start(folder, required_paths=[store.path])
    )
    clients = store.preprocess(keras_models.scale_images)
    client_model_fn = create_model_fn(config, task, clients.element_spec)
    canaries = None
    if run_audit is not None:
      canaries = run_audit.canaries
      clients = canary_clients.CanaryClients(clients, canaries)
      client_model_fn = _add_canaries(config, client_model_fn, canaries)
    process = create_process(config, plan, client_model_fn, clients, canaries)
    # First of all files: what makes the folder that of this run.
    folder.write_json(
      folder.config,
      dict(
        **_description(config, task, model_fn, clipping_norm_source),
        execution=where,
      ),
      is_secret=config.is_private,  # It has the seed of the cohorts.
    )
    folder.result.unlink(missing_ok=True)
    ledger = None
    if plan is not None:
      ledger = stack.enter_context(_open_ledger(folder, plan, caveats))
      caveats = ledger.caveats
      folder.write_json(folder.privacy, plan.to_json(caveats))
      # The states have the key of the noise.
      folder.checkpoints.mkdir(mode=0o700, exist_ok=True)
    program = TrainingProgram(
      process=process,
      sampler=sampler,
      num_rounds=config.num_rounds,
      evaluate=evaluation.build_evaluation_fn(model_fn, task.test),
      rounds_per_evaluation=config.rounds_per_evaluation,
      checkpoints=Checkpoints(folder.checkpoints, keep=checkpoints_to_keep),
      rounds_per_checkpoint=config.rounds_per_checkpoint,
      release_managers=managers.create_release_managers(
        metrics_path=folder.metrics, tensorboard_dir=folder.tensorboard
      ),
      ledger=ledger,
      update_records=UpdateRecords(
        folder.updates,
        rounds=config.update_rounds,
        clipping_norm=config.clipping_norm,
        expected_norms=_create_update_estimate(
          config, client_model_fn, clients
        ),
      )
      if config.measures_updates
      else None,
      run_audit=run_audit,
      measures_cohorts=config.measures_updates,
      on_round=stack.enter_context(_progress(config)),
    )
    result = program.run()
    sentences = [result.message]
    if run_audit is not None and result.interrupted is None:
      sentences += _audit(run_audit, process, result)
    if caveats:
      sentences.append(f'Not private as it was run: {"; ".join(caveats)}.')
    result = dataclasses.replace(result, message=' '.join(sentences))
    if result.interrupted is None:
      folder.write_json(
        folder.result,
        dict(
          reason=result.reason.value,
          message=result.message,
          round_num=result.round_num,
        ),
      )
    return result


def create_task(
  config: ExperimentConfig, *, data_dir: str | None, cache_dir: str
) -> Task:
  """Returns the data of a run, split over its clients; see `run`."""
  task = registry.create_task(
    config.task,
    config.partition_config(),
    data_dir=data_dir,
    cache_dir=cache_dir,
  )
  if config.test_examples is None:
    return task
  return task.with_test_examples(config.test_examples)


def create_process(
  config: ExperimentConfig,
  plan: privacy.PrivacyPlan | None,
  model_fn,
  clients: client_store.PreprocessedClients | canary_clients.CanaryClients,
  canaries: audit.Canaries | None = None,
) -> tff.learning.templates.LearningProcess:
  """Returns the learning process of a run.

  Args:
    config: The experiment.
    plan: Its plan; `None` for one that is not private.
    model_fn: The model that clients train.
    clients: Their data.
    canaries: Those among the clients of an audited run.
  """
  settings = dict(
    **local_work(config, clients),
    server_optimizer=create_server_optimizer(config),
    measure_updates=config.measures_updates,
  )
  if ALGORITHMS[config.algorithm].clips == 'models':
    return learning.build_model_clipping_fed_avg(
      model_fn, clipping_norm=config.clipping_norm, **settings
    )
  aggregator = create_aggregator(config, plan)
  if canaries is not None:
    aggregator = aggregators.add_canary_products(aggregator, canaries)
  return learning.build_fed_avg(
    model_fn, model_aggregator=aggregator, **settings
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


def create_plan(
  config: ExperimentConfig, num_clients: int
) -> privacy.PrivacyPlan | None:
  """Returns the plan of a private run, `None` for any other.

  That of an audited run is for the clients and the canaries together.
  """
  if not config.is_private:
    return None
  settings: dict[str, Any] = dict(
    num_clients=num_clients,
    clients_per_round=config.clients_per_round,
    num_rounds=config.num_rounds,
    target_delta=config.target_delta,
    sampling=config.sampling,
    accountant=config.accountant,
  )
  if config.noise_multiplier is not None:
    plan = privacy.PrivacyPlan.from_noise_multiplier(
      noise_multiplier=config.noise_multiplier, **settings
    )
  else:
    plan = privacy.PrivacyPlan.from_target_epsilon(
      target_epsilon=config.target_epsilon, **settings
    )
  if config.audit_canaries is None:
    return plan
  return audit.add_canaries_to_plan(plan, 2 * config.audit_canaries)


def create_audit(
  config: ExperimentConfig,
  plan: privacy.PrivacyPlan | None,
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
      num_parameters=_count_parameters(model_fn),
      seed=config.audit_seed,
      relation=audit.audited_relation(plan),
    ),
    release_unit=config.clipping_norm / plan.clients_per_round,
  )


def create_sampler(
  config: ExperimentConfig,
  plan: privacy.PrivacyPlan | None,
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


def create_aggregator(
  config: ExperimentConfig, plan: privacy.PrivacyPlan | None
) -> tff.aggregators.UnweightedAggregationFactory | None:
  """Returns what makes the algorithm; `None` is TFF's own mean.

  Raises:
    KeyError: If the algorithm has no aggregator.
  """

  def dp_mean():
    return aggregators.dp_mean_factory(
      clipping_norm=config.clipping_norm,
      **plan.aggregator_parameters._asdict(),
      # The checkpoints keep it: a run that is resumed has the key of its
      # states.
      noise_key=aggregators.draw_noise_key()
      if config.noise_seed is None
      else (0, config.noise_seed),
    )

  return {
    'fed_avg': lambda: None,
    'ce_fed_avg': lambda: aggregators.clipped_mean_factory(
      clipping_norm=config.clipping_norm
    ),
    'dp_fed_avg': dp_mean,
  }[config.algorithm]()


def create_server_optimizer(
  config: ExperimentConfig,
) -> tff.learning.optimizers.Optimizer:
  """Returns what applies the aggregate to the global model."""
  rate = config.server_learning_rate
  optimizers = tff.learning.optimizers
  return {
    'sgd': lambda: optimizers.build_sgdm(rate),
    'momentum': lambda: optimizers.build_sgdm(rate, momentum=0.9),
    'adam': lambda: optimizers.build_adam(rate, epsilon=1e-3),
    'yogi': lambda: optimizers.build_yogi(rate, epsilon=1e-3),
    'adagrad': lambda: optimizers.build_adagrad(rate, epsilon=1e-3),
  }[config.server_optimizer]()


def create_model_fn(config: ExperimentConfig, task: Task, element_spec=None):
  """Returns the `model_fn` of the run, as TFF's algorithms take it.

  Args:
    config: The experiment.
    task: Its data.
    element_spec: The specs `x` and `y` of what the model is called with; those
      of `task` if not given.
  """
  build = keras_models.MODELS[config.model]
  element_spec = element_spec or task.element_spec
  return tff_model.build_model_fn(
    lambda: build(
      task.input_shape,
      task.num_classes,
      seed=config.model_seed,
      input_dtype=element_spec['x'].dtype,
    ),
    element_spec,
  )


def _open_ledger(
  folder: RunFolder, plan: privacy.PrivacyPlan, caveats: Sequence[str]
) -> privacy.PrivacyLedger:
  try:
    with storage.writing('The ledger'):
      return privacy.PrivacyLedger(folder.ledger, plan, caveats=caveats)
  except privacy.DamagedLedgerError as e:
    raise storage.StorageError(str(e)) from e


def _create_update_estimate(
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


def _description(
  config: ExperimentConfig, task: Task, model_fn, clipping_norm_source: str
) -> dict[str, Any]:
  """Returns the contents of config.json."""
  return dict(
    experiment=config.to_json(),
    algorithm=config.algorithm,
    clipping_norm_source=(
      None if config.clipping_norm is None else clipping_norm_source
    ),
    task=dict(
      name=task.name,
      source=task.source,
      num_clients=task.num_clients,
      num_train_examples=len(task.train['y']),
      num_test_examples=len(task.test['y']),
      partition=task.summary,
    ),
    model=dict(name=config.model, num_parameters=_count_parameters(model_fn)),
    versions=collections.OrderedDict(
      tff_clipping=tff_clipping.__version__,
      tensorflow_federated=tff.__version__,
      tensorflow=tf.__version__,
      numpy=np.__version__,
      python=platform.python_version(),
    ),
  )


def _count_parameters(model_fn) -> int:
  with tf.Graph().as_default():
    return sum(int(np.prod(v.shape)) for v in model_fn().trainable_variables)


def _add_canaries(config: ExperimentConfig, model_fn, canaries: audit.Canaries):
  """Returns the model for clients and canaries alike."""
  way = config.client_learning_rate * config.local_steps
  return learning.add_canaries(
    model_fn,
    canaries,
    # Far longer than c: a clip that is missing shows itself.
    gradient_norm=100 * config.clipping_norm / way,
  )


def _audit(
  run_audit: RunAudit,
  process: tff.learning.templates.LearningProcess,
  result: TrainingResult,
) -> list[str]:
  """Writes audit.json; returns what it shows, in a sentence."""
  if result.round_num == 0:
    return []  # Nothing was released.
  weights = process.get_model_weights(result.state)
  run_audit.record_model(result.round_num, weights.trainable)
  found = run_audit.write(confidence=_AUDIT_CONFIDENCE)
  verdict = 'refutes' if found.is_refuted else 'does not refute'
  return [
    f'The audit {verdict} the plan: with {found.confidence:.0%} confidence, '
    f'epsilon is at least {found.epsilon_lower_bound:.2f} for any mechanism '
    f'and {found.gaussian_epsilon_lower_bound:.2f} for a Gaussian one; if the '
    f'plan holds, it is at most {found.actual_epsilon:.2f}.'
  ]


@contextlib.contextmanager
def _progress(config: ExperimentConfig) -> Iterator:
  """Shows a bar with the round, the accuracy and the seconds a round."""
  with tqdm.tqdm(
    total=config.num_rounds,
    desc=config.algorithm,
    unit='round',
    file=sys.stderr,
    # No bar where nobody looks.
    disable=None,
  ) as bar:
    shown = {}

    def on_round(metrics) -> None:
      if not np.isnan(metrics['test_accuracy']):
        shown['accuracy'] = f'{metrics["test_accuracy"]:.1%}'
      if not np.isnan(metrics['round_seconds']):
        shown['s/round'] = f'{metrics["round_seconds"]:.2f}'
      bar.set_postfix(shown, refresh=False)
      bar.update(metrics['round_num'] - bar.n)

    yield on_round
