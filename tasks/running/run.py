"""Runs an experiment: from its settings to the files of its run folder."""

import contextlib
import dataclasses
import math
import os
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow_federated as tff
import tqdm

from tasks import algorithms, named_functions
from tasks.config import Config
from tasks.data import registry
from tasks.data.partitions import PartitionConfig
from tasks.data.task import Task
from tasks.models import evaluation, run_models
from tasks.models import objective as objective_lib
from tasks.models.run_models import RunModel
from tasks.running import clipping_norm, run_privacy, trained_model
from tasks.running.folder import RunFolder
from tasks.running.run_privacy import RunPrivacy
from tff_clipping import learning, privacy, runtime
from tff_clipping.interruption import shield
from tff_clipping.privacy import audit
from tff_clipping.privacy.accounting import rounding
from tff_clipping.programs.audit import canary_clients
from tff_clipping.programs.audit.run_audit import RunAudit
from tff_clipping.programs.clients import client_states, client_store
from tff_clipping.programs.training.checkpoints import Checkpoints
from tff_clipping.programs.training.metrics_files import MetricsFiles
from tff_clipping.programs.training.training_program import (
  StopReason,
  TrainingProgram,
  TrainingResult,
)
from tff_clipping.programs.training.update_records import UpdateRecords
from tff_clipping.programs.training.watchers import AfterRounds, RoundWatcher
from tff_clipping.runtime import environment

LearningProcess = tff.learning.templates.LearningProcess

_AUDIT_CONFIDENCE = 0.95


def run(
  config: Config,
  *,
  task: Task | None = None,
  name: Mapping[str, Any] | None = None,
) -> TrainingResult:
  """Runs an experiment, or goes on with it where it stopped.

  Args:
    config: The settings, with `output_dir`.
    task: The data with their split; `None` for those that `config` names.
    name: Which run of the table of experiments it is, as config.json has it;
      `None` if none.

  Returns:
    How the run ended.

  Raises:
    TypeError: If a setting, or what a user's function returns, is of the wrong
      kind.
    ValueError: If the settings do not go together, or do not fit the data, or
      the folder cannot be used. Nothing has been overwritten.
    OSError: If a file cannot be written, or is damaged.
    DamagedLedgerError: If the ledger is not as it was written.
    ClusterError: If the rounds cannot be computed on the cluster.
  """
  algorithms.check(config)
  folder = RunFolder(config.output_dir)
  with contextlib.ExitStack() as stack:
    stack.enter_context(folder.open(config))

    # The settings: c, and the seeds.
    saved = folder.read_description()
    source = clipping_norm.find(config, saved)
    if source is not None:
      config = dataclasses.replace(
        config, clipping_norm=source.norm, clipping_norm_from=None
      )
    asked = config
    if algorithms.is_private(config):
      folder.check_ledger()
    drawn_seeds = folder.draw_seeds(algorithms.secret_seeds(config))
    if config.sampling_seed is None:
      config = dataclasses.replace(
        config, sampling_seed=drawn_seeds.get('sampling_seed', config.seed)
      )

    # The data, the plan, the model.
    objective = objective_lib.create_objective(config)
    task = _read_task(config, objective, task)
    if named_functions.is_own(config.task):
      # The function may have chosen the split.
      asked = dataclasses.replace(asked, **task.split_settings)
    config = dataclasses.replace(config, num_clients=task.num_clients)
    algorithms.check(config)
    plan = algorithms.find_plan(config, folder.ledger)
    model = RunModel(config, task, objective)
    # Outside of a graph, where a user's model can be looked at.
    initial_weights = model.create_initial_weights()
    model_fn = model.create_model_fn()
    description = _describe(
      asked, task, objective, run_models.count_parameters(model_fn)
    ) | dict(
      # A run that goes on stays what it was begun as.
      run=name if saved is None else saved.get('run'),
      drawn_seeds=drawn_seeds,
      clipping_norm_source=None if source is None else source.to_json(),
    )
    folder.check_unchanged(description)
    evaluate = evaluation.build_evaluation_fn(
      model_fn, task.test, objective.create_metrics(task)
    )
    store = task.write_client_store(
      # The workers of a cluster may run in other folders.
      os.path.abspath(config.cache_dir or client_store.default_cache_dir())
    )
    clients = model.preprocess(store)
    client_model_fn = learning.with_compute_dtype(
      model.create_model_fn(clients.element_spec), config.compute_dtype
    )
    run_audit = _create_audit(config, plan, folder, description)
    if run_audit is None:
      sampler = algorithms.create_sampler(config, plan, task.client_ids)
    else:
      canaries = run_audit.canaries
      sampler = run_audit.build_sampler(
        task.client_ids, seed=config.sampling_seed
      )
      clients = canary_clients.CanaryClients(clients, canaries)
      way = config.client_learning_rate * config.local_steps
      client_model_fn = learning.add_canaries(
        client_model_fn,
        canaries,
        # Far longer than c: a clip that is missing shows itself.
        gradient_norm=100 * config.clipping_norm / way,
      )

    # The process.
    where = _set_context(config, saved, store, stack)
    process = algorithms.create_process(
      config,
      plan,
      client_model_fn,
      clients=clients,
      canaries=None if run_audit is None else run_audit.canaries,
    )
    caveats = run_privacy.find_caveats(
      asked, task, None if source is None else source.exact, process
    )

    # First of all files: what makes the folder that of this run.
    folder.write_json(
      folder.config,
      description | dict(execution=where),
      is_secret=plan is not None,  # It has the seed of the cohorts.
    )
    of_privacy = RunPrivacy(config, folder, plan, caveats)
    checkpoints = Checkpoints(folder.checkpoints)
    num_done = max(checkpoints.rounds(), default=0)
    kept = None
    if client_states.kept_type(process) is not None:
      kept = client_states.ClientStates(
        folder.client_states, process, task.client_ids
      )
    with shield():
      pass  # Raises a signal whose exception was lost.

    # The loop.
    with of_privacy.open_ledger() as ledger:
      result = TrainingProgram(
        process=process,
        sampler=sampler,
        num_rounds=config.num_rounds,
        evaluate=evaluate,
        test_metrics=[f'test_{name}' for name in objective.metrics],
        rounds_per_evaluation=config.rounds_per_evaluation,
        checkpoints=checkpoints,
        rounds_per_checkpoint=config.rounds_per_checkpoint,
        watchers=[
          *_watch_clients(config, folder, run_audit),
          MetricsFiles(folder.metrics, tensorboard_dir=folder.tensorboard),
          # A run that goes on has not ended.
          AfterRounds(lambda metrics: folder.result.unlink(missing_ok=True)),
          stack.enter_context(_progress(config, objective, num_done)),
        ],
        ledger=ledger,
        exact_metrics=algorithms.measures_updates(config),
        initial_weights=initial_weights,
        client_states=kept,
      ).run()

      # The result.
      shown = []
      if run_audit is not None and result.interrupted is None:
        shown = _audit(run_audit, process, result)
      # What was released decides where a run diverges.
      is_planned = result.reason is not StopReason.DIVERGED
      said = of_privacy.describe(ledger, is_planned=is_planned)
      sentences = [result.message, *shown, *said]
    result = dataclasses.replace(result, message=' '.join(sentences))
    if result.interrupted is None:
      if result.state is not None:
        weights = process.get_model_weights(result.state)
        trained_model.write(folder.model, model.create_model(), weights)
      ended = dict(
        reason=result.reason.value,
        message=result.message,
        round_num=result.round_num,
      )
      folder.write_json(folder.result, ended)
    if num_done >= config.num_rounds:
      result = dataclasses.replace(
        result, message=f'Nothing was left to do. {result.message}'
      )
    return result


