"""Runs an experiment: from its configuration to the files of its run folder."""

import contextlib
import dataclasses
import sys
from collections.abc import Iterator

import numpy as np
import tensorflow_federated as tff
import tqdm

from tasks.algorithms.experiment import ExperimentConfig
from tasks.experiments import named_runs
from tasks.models import run_models
from tasks.running import run_parts, run_privacy, trained_model
from tasks.running.execution import Execution
from tasks.running.run_folder import GIVEN, RunFolder
from tasks.running.run_privacy import RunPrivacy
from tasks.running.user_parts import NO_USER_PARTS, UserParts
from tasks.settings import interrupts
from tff_clipping import privacy
from tff_clipping.privacy.accounting import rounding
from tff_clipping.programs.audit import canary_clients
from tff_clipping.programs.audit.run_audit import RunAudit
from tff_clipping.programs.clients import client_store
from tff_clipping.programs.training.checkpoints import Checkpoints
from tff_clipping.programs.training.metrics_files import MetricsFiles
from tff_clipping.programs.training.training_program import (
  TrainingProgram,
  TrainingResult,
)
from tff_clipping.programs.training.update_records import UpdateRecords
from tff_clipping.programs.training.watchers import AfterRounds, RoundWatcher
from tff_clipping.runtime import environment

LearningProcess = tff.learning.templates.LearningProcess

_AUDIT_CONFIDENCE = 0.95


def run(
  config: ExperimentConfig,
  folder: RunFolder,
  execution: Execution,
  *,
  clipping_norm_source: str | None = None,
  run_name: named_runs.NamedRun | None = None,
  user: UserParts = NO_USER_PARTS,
) -> TrainingResult:
  """Runs an experiment, or goes on with it where it stopped.

  Args:
    config: What to do.
    folder: Where its files go.
    execution: How it is executed.
    clipping_norm_source: From what data of the clients c comes; `None` if it
      was given.
    run_name: Which run of the table of experiments it is; `None` if none.
    user: What is the user's own, and not to be loaded by the name in `config`.

  Returns:
    How the run ended.

  Raises:
    ValueError: If the configuration does not fit the data, or `folder` cannot
      be used. Nothing has been overwritten.
    OSError: If a file cannot be written, or is damaged.
    ClusterError: If the rounds cannot be computed on the cluster.
  """
  folder.check(config, resume=execution.resume)
  asked = folder.kept_settings(config)
  # A run that goes on may get as a number what came from data at its start.
  source = clipping_norm_source or folder.clipping_norm_source()
  return _Run(asked, folder, execution, source, run_name, user).run()


