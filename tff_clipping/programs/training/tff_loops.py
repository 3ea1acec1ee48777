"""A private run in a loop of TFF or of your own, in place of our program."""

import contextlib
import dataclasses
import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow_federated as tff

from tff_clipping.privacy.ledger.ledger import PrivacyLedger
from tff_clipping.programs.checks import process_checks
from tff_clipping.programs.clients import client_states
from tff_clipping.programs.clients.client_sampling import ClientSampler
from tff_clipping.programs.training import private_rounds, round_metrics
from tff_clipping.programs.training.checkpoints import Checkpoints, Outcome

_NUMBER = tff.FederatedType(np.int64, tff.SERVER)


@dataclasses.dataclass(frozen=True)
class PrivateProcess:
  """Runs a private round where a loop calls `next`.

  It stands in the place of a process, and takes the number of the round in
  place of the clients' data: `next` does what `run_private_round` does. So it
  fits into a loop of your own, into `tff.simulation.run_training_process` with
  `lambda round_num: round_num` as the selection, and into
  `tff.learning.programs.train_model` with `RoundNumbers` as the data source;
  both with `OutcomeStates` as the manager of program states.

  Attributes:
    process: A `tff.learning.templates.LearningProcess` with the noise of the
      ledger's plan.
    sampler: Draws the cohorts: what `build_private_sampler` returns for the
      plan, or a sampler of your own with its law.
    ledger: What is charged. It must be open while rounds are run.
    store: Where the outcome of each round is saved.
    client_value: Returns what a client gives to the process, by its id: the id
      itself for a process with a client store.
    context: The synchronous context that computes, where the loop needs an
      asynchronous one, as `train_model` does; `None` for that of the loop.

  Raises:
    TypeError: If `process` is no process, or takes no ids and there is no
      `client_value`.
    ValueError: If the ledger's plan does not charge for the process, or its
      clients keep something from round to round.
  """

  process: tff.learning.templates.LearningProcess
  sampler: ClientSampler
  ledger: PrivacyLedger
  store: Checkpoints
  client_value: Callable[[str], Any] = process_checks.take_id
  context: tff.framework.SyncContext | None = None

  def __post_init__(self):
    process_checks.check_process(self.process, self.ledger.plan)
    if client_states.kept_type(self.process) is not None:
      raise ValueError(
        '`process` must have clients that keep nothing from round to round, '
        'found some that do: `TrainingProgram` and `run_private_round` take '
        'their `client_states`.'
      )
    process_checks.check_client_value(self.process, self.client_value)

  def initialize(self) -> Any:
    """Returns the state before the first round."""
    with self._installed():
      return self.process.initialize()

  def resume(self, *, start_over: bool = False) -> tuple[int, Any]:
    """Returns the number of rounds released, and the state; see `resume`."""
    return private_rounds.resume(
      self.ledger, self.store, self.initialize(), start_over=start_over
    )

  def next(
    self, state: Any, round_num: int
  ) -> tff.learning.templates.LearningProcessOutput:
    """Runs a round, saves its outcome and charges for it; then returns it.

    Args:
      state: The state before the round.
      round_num: The number of the round, from 1.

    Returns:
      The state after the round, whose model may be released, and of what was
      measured the numbers that may be, by their paths.

    Raises:
      RuntimeError: If this thread has no context of TFF.
      TypeError, ValueError, RoundChargedError, BudgetExhaustedError,
      DamagedLedgerError, StorageError: As `run_private_round`.
    """

    def next_fn(state: Any, cohort: Sequence[str]) -> Any:
      return self.process.next(
        state, [self.client_value(client_id) for client_id in cohort]
      )

    with self._installed():
      _, output = private_rounds.run_private_round(
        next_fn,
        self.sampler,
        self.ledger,
        self.store,
        state=state,
        round_num=round_num,
      )
    return tff.learning.templates.LearningProcessOutput(
      output.state,
      round_metrics.flatten_metrics(output.metrics, is_private=True),
    )

  def get_model_weights(self, state: Any) -> tff.learning.models.ModelWeights:
    """Returns the model's weights in a state."""
    with self._installed():
      return self.process.get_model_weights(state)

  def _installed(self) -> contextlib.AbstractContextManager:
    if self.context is None:
      private_rounds.check_context()
      return contextlib.nullcontext()
    return tff.framework.get_context_stack().install(self.context)


class OutcomeStates(tff.program.ProgramStateManager):
  """The charged outcomes of a private run, as the program states of TFF.

  `PrivateProcess.next` saves the outcome of each round before the round is
  charged. So `save` does nothing: a state that TFF would save later could be
  lost, and with it a round that was paid for. The latest version is the last
  round that was charged, and what is pending is charged first.
  """

  def __init__(
    self,
    ledger: PrivacyLedger,
    store: Checkpoints,
    *,
    start_over: bool = False,
  ):
    """Initializes the manager of the outcomes in `store` that are charged.

    Args:
      ledger: The ledger.
      store: The store of the outcomes of the ledger's rounds.
      start_over: Whether the run may begin anew if all of its outcomes are
        lost; see `resume`.
    """
    self._ledger = ledger
    self._store = store
    self._start_over = start_over

  async def get_versions(self) -> list[int] | None:
    """Returns the last round that was charged, in a list; `None` before it."""
    last = self._settle()
    return None if last is None else [last.round_num]

  async def load(self, version: int, structure: Any) -> Any:
    """Returns the state after the last round that was charged.

    Args:
      version: The number of that round.
      structure: A state of the process, or what `train_model` keeps with it.

    Raises:
      tff.program.ProgramStateNotFoundError: If it is another round.
      ValueError: If the outcome is of another process.
    """
    last = self._settle()
    if last is None or last.round_num != version:
      raise tff.program.ProgramStateNotFoundError(version)
    if not hasattr(structure, 'data_iterator'):
      return self._store.load(last, structure)
    return structure._replace(
      state=self._store.load(last, structure.state),
      round_number=version,
      next_evaluation_timestamp_seconds=None,
      data_iterator=RoundNumbers(version),
    )

  async def save(self, program_state: Any, version: int) -> None:
    """Does nothing: the outcome of a round was saved before its charge."""

  def _settle(self) -> Outcome | None:
    return private_rounds.settle(
      self._ledger, self._store, start_over=self._start_over
    )


class RoundNumbers(
  tff.program.FederatedDataSource, tff.program.FederatedDataSourceIterator
):
  """Gives the number of each round where TFF's programs ask for data."""

  def __init__(self, num_done: int = 0):
    """Initializes the numbers after those of the rounds that are done."""
    self._num_done = num_done

  @classmethod
  def from_bytes(cls, buffer: bytes) -> 'RoundNumbers':
    """Returns the numbers that `to_bytes` described."""
    return cls(*struct.unpack('!Q', buffer))

  def to_bytes(self) -> bytes:
    """Returns what is left as bytes, for `tff.program.ProgramStateManager`."""
    return struct.pack('!Q', self._num_done)

  @property
  def federated_type(self) -> tff.FederatedType:
    """The type of a number, at the server."""
    return _NUMBER

  def iterator(self) -> 'RoundNumbers':
    """Returns numbers that begin with round 1."""
    return RoundNumbers()

  def select(self, k: int | None = None) -> int:
    """Returns the number of the next round; `k` is what the plan decides."""
    self._num_done += 1
    return self._num_done
