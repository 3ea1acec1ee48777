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
from tasks import (
  aggregation_text,
  evaluation,
  plans,
  run_parts,
  trained_model,
)
from tasks.execution import Execution
from tasks.experiment import ExperimentConfig
from tasks.own_parts import OURS, OwnParts
from tasks.run_folder import RunFolder
from tasks.task import Task
from tff_clipping import privacy
from tff_clipping.privacy import plan_text
from tff_clipping.programs import (
  canary_clients,
  client_store,
  managers,
  storage,
)
from tff_clipping.programs.checkpoints import Checkpoints
from tff_clipping.programs.run_audit import RunAudit
from tff_clipping.programs.training import TrainingProgram, TrainingResult
from tff_clipping.programs.update_records import UpdateRecords

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
  execution = execution or Execution()
  # The workers of a cluster may run in other folders.
  cache_dir = os.path.abspath(cache_dir or client_store.default_cache_dir())
  caveats = config.caveats
  config = folder.with_drawn_seeds(config)
  own = own.with_named(config)
  task = run_parts.create_task(
    config, data_dir=data_dir, cache_dir=cache_dir, own=own
  )
  if config.is_private:
    caveats += _caveats_of_data(task, clipping_norm_source)
  plan = plans.create_plan(config, task.num_clients)
  model_fn = run_parts.create_model_fn(config, task, own=own)
  run_audit = run_parts.create_audit(config, plan, folder, model_fn)
  sampler = (
    run_parts.create_sampler(config, plan, task.client_ids)
    if run_audit is None
    else run_audit.build_sampler(task.client_ids, seed=config.sampling_seed)
  )
  description = _description(config, task, model_fn, clipping_norm_source)
  with folder.open(config, resume=resume), contextlib.ExitStack() as stack:
    stack.enter_context(folder.temporary_files())
    folder.check_unchanged(description)
    store = task.write_client_store(cache_dir)
    where = stack.enter_context(
      execution.start(folder, required_paths=[store.path])
    )
    clients = run_parts.preprocess(store, own)
    client_model_fn = run_parts.create_client_model_fn(
      config, task, clients, own
    )
    canaries = None
    if run_audit is not None:
      canaries = run_audit.canaries
      clients = canary_clients.CanaryClients(clients, canaries)
      client_model_fn = run_parts.add_canaries(
        config, client_model_fn, canaries
      )
    process = run_parts.create_process(
      config, plan, client_model_fn, clients, canaries, own
    )
    # First of all files: what makes the folder that of this run.
    folder.write_json(
      folder.config,
      description | dict(execution=where),
      is_secret=config.is_private,  # It has the seed of the cohorts.
    )
    folder.result.unlink(missing_ok=True)
    ledger = None
    if plan is not None:
      ledger = stack.enter_context(_open_ledger(folder, plan, caveats))
      caveats = ledger.caveats
      folder.write_json(
        folder.privacy,
        {
          **plan.to_json(caveats),
          'aggregation': aggregation_text.describe(config),
        },
      )
      # The states have the key of the noise.
      folder.checkpoints.mkdir(mode=0o700, exist_ok=True)
    checkpoints = Checkpoints(folder.checkpoints, keep=checkpoints_to_keep)
    num_done = checkpoints.latest() or 0
    program = TrainingProgram(
      process=process,
      sampler=sampler,
      num_rounds=config.num_rounds,
      evaluate=evaluation.build_evaluation_fn(model_fn, task.test),
      rounds_per_evaluation=config.rounds_per_evaluation,
      checkpoints=checkpoints,
      rounds_per_checkpoint=config.rounds_per_checkpoint,
      release_managers=managers.create_release_managers(
        metrics_path=folder.metrics, tensorboard_dir=folder.tensorboard
      ),
      ledger=ledger,
      update_records=UpdateRecords(
        folder.updates,
        rounds=config.update_rounds,
        clipping_norm=config.clipping_norm,
        clips_otherwise=config.clips_otherwise,
        expected_norms=run_parts.create_update_estimate(
          config, client_model_fn, clients
        ),
      )
      if config.measures_updates
      else None,
      run_audit=run_audit,
      measures_cohorts=config.measures_updates,
      on_round=stack.enter_context(_progress(config, num_done)),
    )
    result = program.run()
    sentences = [result.message]
    if run_audit is not None and result.interrupted is None:
      sentences += _audit(run_audit, process, result)
    if caveats:
      sentences.append(plan_text.state_caveats(caveats))
    result = dataclasses.replace(result, message=' '.join(sentences))
    if result.interrupted is None:
      if result.state is not None:
        trained_model.write(
          folder.model,
          run_parts.create_task_model(config, task, own=own),
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
    if num_done >= config.num_rounds:
      result = dataclasses.replace(
        result, message=f'Nothing was left to do. {result.message}'
      )
    return result


def _caveats_of_data(
  task: Task, clipping_norm_source: str | None
) -> tuple[str, ...]:
  """Returns what exact figures of the clients a private run rests on."""
  reasons = {
    "the clipping norm is an exact figure of the clients' data": (
      clipping_norm_source is not None
    ),
    'the test set has examples of the clients, and what the model does on it '
    'is measured exactly': task.test_is_of_clients,
  }
  return tuple(reason for reason, applies in reasons.items() if applies)


def _open_ledger(
  folder: RunFolder, plan: privacy.BasePlan, caveats: Sequence[str]
) -> privacy.PrivacyLedger:
  try:
    with storage.writing('The ledger'):
      return privacy.PrivacyLedger(folder.ledger, plan, caveats=caveats)
  except privacy.DamagedLedgerError as e:
    raise storage.StorageError(str(e)) from e


def _description(
  config: ExperimentConfig,
  task: Task,
  model_fn,
  clipping_norm_source: str | None,
) -> dict[str, Any]:
  """Returns the contents of config.json."""
  return dict(
    experiment=config.to_json(),
    algorithm=config.algorithm,
    clipping_norm_source=(
      None if config.clipping_norm is None else clipping_norm_source or 'given'
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
      digest=task.digest,
    ),
    model=dict(
      name=config.model, num_parameters=run_parts.count_parameters(model_fn)
    ),
    versions=collections.OrderedDict(
      tff_clipping=tff_clipping.__version__,
      tensorflow_federated=tff.__version__,
      tensorflow=tf.__version__,
      numpy=np.__version__,
      python=platform.python_version(),
    ),
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
def _progress(config: ExperimentConfig, num_done: int) -> Iterator:
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

    def on_round(metrics) -> None:
      if not np.isnan(metrics['test_accuracy']):
        shown['accuracy'] = f'{metrics["test_accuracy"]:.1%}'
      if not np.isnan(metrics['round_seconds']):
        shown['s/round'] = f'{metrics["round_seconds"]:.2f}'
      bar.set_postfix(shown, refresh=False)
      bar.update(metrics['round_num'] - bar.n)

    yield on_round