class _Run:
  """A run: what it is made of, and then its files."""

  def __init__(
    self,
    asked: ExperimentConfig,
    folder: RunFolder,
    execution: Execution,
    clipping_norm_source: str | None,
    run_name: named_runs.NamedRun | None,
    user: UserParts,
  ):
    """Makes the parts of a run, and no file; see `run` for the arguments."""
    drawn_seeds = folder.draw_seeds(asked)
    config = dataclasses.replace(asked, **drawn_seeds)
    parts = run_parts.create_run_parts(config, execution, user)
    task = parts.task
    plan = run_privacy.find_plan(config, task.num_clients, folder)
    # Outside of a graph, where a user's model can be looked at.
    self.initial_weights = parts.model.create_initial_weights()
    self.model_fn = parts.model.create_model_fn()
    self.run_audit = parts.create_audit(plan, folder.audit, self.model_fn)
    self.sampler = (
      parts.create_sampler(plan)
      if self.run_audit is None
      else self.run_audit.build_sampler(
        task.client_ids, seed=config.sampling_seed
      )
    )
    caveats = run_privacy.find_caveats(asked, task, clipping_norm_source)
    self.privacy = RunPrivacy(config, folder, plan, caveats)
    # The settings as they were given, and with the seeds that were drawn.
    self.asked, self.config = asked, config
    self.folder, self.execution, self.parts = folder, execution, parts
    # The contents of config.json.
    self.description = dict(
      run=None if run_name is None else run_name.to_json(),
      experiment=asked.to_json(),
      drawn_seeds=drawn_seeds,
      algorithm=config.algorithm,
      # What decides, and whether 'max' or 'min' of it is better.
      metric=config.objective.metric,
      metric_goal=config.objective.goal,
      clipping_norm_source=(
        None if config.clipping_norm is None else clipping_norm_source or GIVEN
      ),
      task=dict(
        name=task.name,
        source=task.source,
        num_clients=task.num_clients,
        num_train_examples=task.num_train_examples,
        num_test_examples=task.num_test_examples,
        partition=task.summary,
        # What `trained_model.load` builds the model from.
        input_shape=task.input_shape,
        input_dtype=task.input_dtype,
        num_classes=task.num_classes,
        label_shape=task.label_shape,
        digest=task.digest or task.compute_digest(),
      ),
      model=dict(
        name=config.model,
        num_parameters=run_models.count_parameters(self.model_fn),
      ),
      versions=environment.versions(),
      machine=environment.machine(),
    )

  def run(self) -> TrainingResult:
    """Trains until the run ends, or is interrupted."""
    config, folder = self.config, self.folder
    with contextlib.ExitStack() as stack:
      stack.enter_context(folder.open(self.asked, resume=self.execution.resume))
      stack.enter_context(folder.temporary_files())
      folder.check_unchanged(self.description)
      store = self.parts.write_client_store()
      where = stack.enter_context(
        self.execution.start(folder, required_paths=[store.path])
      )
      process = self._create_process(store)
      self.privacy = self.privacy.of_process(process)
      # First of all files: what makes the folder that of this run.
      folder.write_json(
        folder.config,
        self.description | dict(execution=where),
        is_secret=config.is_private,  # It has the seed of the cohorts.
      )
      folder.result.unlink(missing_ok=True)
      ledger = stack.enter_context(self.privacy.open_ledger())
      self.privacy.write(ledger)
      checkpoints = Checkpoints(
        folder.checkpoints, keep=self.execution.checkpoints_to_keep
      )
      num_done = max(checkpoints.rounds(), default=0)
      interrupts.check()
      self.privacy.announce()
      program = TrainingProgram(
        process=process,
        sampler=self.sampler,
        num_rounds=config.num_rounds,
        evaluate=self.parts.model.build_evaluation_fn(self.model_fn),
        test_metrics=[
          f'test_{metric.name}' for metric in config.objective.metrics
        ],
        rounds_per_evaluation=config.rounds_per_evaluation,
        checkpoints=checkpoints,
        rounds_per_checkpoint=config.rounds_per_checkpoint,
        watchers=[
          *self._watch_clients(),
          MetricsFiles(folder.metrics, tensorboard_dir=folder.tensorboard),
          stack.enter_context(_progress(config, num_done)),
        ],
        ledger=ledger,
        exact_metrics=config.measures_updates,
        initial_weights=self.initial_weights,
        client_states=self.parts.create_client_states(
          folder.client_states, process
        ),
      )
      try:
        result = program.run()
      except BaseException:
        # The caveats of its rounds; what went wrong comes first.
        with contextlib.suppress(OSError):
          self.privacy.write(ledger)
        raise
      self.privacy.write(ledger)
      result = self._add_to_message(result, process, ledger)
      if result.interrupted is None:
        self._write_results(result, process)
      if num_done >= config.num_rounds:
        result = dataclasses.replace(
          result, message=f'Nothing was left to do. {result.message}'
        )
      return result

  def _create_process(self, store: client_store.ClientStore) -> LearningProcess:
    """Returns the process on the clients of a store."""
    clients = self.parts.model.preprocess(store)
    model_fn = self.parts.model.create_client_model_fn(clients)
    canaries = None
    if self.run_audit is not None:
      canaries = self.run_audit.canaries
      clients = canary_clients.CanaryClients(clients, canaries)
      model_fn = self.parts.add_canaries(model_fn, canaries)
    return self.parts.create_process(
      self.privacy.plan, model_fn, clients, canaries
    )

  def _watch_clients(self) -> Iterator[RoundWatcher]:
    """Yields what is shown the clients' work, where that is measured."""
    config = self.config
    if config.measures_updates:
      yield UpdateRecords(
        self.folder.updates,
        rounds=config.update_rounds,
        clipping_norm=config.clipping_norm,
        clips_otherwise=not config.builder.is_cut_to_clipping_norm,
      )
    if self.run_audit is not None:
      yield self.run_audit

  def _add_to_message(
    self,
    result: TrainingResult,
    process: LearningProcess,
    ledger: privacy.PrivacyLedger | None,
  ) -> TrainingResult:
    """Adds what was charged, what the audit shows, what the guarantee lacks."""
    shown = []
    if self.run_audit is not None and result.interrupted is None:
      shown = _audit(self.run_audit, process, result)
    sentences = [
      result.message,
      *self.privacy.describe_charged(ledger),
      *shown,
      *self.privacy.describe_caveats(ledger),
    ]
    return dataclasses.replace(result, message=' '.join(sentences))

  def _write_results(
    self, result: TrainingResult, process: LearningProcess
  ) -> None:
    """Writes the trained model, if there is one, and result.json."""
    if result.state is not None:
      trained_model.write(
        self.folder.model,
        self.parts.model.create_model(),
        process.get_model_weights(result.state),
      )
    self.folder.write_json(
      self.folder.result,
      dict(
        reason=result.reason.value,
        message=result.message,
        round_num=result.round_num,
      ),
    )


def _audit(
  run_audit: RunAudit,
  process: LearningProcess,
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
  """Shows a bar with the round, what decides and the seconds a round.

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
    objective = config.objective

    def show(metrics) -> None:
      value = metrics[objective.column]
      if not np.isnan(value):
        shown[objective.metric] = objective.describe(value)
      if not np.isnan(metrics['round_seconds']):
        shown['s/round'] = f'{metrics["round_seconds"]:.2f}'
      bar.set_postfix(shown, refresh=False)
      bar.update(metrics['round_num'] - bar.n)

    yield AfterRounds(show)
