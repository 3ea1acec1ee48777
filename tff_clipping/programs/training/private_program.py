"""A private training program in one call."""

import contextlib
import dataclasses
import json
import os
import pathlib
import re
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_clipping import (
  aggregators,
  atomic_files,
  file_locks,
  learning,
  storage_errors,
)
from tff_clipping.learning.steps import LocalStep, Sgd
from tff_clipping.privacy.ledger import ledger_contents, ledger_file
from tff_clipping.privacy.ledger.ledger import LedgerInUseError, PrivacyLedger
from tff_clipping.privacy.plans.base_plan import BasePlan
from tff_clipping.privacy.plans.plan import PrivacyPlan
from tff_clipping.programs.clients import (
  client_sampling,
  client_states,
  client_store,
)
from tff_clipping.programs.clients.client_sampling import ClientSampler
from tff_clipping.programs.training.checkpoints import Checkpoints
from tff_clipping.programs.training.metrics_files import MetricsFiles
from tff_clipping.programs.training.training_program import (
  EvaluateFn,
  TrainingProgram,
  TrainingResult,
)
from tff_clipping.programs.training.watchers import RoundWatcher

Clients: TypeAlias = (
  client_store.ClientStore | tff.simulation.datasets.ClientData
)
# In the folder of a run.
_LEDGER = 'ledger.jsonl'
_SETTINGS = 'settings.json'
_SEED = 'sampling_seed'
_OUTCOMES = 'checkpoints'
_STATES = 'client_states'
_METRICS = 'metrics.csv'
_LOCK = '.lock'


@dataclasses.dataclass(frozen=True, kw_only=True)
class PrivateProgram:
  """A private run, built by `build_private_program`.

  Attributes:
    folder: Where the run is kept.
    plan: How cohorts are drawn, how much noise is added, and what that costs.
    sampler: Draws the plan's cohorts, by `seed`.
    process: Clips, adds the plan's noise and trains.
    watchers: As for `TrainingProgram`.
    settings: Further arguments of `TrainingProgram`.
    kept_settings: What a run has to keep when it goes on, by name.
    seed: That of `sampler`, a secret, which `open_ledger` writes to `folder`.
  """

  folder: pathlib.Path
  plan: BasePlan
  sampler: ClientSampler
  process: tff.learning.templates.LearningProcess
  watchers: Sequence[RoundWatcher]
  settings: Mapping[str, Any]
  kept_settings: Mapping[str, Any]
  seed: int = dataclasses.field(repr=False)

  def open_ledger(self) -> PrivacyLedger:
    """Opens the ledger of the run, or starts it; see `PrivacyLedger`.

    A run that starts writes the seed of its cohorts and its settings, before
    its ledger: a seed that a lost ledger has left is never drawn from again.

    Raises:
      LedgerInUseError, DamagedLedgerError: As `PrivacyLedger`.
      StorageError: If a file could not be written, or is damaged.
      ValueError: If another program has begun the run in `folder` since this
        one was built, with other settings or another seed.
    """
    lock = self.folder / _LOCK
    taken = LedgerInUseError(
      f'The run in {self.folder} is begun by another program: two runs cannot '
      'share one budget.'
    )
    with contextlib.ExitStack() as stack:
      with storage_errors.writing(f'The file {lock}'):
        lock.touch(mode=0o600)
        stack.enter_context(file_locks.locked(lock, taken))
      if not _has_plan(self.folder / _LEDGER):
        self._write_kept()
      with storage_errors.writing('The ledger'):
        ledger = PrivacyLedger(self.folder / _LEDGER, self.plan)
    try:
      # Another program may have begun and ended since this one was built.
      self._check_kept()
      if not _has_rounds(self.folder):
        self._write_kept()
    except BaseException:
      ledger.close()
      raise
    return ledger

  def _write_kept(self) -> None:
    """Writes what a run goes on with, for its owner alone."""
    for name, text in (
      (_SEED, str(self.seed)),
      (_SETTINGS, json.dumps(dict(self.kept_settings))),
    ):
      with (
        storage_errors.writing(f'The file {self.folder / name}'),
        atomic_files.replacing(self.folder / name, is_secret=True) as new,
      ):
        new.write_text(text)

  def _check_kept(self) -> None:
    """Refuses to go on with other settings or cohorts than the run has."""
    _check_settings(self.folder, self.kept_settings)
    if _read_seed(self.folder) not in (None, self.seed):
      raise ValueError(
        f'`folder` must have the run that this program was built for, found '
        f'one in {self.folder} that was begun since then: build the program '
        'again, and it takes up that run.'
      )

  def run(self, *, start_over: bool = False) -> TrainingResult:
    """Runs all rounds of the plan that are not done yet.

    A program that was killed loses no round and no epsilon: a round that was
    charged is never run again.

    Args:
      start_over: Whether the run may begin anew if all of its outcomes are
        lost; see `resume`.

    Returns:
      How training ended; see `TrainingProgram.run`.

    Raises:
      LedgerInUseError, DamagedLedgerError: As `open_ledger`.
      StorageError, ValueError, RuntimeError, RoundError: As
        `TrainingProgram.run`.
    """
    with self.open_ledger() as ledger:
      kept = None
      if client_states.kept_type(self.process) is not None:
        kept = client_states.ClientStates(
          self.folder / _STATES, self.process, self.sampler.client_ids
        )
      return TrainingProgram(
        process=self.process,
        sampler=self.sampler,
        num_rounds=self.plan.num_rounds,
        checkpoints=Checkpoints(self.folder / _OUTCOMES),
        watchers=[
          MetricsFiles(
            self.folder / _METRICS,
            tensorboard_dir=self.folder / 'tensorboard',
          ),
          *self.watchers,
        ],
        ledger=ledger,
        client_states=kept,
        start_over=start_over,
        **self.settings,
      ).run()