def describe_test(config: Config) -> str:
  """Returns a sentence on the metric that decides, as it was measured last."""
  objective = objective_lib.create_objective(config)
  try:
    metrics = RunFolder(config.output_dir).read_metrics()
    # A metric may be nan where the model was evaluated.
    values = metrics[objective.column][metrics['test_loss'].notna()]
  except (OSError, ValueError, KeyError):
    return ''
  if values.empty:
    return ''
  value = objective.describe(values.iloc[-1])
  return f' Test {objective.metric}: {value}.'


def _read_task(
  config: Config, objective: objective_lib.Objective, task: Task | None
) -> Task:
  """Returns the data with their split, and the test set that is asked for."""
  if task is None:
    task = registry.create_task(
      config.task,
      PartitionConfig(
        config.partition,
        num_clients=config.num_clients,
        examples_per_client=config.examples_per_client,
        dirichlet_alpha=config.dirichlet_alpha,
        shards_per_client=config.shards_per_client,
        held_out_clients=config.held_out_clients,
        seed=config.seed,
      ),
      data_dir=config.data_dir,
      kinds=objective.kinds,
    )
  objective.check_task(task)
  if algorithms.is_private(config) and task.test_is_held_out:
    raise ValueError(
      f'`task` must have a test set of its own for {config.algorithm}, found '
      f'none in {config.task}: its accuracy on examples of the clients would '
      'not be private. `held_out_clients` takes some of the clients for one.'
    )
  if algorithms.is_private(config) and task.classes_are_of_clients:
    raise ValueError(
      f'`task` must have `num_classes`, or a test example of the last class, '
      f'for {config.algorithm}, found neither in {config.task}: that a client '
      'has this class would be seen by the shape of the model.'
    )
  if config.test_examples is not None:
    task = task.with_test_examples(config.test_examples)
  return task


