"""Runs an experiment: from its configuration to the files of its run folder."""

import contextlib
import dataclasses
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow_federated as tff
import tqdm

from tasks.algorithms import aggregation_text
from tasks.algorithms.experiment import ExperimentConfig
from tasks.data.task import Task
from tasks.models import evaluation
from tasks.running import caveats, plans, run_parts, trained_model
from tasks.running.execution import Execution
from tasks.running.own_parts import OURS, OwnParts
from tasks.running.run_folder import GIVEN, RunFolder
from tasks.settings import interrupts
from tff_clipping import privacy, storage_errors
from tff_clipping.privacy.accounting import rounding
from tff_clipping.privacy.plans import plan_text
from tff_clipping.programs.audit import canary_clients
from tff_clipping.programs.audit.run_audit import RunAudit
from tff_clipping.programs.clients import client_sampling, client_store
from tff_clipping.programs.training.checkpoints import Checkpoints
from tff_clipping.programs.training.metrics_files import MetricsFiles
from tff_clipping.programs.training.training_program import (
  TrainingProgram,
  TrainingResult,
)
from tff_clipping.programs.training.update_records import (
  EstimateFn,
  UpdateRecords,
)
from tff_clipping.programs.training.watchers import AfterRounds, RoundWatcher
from tff_clipping.runtime import environment

_AUDIT_CONFIDENCE = 0.95


