"""A process whose rounds a ledger charges, for loops that are not ours."""

import contextlib
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow_federated as tff

from tff_clipping.privacy.ledger.ledger import PrivacyLedger
from tff_clipping.programs.checks import process_checks
from tff_clipping.programs.clients.client_sampling import ClientSampler
from tff_clipping.programs.training import private_rounds, process_metrics
from tff_clipping.programs.training.checkpoints import Checkpoints


@dataclasses.dataclass(frozen=True)
class PrivateProcess:
  """Runs a private round where a loop calls `next`.

  It stands in the place of a process, and takes the number of the round in
  place of the clients' data: the plan's sampler draws the cohort, and the
  outcome is saved and charged before `next` returns, by `run_private_round`.
  So it fits into a loop of your own, into `tff.simulation.run_training_process`
  with `lambda round_num: round_num` as the selection, and into
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
    TypeError: If `process` is no process.
    ValueError: If the ledger's plan does not charge for the process or for the
      sampler.
  """

  process: tff.learning.templates.LearningProcess
  sampler: ClientSampler
  ledger: PrivacyLedger
  store: Checkpoints
  client_value: Callable[[str], Any] = lambda client_id: client_id
  context: tff.framework.SyncContext | None = None

  def __post_init__(self):
    private_rounds.check_sampler(self.sampler, self.ledger)
    process_checks.check_process(self.process, self.ledger.plan)

  def initialize(self) -> Any:
    """Returns the state before the first round."""
    with self._installed():
      return self.process.initialize()

  def resume(self) -> tuple[int, Any]:
    """Returns the number of rounds that were released, and the state after.

    Raises:
      StorageError, ValueError, OSError: As `resume`.
    """
    initial = self.initialize()
    return private_rounds.resume(self.ledger, self.store, initial)

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
      DamagedLedgerError, StorageError, OSError: As `run_private_round`.
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
      process_metrics.flatten_metrics(output.metrics, is_private=True),
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