def _describe(
  asked: Config,
  task: Task,
  objective: objective_lib.Objective,
  num_parameters: int,
) -> dict[str, Any]:
  """Returns what config.json holds of settings, data, model and machine."""
  return dict(
    # As they were given: the seeds that are drawn stand apart.
    experiment=asked.to_json(),
    algorithm=asked.algorithm,
    # What decides, and whether 'max' or 'min' of it is better.
    metric=objective.metric,
    metric_goal=objective.goal,
    task=dict(
      name=task.name,
      source=task.source,
      num_clients=task.num_clients,
      num_train_examples=len(task.train['y']),
      num_test_examples=len(task.test['y']),
      partition=task.partition.summary,
      # What `trained_model.load` builds the model from.
      input_shape=task.input_shape,
      input_dtype=task.input_dtype,
      num_classes=task.num_classes,
      label_shape=task.label_shape,
      digest=task.compute_digest(),
    ),
    model=dict(
      name=named_functions.name_of(asked.model), num_parameters=num_parameters
    ),
    versions=environment.versions(),
    machine=environment.machine(),
  )


def _set_context(
  config: Config,
  saved: Mapping[str, Any] | None,
  store: client_store.ClientStore,
  stack: contextlib.ExitStack,
) -> dict[str, Any]:
  """Makes TFF compute where the settings say; returns what config.json has.

  A run may go on on a cluster that was begun in one process, and the other way
  round. Only the number of shards, in which the clients are added up, decides
  about the last bits of the results, so a run keeps it.
  """
  num_shards = ((saved or {}).get('execution') or {}).get('num_shards')
  if config.runtime == 'in_process':
    num_shards = num_shards or 1
    runtime.set_default_context(num_shards=num_shards)
    return dict(runtime='in_process', num_shards=num_shards)
  context = stack.enter_context(
    runtime.set_ray_context(
      address=None if config.runtime == 'ray' else config.runtime,
      num_workers=config.num_workers,
      num_shards=num_shards,
      # What the machines of a cluster must be able to read.
      required_paths=[store.path],
    )
  )
  return dict(runtime='ray', num_shards=context.num_shards)


def _create_audit(
  config: Config,
  plan: privacy.BasePlan | None,
  folder: RunFolder,
  description: Mapping[str, Any],
) -> RunAudit | None:
  if config.audit_canaries is None:
    return None
  return RunAudit(
    folder.audit,
    plan=plan,
    canaries=audit.Canaries(
      num_canaries=2 * config.audit_canaries,
      num_parameters=description['model']['num_parameters'],
      seed=description['drawn_seeds']['audit_seed'],
      relation=plan.relation,
    ),
    release_unit=config.clipping_norm / plan.clients_per_round,
  )


def _watch_clients(
  config: Config, folder: RunFolder, run_audit: RunAudit | None
) -> Iterator[RoundWatcher]:
  """Yields what is shown the clients' work, where that is measured."""
  if algorithms.measures_updates(config):
    yield UpdateRecords(
      folder.updates,
      rounds=config.update_rounds,
      clipping_norm=(
        config.clipping_norm
        if config.clipping == 'fixed' and config.aggregator is None
        else math.nan
      ),
    )
  if run_audit is not None:
    yield run_audit


def _audit(
  run_audit: RunAudit, process: LearningProcess, result: TrainingResult
) -> list[str]:
  """Writes audit.json; returns what it shows, in a sentence."""
  if result.round_num == 0:
    return []  # Nothing was released.
  weights = process.get_model_weights(result.state)
  run_audit.record_model(result.round_num, weights.trainable)
  try:
    found = run_audit.write(confidence=_AUDIT_CONFIDENCE)
  except ValueError as e:
    # A program that was killed may have lost a release that its outcome does
    # not have. The run has ended all the same.
    return [f'There is no audit: {e}']
  verdict = 'refutes' if found.is_refuted else 'does not refute'
  at_least = [
    rounding.format_down(bound, digits=3)
    for bound in (found.epsilon_lower_bound, found.gaussian_epsilon_lower_bound)
  ]
  return [
    f'The audit {verdict} the plan: with {found.confidence:.0%} confidence, '
    f'epsilon is at least {at_least[0]} for any mechanism '
    f'and {at_least[1]} for a Gaussian one; if the '
    f'plan holds, it is at most {rounding.format_up(found.claimed_epsilon)}.'
  ]


@contextlib.contextmanager
def _progress(
  config: Config, objective: objective_lib.Objective, num_done: int
) -> Iterator[AfterRounds]:
  """Shows a bar with the round, what decides and the seconds a round."""
  with tqdm.tqdm(
    total=config.num_rounds,
    initial=num_done,
    desc=config.algorithm,
    unit='round',
    file=sys.stderr,
    # No bar where nobody looks, either.
    disable=True if num_done >= config.num_rounds else None,
  ) as bar:
    shown = {}

    def show(metrics) -> None:
      if not np.isnan(metrics['test_loss']):
        value = objective.describe(metrics[objective.column])
        shown[objective.metric] = value
      if not np.isnan(metrics['round_seconds']):
        shown['s/round'] = f'{metrics["round_seconds"]:.2f}'
      bar.set_postfix(shown, refresh=False)
      bar.update(metrics['round_num'] - bar.n)

    yield AfterRounds(show)