def run(
  config: ExperimentConfig,
  folder: RunFolder,
  *,
  resume: bool = True,
  data_dir: str | None = None,
  cache_dir: str | None = None,
  checkpoints_to_keep: int = 2,
  clipping_norm_source: str | None = None,
  execution: Execution | None = None,
  own: OwnParts = OURS,
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
    clipping_norm_source: From what data of the clients c comes; `None` if it
      was given.
    execution: Where the rounds are computed; `None` for this process.
    own: What is not ours, and not to be loaded by the name in `config`.

  Returns:
    How the run ended.

  Raises:
    ValueError: If the configuration does not fit the data, or `folder` cannot
      be used. Nothing has been overwritten.
    OSError: If a file cannot be written, or is damaged.
    ClusterError: If the rounds cannot be computed on the cluster.
  """
  folder.check(config, resume=resume)
  config = folder.kept_settings(config)
  execution = execution or Execution()
  # The workers of a cluster may run in other folders.
  cache_dir = os.path.abspath(cache_dir or client_store.default_cache_dir())
  parts = _prepare(
    config,
    folder,
    data_dir=data_dir,
    cache_dir=cache_dir,
    clipping_norm_source=clipping_norm_source,
    own=own,
  )
  description = _description(parts)
  with folder.open(config, resume=resume), contextlib.ExitStack() as stack:
    stack.enter_context(folder.temporary_files())
    folder.check_unchanged(description)
    store = parts.task.write_client_store(cache_dir)
    where = stack.enter_context(
      execution.start(folder, required_paths=[store.path])
    )
    process, estimate_norms = _create_process(parts, store)
    # First of all files: what makes the folder that of this run.
    folder.write_json(
      folder.config,
      description | dict(execution=where),
      is_secret=config.is_private,  # It has the seed of the cohorts.
    )
    folder.result.unlink(missing_ok=True)
    ledger = None
    if parts.plan is not None:
      ledger = stack.enter_context(_open_ledger(folder, parts))
    _write_privacy(folder, parts, ledger)
    checkpoints = Checkpoints(folder.checkpoints, keep=checkpoints_to_keep)
    num_done = checkpoints.latest() or 0
    interrupts.check()
    _announce(parts)
    program = TrainingProgram(
      process=process,
      sampler=parts.sampler,
      num_rounds=config.num_rounds,
      evaluate=evaluation.build_evaluation_fn(parts.model_fn, parts.task.test),
      rounds_per_evaluation=config.rounds_per_evaluation,
      checkpoints=checkpoints,
      rounds_per_checkpoint=config.rounds_per_checkpoint,
      watchers=[
        *_watch_clients(parts, folder, estimate_norms),
        MetricsFiles(folder.metrics, tensorboard_dir=folder.tensorboard),
        stack.enter_context(_progress(config, num_done)),
      ],
      ledger=ledger,
      exact_metrics=config.measures_updates,
      initial_weights=run_parts.create_initial_weights(
        config, parts.task, parts.own
      ),
    )
    try:
      result = program.run()
    except BaseException:
      # The caveats of its rounds; what went wrong comes first.
      with contextlib.suppress(OSError):
        _write_privacy(folder, parts, ledger)
      raise
    _write_privacy(folder, parts, ledger)
    result = _add_to_message(result, parts, process, ledger)
    if result.interrupted is None:
      _write_results(result, parts, process, folder)
    if num_done >= config.num_rounds:
      result = dataclasses.replace(
        result, message=f'Nothing was left to do. {result.message}'
      )
    return result


@dataclasses.dataclass(frozen=True)
class _Parts:
  """What a run is made of, before it has files.

  Attributes:
    asked: The settings as they were given.
    drawn_seeds: The seeds that were not, by name.
    config: The settings with these seeds.
    clipping_norm_source: From what data of the clients c comes.
    own: What is not ours.
    task: The data, split over the clients.
    plan: The privacy plan; `None` for a run without.
    model_fn: Returns a new model, for the evaluation.
    run_audit: The audit; `None` for a run without.
    sampler: Draws the cohorts.
    caveats: Why the guarantee of the plan does not hold as it was run.
  """

  asked: ExperimentConfig
  drawn_seeds: dict[str, int]
  config: ExperimentConfig
  clipping_norm_source: str | None
  own: OwnParts
  task: Task
  plan: privacy.BasePlan | None
  model_fn: Callable[[], tff.learning.models.VariableModel]
  run_audit: RunAudit | None
  sampler: client_sampling.ClientSampler
  caveats: tuple[str, ...]


def _prepare(
  asked: ExperimentConfig,
  folder: RunFolder,
  *,
  data_dir: str | None,
  cache_dir: str,
  clipping_norm_source: str | None,
  own: OwnParts,
) -> _Parts:
  """Makes the parts of a run; see `run` for the arguments."""
  drawn_seeds = folder.draw_seeds(asked)
  config = dataclasses.replace(asked, **drawn_seeds)
  own = own.with_named(config)
  task = run_parts.create_task(
    config, data_dir=data_dir, cache_dir=cache_dir, own=own
  )
  with _reading_ledger():
    plan = plans.find_plan(config, task.num_clients, folder)
  model_fn = run_parts.create_model_fn(config, task, own=own)
  run_audit = run_parts.create_audit(config, plan, folder, model_fn)
  sampler = (
    run_parts.create_sampler(config, plan, task.client_ids)
    if run_audit is None
    else run_audit.build_sampler(task.client_ids, seed=config.sampling_seed)
  )
  # A run that goes on may get as a number what came from data at its start.
  source = clipping_norm_source or folder.clipping_norm_source()
  return _Parts(
    asked=asked,
    drawn_seeds=drawn_seeds,
    config=config,
    clipping_norm_source=source,
    own=own,
    task=task,
    plan=plan,
    model_fn=model_fn,
    run_audit=run_audit,
    sampler=sampler,
    caveats=caveats.find(asked, task, source),
  )


def _create_process(
  parts: _Parts, store: client_store.ClientStore
) -> tuple[tff.learning.templates.LearningProcess, EstimateFn | None]:
  """Returns the process, and what estimates expected norms of its updates."""
  config = parts.config
  clients = run_parts.preprocess(store, parts.own)
  model_fn = run_parts.create_client_model_fn(
    config, parts.task, clients, parts.own
  )
  canaries = None
  if parts.run_audit is not None:
    canaries = parts.run_audit.canaries
    clients = canary_clients.CanaryClients(clients, canaries)
    model_fn = run_parts.add_canaries(config, model_fn, canaries)
  process = run_parts.create_process(
    config, parts.plan, model_fn, clients, canaries, parts.own
  )
  return process, run_parts.create_update_estimate(config, model_fn, clients)


def _announce(parts: _Parts) -> None:
  """Says what a private run will promise; nothing where nobody looks."""
  if parts.plan is not None and sys.stderr.isatty():
    described = parts.plan.describe(parts.caveats)
    print(f'{parts.config.algorithm}: {described}', file=sys.stderr)


def _open_ledger(folder: RunFolder, parts: _Parts) -> privacy.PrivacyLedger:
  with _reading_ledger(), storage_errors.writing('The ledger'):
    return privacy.PrivacyLedger(
      folder.ledger, parts.plan, caveats=parts.caveats
    )


@contextlib.contextmanager
def _reading_ledger() -> Iterator[None]:
  """Says of a damaged ledger that it is a file, and not a setting."""
  try:
    yield
  except privacy.DamagedLedgerError as e:
    raise storage_errors.StorageError(str(e)) from e


def _write_privacy(
  folder: RunFolder, parts: _Parts, ledger: privacy.PrivacyLedger | None
) -> None:
  """Writes privacy.json, with all caveats that the ledger has."""
  if ledger is not None:
    content = {
      **parts.plan.to_json(ledger.caveats),
      'aggregation': aggregation_text.describe(parts.config),
    }
    folder.write_json(folder.privacy, content)


def _watch_clients(
  parts: _Parts, folder: RunFolder, estimate_norms: EstimateFn | None
) -> Iterator[RoundWatcher]:
  """Yields what is shown the clients' work, where that is measured."""
  config = parts.config
  if config.measures_updates:
    yield UpdateRecords(
      folder.updates,
      rounds=config.update_rounds,
      clipping_norm=config.clipping_norm,
      clips_otherwise=config.clips_otherwise,
      expected_norms=estimate_norms,
    )
  if parts.run_audit is not None:
    yield parts.run_audit


def _add_to_message(
  result: TrainingResult,
  parts: _Parts,
  process: tff.learning.templates.LearningProcess,
  ledger: privacy.PrivacyLedger | None,
) -> TrainingResult:
  """Adds what was charged, what takes the guarantee away, what the audit shows.

  Args:
    result: How the run ended.
    parts: What it was made of.
    process: Its process.
    ledger: Its ledger; `None` for a run that is not private.
  """
  sentences = [result.message]
  if ledger is not None and ledger.num_releases:
    charged = plan_text.state_guarantee(
      ledger.actual_epsilon,
      ledger.plan.target_delta,
      ledger.plan.actual_relation,
    )
    sentences.append(f'Charged: {charged}.')
  if parts.run_audit is not None and result.interrupted is None:
    sentences += _audit(parts.run_audit, process, result)
  # Those of the run's first start are among the ledger's.
  found_caveats = parts.caveats if ledger is None else ledger.caveats
  if found_caveats:
    sentences.append(plan_text.state_caveats(found_caveats))
  return dataclasses.replace(result, message=' '.join(sentences))


def _write_results(
  result: TrainingResult,
  parts: _Parts,
  process: tff.learning.templates.LearningProcess,
  folder: RunFolder,
) -> None:
  """Writes the trained model, if there is one, and result.json."""
  if result.state is not None:
    trained_model.write(
      folder.model,
      run_parts.create_task_model(parts.config, parts.task, own=parts.own),
      process.get_model_weights(result.state).trainable,
    )
  folder.write_json(
    folder.result,
    dict(
      reason=result.reason.value,
      message=result.message,
      round_num=result.round_num,
    ),
  )


def _description(parts: _Parts) -> dict[str, Any]:
  """Returns the contents of config.json."""
  config, task = parts.config, parts.task
  return dict(
    experiment=parts.asked.to_json(),
    drawn_seeds=parts.drawn_seeds,
    algorithm=config.algorithm,
    clipping_norm_source=(
      None
      if config.clipping_norm is None
      else parts.clipping_norm_source or GIVEN
    ),
    task=dict(
      name=task.name,
      source=task.source,
      num_clients=task.num_clients,
      num_train_examples=len(task.train['y']),
      num_test_examples=len(task.test['y']),
      partition=task.summary,
      # What `trained_model.load` builds the model from.
      input_shape=list(task.input_shape),
      input_dtype=task.train['x'].dtype.name,
      num_classes=task.num_classes,
      is_sequence=task.is_sequence,
      digest=task.digest or task.compute_digest(),
    ),
    model=dict(
      name=config.model,
      num_parameters=run_parts.count_parameters(parts.model_fn),
    ),
    versions=environment.versions(),
    machine=environment.machine(),
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
  at_least = [
    rounding.format_down(bound, digits=3)
    for bound in (found.epsilon_lower_bound, found.gaussian_epsilon_lower_bound)
  ]
  return [
    f'The audit {verdict} the plan: with {found.confidence:.0%} confidence, '
    f'epsilon is at least {at_least[0]} for any mechanism '
    f'and {at_least[1]} for a Gaussian one; if the '
    f'plan holds, it is at most {rounding.format_up(found.actual_epsilon)}.'
  ]


@contextlib.contextmanager
def _progress(config: ExperimentConfig, num_done: int) -> Iterator[AfterRounds]:
  """Shows a bar with the round, the accuracy and the seconds a round.

  Args:
    config: The experiment.
    num_done: The rounds that were done before. If all were, there is no bar.
  """
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
      if not np.isnan(metrics['test_accuracy']):
        shown['accuracy'] = f'{metrics["test_accuracy"]:.1%}'
      if not np.isnan(metrics['round_seconds']):
        shown['s/round'] = f'{metrics["round_seconds"]:.2f}'
      bar.set_postfix(shown, refresh=False)
      bar.update(metrics['round_num'] - bar.n)

    yield AfterRounds(show)
