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

from tasks.algorithms.experiment import ExperimentConfig
from tasks.experiments import named_runs
from tasks.models import evaluation
from tasks.running import run_parts, run_privacy, trained_model
from tasks.running.execution import Execution
from tasks.running.run_folder import GIVEN, RunFolder
from tasks.running.run_parts import RunParts
from tasks.running.run_privacy import RunPrivacy
from tasks.running.user_parts import NO_USER_PARTS, UserParts
from tasks.settings import interrupts
from tff_clipping import privacy
from tff_clipping.privacy.accounting import rounding
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
  run_name: named_runs.NamedRun | None = None,
  execution: Execution | None = None,
  user: UserParts = NO_USER_PARTS,
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
    run_name: Which run of the table of experiments it is; `None` if none.
    execution: Where the rounds are computed; `None` for this process.
    user: What is the user's own, and not to be loaded by the name in `config`.

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
    user=user,
  )
  description = _description(parts, run_name)
  with folder.open(config, resume=resume), contextlib.ExitStack() as stack:
    stack.enter_context(folder.temporary_files())
    folder.check_unchanged(description)
    store = parts.of_run.task.write_client_store(cache_dir)
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
    ledger = stack.enter_context(parts.privacy.open_ledger())
    parts.privacy.write(ledger)
    checkpoints = Checkpoints(folder.checkpoints, keep=checkpoints_to_keep)
    num_done = checkpoints.latest() or 0
    interrupts.check()
    parts.privacy.announce()
    program = TrainingProgram(
      process=process,
      sampler=parts.sampler,
      num_rounds=config.num_rounds,
      evaluate=evaluation.build_evaluation_fn(
        parts.model_fn, parts.of_run.task.test
      ),
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
      initial_weights=parts.initial_weights,
    )
    try:
      result = program.run()
    except BaseException:
      # The caveats of its rounds; what went wrong comes first.
      with contextlib.suppress(OSError):
        parts.privacy.write(ledger)
      raise
    parts.privacy.write(ledger)
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
  """A run before it has files.

  Attributes:
    asked: The settings as they were given.
    drawn_seeds: The seeds that were not, by name; `of_run.config` has them.
    clipping_norm_source: From what data of the clients c comes.
    of_run: What it is made of.
    privacy: Its plan, and what does not hold of it.
    initial_weights: What the model begins with, if it is the user's.
    model_fn: Returns a new model, for the evaluation.
    run_audit: The audit; `None` for a run without.
    sampler: Draws the cohorts.
  """

  asked: ExperimentConfig
  drawn_seeds: dict[str, int]
  clipping_norm_source: str | None
  of_run: RunParts
  privacy: RunPrivacy
  initial_weights: tff.learning.models.ModelWeights | None
  model_fn: Callable[[], tff.learning.models.VariableModel]
  run_audit: RunAudit | None
  sampler: client_sampling.ClientSampler


def _prepare(
  asked: ExperimentConfig,
  folder: RunFolder,
  *,
  data_dir: str | None,
  cache_dir: str,
  clipping_norm_source: str | None,
  user: UserParts,
) -> _Parts:
  """Makes the parts of a run; see `run` for the arguments."""
  drawn_seeds = folder.draw_seeds(asked)
  config = dataclasses.replace(asked, **drawn_seeds)
  of_run = run_parts.create_run_parts(
    config, user, data_dir=data_dir, cache_dir=cache_dir
  )
  task = of_run.task
  plan = run_privacy.find_plan(config, task.num_clients, folder)
  # Outside of a graph, where a user's model can be looked at.
  initial_weights = of_run.create_initial_weights()
  model_fn = of_run.create_model_fn()
  run_audit = of_run.create_audit(plan, folder.audit, model_fn)
  # A run that goes on may get as a number what came from data at its start.
  source = clipping_norm_source or folder.clipping_norm_source()
  return _Parts(
    asked=asked,
    drawn_seeds=drawn_seeds,
    clipping_norm_source=source,
    of_run=of_run,
    privacy=RunPrivacy(
      config, folder, plan, run_privacy.find_caveats(asked, task, source)
    ),
    initial_weights=initial_weights,
    model_fn=model_fn,
    run_audit=run_audit,
    sampler=(
      of_run.create_sampler(plan)
      if run_audit is None
      else run_audit.build_sampler(task.client_ids, seed=config.sampling_seed)
    ),
  )


def _create_process(
  parts: _Parts, store: client_store.ClientStore
) -> tuple[tff.learning.templates.LearningProcess, EstimateFn | None]:
  """Returns the process, and what estimates expected norms of its updates."""
  of_run = parts.of_run
  clients = of_run.preprocess(store)
  model_fn = of_run.create_client_model_fn(clients)
  canaries = None
  if parts.run_audit is not None:
    canaries = parts.run_audit.canaries
    clients = canary_clients.CanaryClients(clients, canaries)
    model_fn = of_run.add_canaries(model_fn, canaries)
  process = of_run.create_process(
    parts.privacy.plan, model_fn, clients, canaries
  )
  return process, of_run.create_update_estimate(model_fn, clients)


def _watch_clients(
  parts: _Parts, folder: RunFolder, estimate_norms: EstimateFn | None
) -> Iterator[RoundWatcher]:
  """Yields what is shown the clients' work, where that is measured."""
  config = parts.of_run.config
  if config.measures_updates:
    yield UpdateRecords(
      folder.updates,
      rounds=config.update_rounds,
      clipping_norm=config.clipping_norm,
      clips_otherwise=not config.builder.is_cut_to_clipping_norm,
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
  """Adds what was charged, what the audit shows, what the guarantee lacks.

  Args:
    result: How the run ended.
    parts: What it was made of.
    process: Its process.
    ledger: Its ledger; `None` for a run that is not private.
  """
  shown = []
  if parts.run_audit is not None and result.interrupted is None:
    shown = _audit(parts.run_audit, process, result)
  sentences = [
    result.message,
    *parts.privacy.describe_charged(ledger),
    *shown,
    *parts.privacy.describe_caveats(ledger),
  ]
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
      parts.of_run.create_model(),
      process.get_model_weights(result.state),
    )
  folder.write_json(
    folder.result,
    dict(
      reason=result.reason.value,
      message=result.message,
      round_num=result.round_num,
    ),
  )


def _description(
  parts: _Parts, run_name: named_runs.NamedRun | None
) -> dict[str, Any]:
  """Returns the contents of config.json."""
  config, task = parts.of_run.config, parts.of_run.task
  return dict(
    run=None if run_name is None else run_name.to_json(),
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
      label_shape=list(task.label_shape),
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