def build_private_program(
  model_fn: Callable[[], Any],
  clients: Clients,
  *,
  target_epsilon: float,
  target_delta: float,
  num_rounds: int,
  clients_per_round: int,
  client_learning_rate: float,
  folder: str | os.PathLike,
  clipping_norm: float,
  local_steps: int = 10,
  batch_size: int = 20,
  local_step: LocalStep = Sgd(),
  server_learning_rate: float | None = None,
  server_optimizer: tff.learning.optimizers.Optimizer | None = None,
  sampling: str = 'poisson',
  accountant: str = 'rdp',
  loss: tf.keras.losses.Loss | None = None,
  evaluate: EvaluateFn | None = None,
  watchers: Sequence[RoundWatcher] = (),
  initial_weights: tff.learning.models.ModelWeights | None = None,
  rounds_per_evaluation: int = 1,
) -> PrivateProgram:
  """Builds a private run, or takes up the one that `folder` has.

  It builds the parts that docs/private_run.md builds by hand: a plan, its
  sampler with a secret seed, `dp_mean_factory` with the plan's noise,
  `build_fed_avg`, a ledger and a `TrainingProgram`. Each part has its own
  refusals.

  Args:
    model_fn: Returns a new `tff.learning.models.VariableModel`; with `loss`, a
      new Keras model, which is not compiled.
    clients: All clients, as many as the plan is for. A `ClientData`, whose
      examples are mappings of single examples, is written into a client store
      in `folder`.
    target_epsilon: The paper's epsilon, positive.
    target_delta: The paper's delta, in (0, 1).
    num_rounds: The paper's T.
    clients_per_round: The paper's P; expected, for 'poisson'.
    client_learning_rate: eta_l, the local step size.
    folder: Where the run is kept; made for its owner alone if it is missing.
    clipping_norm: The paper's c, the bound on the L2 norm of an update.
    local_steps: Q, the local steps of a client in a round.
    batch_size: The number of examples in each local step.
    local_step: Finds the direction of each, as for `build_fed_avg`. What the
      clients keep for it is kept in `folder`.
    server_learning_rate: eta_g, as for `build_fed_avg`.
    server_optimizer: In place of it, as for `build_fed_avg`.
    sampling: As for `PrivacyPlan`.
    accountant: As for `PrivacyPlan`.
    loss: What a Keras model is trained with.
    evaluate: Returns `test_accuracy` and `test_loss` of model weights, on
      examples of none of the clients; `None` to measure neither.
    watchers: Are shown every round, after the metrics were written into
      `folder`; as for `TrainingProgram`.
    initial_weights: The weights to begin from; as for `TrainingProgram`.
    rounds_per_evaluation: Evaluate each so many rounds, and after the last.

  Returns:
    The program. Nothing was trained or charged yet.

  Raises:
    TypeError: If an argument is of the wrong kind.
    ValueError: If an argument is out of range, the arguments do not fit
      together, or they differ from those of the run in `folder`: from its plan
      and, once a round is charged, from what its rounds compute; or the ledger
      of this run is missing.
    DamagedLedgerError: If the ledger in `folder` is not what was written.
    StorageError: If `folder` cannot be written, or a file in it is damaged.
  """
  folder = pathlib.Path(folder)
  if not hasattr(clients, 'client_ids'):
    raise TypeError(
      '`clients` must be a client store or a '
      f'`tff.simulation.datasets.ClientData`, found {type(clients).__name__}; '
      '`write_client_store` makes a store of arrays.'
    )
  asked: dict[str, Any] = dict(
    num_clients=len(clients.client_ids),
    clients_per_round=clients_per_round,
    num_rounds=num_rounds,
    target_epsilon=target_epsilon,
    target_delta=target_delta,
    sampling=sampling,
    accountant=accountant,
  )
  plan = ledger_contents.read_plan(folder / _LEDGER, **asked)
  if plan is None:
    plan = PrivacyPlan.from_target_epsilon(**asked)
  with storage_errors.writing(f'The folder {folder}'):
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Without a ledger, nothing is begun again on the cohorts of a kept seed.
    seed = _read_seed(folder) if _has_plan(folder / _LEDGER) else None
    if seed is None:
      seed = secrets.randbits(128)
    if isinstance(clients, tff.simulation.datasets.ClientData):
      clients = client_store.write_client_data(folder, 'clients', clients)
  sampler = client_sampling.build_private_sampler(
    plan, clients.client_ids, seed=seed
  )
  kept_settings = dict(
    clipping_norm=float(clipping_norm),
    client_learning_rate=float(client_learning_rate),
    local_steps=int(local_steps),
    batch_size=int(batch_size),
    local_step=_described(local_step),
    server_learning_rate=_described(server_learning_rate),
    server_optimizer=_described(server_optimizer),
  )
  _check_settings(folder, kept_settings)
  model_aggregator = aggregators.dp_mean_factory(
    clipping_norm=clipping_norm, **plan.aggregator_parameters._asdict()
  )
  process = learning.build_fed_avg(
    _with_loss(model_fn, loss, clients.element_spec) if loss else model_fn,
    local_steps=local_steps,
    batch_size=batch_size,
    client_learning_rate=client_learning_rate,
    local_step=local_step,
    server_learning_rate=server_learning_rate,
    server_optimizer=server_optimizer,
    client_store=clients,
    model_aggregator=model_aggregator,
  )
  return PrivateProgram(
    folder=folder,
    plan=plan,
    sampler=sampler,
    process=process,
    watchers=watchers,
    settings=dict(
      evaluate=evaluate,
      rounds_per_evaluation=rounds_per_evaluation,
      initial_weights=initial_weights,
    ),
    kept_settings=kept_settings,
    seed=seed,
  )


def _described(setting: Any) -> str:
  """Returns a setting as text, without its place in memory."""
  text = re.sub(' at 0x[0-9a-f]+', '', repr(setting))
  if isinstance(setting, tff.learning.optimizers.Optimizer):
    # Its numbers are in its state alone.
    state = setting.initialize(tf.TensorSpec([]))
    text += f' {tf.nest.map_structure(lambda x: np.asarray(x).tolist(), state)}'
  return text


def _read_seed(folder: pathlib.Path) -> int | None:
  """Returns the seed of the cohorts of a run, if it was kept."""
  path = folder / _SEED
  if not path.exists():
    return None
  with _reading(path):
    return int(path.read_text())


@contextlib.contextmanager
def _reading(path: pathlib.Path) -> Iterator[None]:
  """Names a file that is not as the run has written it."""
  try:
    yield
  except (ValueError, LookupError, TypeError) as e:
    raise storage_errors.StorageError(
      f'The file {path} is damaged: restore it from a copy, or begin in '
      'another `folder`.'
    ) from e


def _has_rounds(folder: pathlib.Path) -> bool:
  """Returns whether a round is charged, or saved to be charged."""
  return any((folder / _OUTCOMES).glob('*.state')) or bool(
    ledger_contents.read_ledger(folder / _LEDGER).num_releases
  )


def _has_plan(path: pathlib.Path) -> bool:
  """Returns whether a ledger is there, with its first line."""
  return path.exists() and bool(ledger_file.read_lines(path)[0])


def _check_settings(folder: pathlib.Path, settings: Mapping[str, Any]) -> None:
  """Refuses other settings than those of the rounds that were run.

  A run that was begun by the five parts by hand has no file of settings. A
  program that was killed before its ledger had a line has no outcome and no
  metrics either.
  """
  ledger, path = folder / _LEDGER, folder / _SETTINGS
  if not path.exists():
    return
  if not _has_plan(ledger):
    left = [*(folder / _OUTCOMES).glob('*'), *folder.glob(_METRICS)]
    if not left:
      return
    raise ValueError(
      f'`folder` must have the ledger of its run, found {left[0]} without '
      f'{ledger.name}: give the ledger back, or take another `folder`.'
    )
  if not _has_rounds(folder):
    return
  with _reading(path):
    saved = json.loads(path.read_text())
    before = {name: saved[name] for name in settings}
  for name, setting in settings.items():
    if setting != before[name]:
      raise ValueError(
        f'`{name}` is {setting} and was {before[name]} in the run of {folder}: '
        'a run goes on with what its charged rounds were made of. Give what it '
        'was, or another `folder`.'
      )


def _with_loss(
  keras_model_fn: Callable[[], tf.keras.Model],
  loss: tf.keras.losses.Loss,
  element_spec: Any,
) -> Callable[[], tff.learning.models.VariableModel]:
  """Returns a function that makes a model of TFF of a Keras model."""
  input_spec = tf.nest.map_structure(
    lambda spec: tf.TensorSpec([None, *spec.shape], spec.dtype), element_spec
  )
  return lambda: tff.learning.models.from_keras_model(
    keras_model_fn(), loss=loss, input_spec=input_spec
  )
