"""The training program: rounds, releases and checkpoints, in an order to trust.

A round is: draw the cohort; charge the ledger; run the process; evaluate; write
the metrics; write a checkpoint if one is due. What is charged is on disk before
anything is released, so a program that is killed at any moment has charged for
every release that it made.
"""

import asyncio
import collections
import dataclasses
import enum
import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow_federated as tff
import tree

from tff_clipping.privacy.ledger import BudgetExhaustedError, PrivacyLedger
from tff_clipping.programs.checkpoints import Checkpoints
from tff_clipping.programs.client_sampling import ClientSampler
from tff_clipping.programs.interruption import Interrupted, Interruption
from tff_clipping.programs.update_records import SUMMARY_FIELDS, UpdateRecords

EvaluateFn = Callable[[Any], dict[str, float]]


class StopReason(enum.Enum):
  """Why training ended."""

  FINISHED = 'finished'
  BUDGET_EXHAUSTED = 'budget exhausted'
  DIVERGED = 'diverged'
  INTERRUPTED = 'interrupted'


@dataclasses.dataclass(frozen=True)
class TrainingResult:
  """How training ended.

  Attributes:
    reason: Why it ended.
    message: The same in a sentence.
    round_num: The number of rounds done.
    state: The state of the process after them.
    interrupted: The signal's exception if `reason` is `INTERRUPTED`.
  """

  reason: StopReason
  message: str
  round_num: int
  state: Any
  interrupted: Interrupted | None = None


@dataclasses.dataclass(frozen=True)
class TrainingProgram:
  """Everything that a run consists of.

  Attributes:
    process: Any `tff.learning.templates.LearningProcess`.
    sampler: Draws the cohorts.
    client_value: Returns what a client gives to the process, by its id: the id
      itself for a process with a client store.
    num_rounds: The number of rounds, T.
    evaluate: Returns `test_accuracy` and `test_loss` of model weights.
    rounds_per_evaluation: Evaluate each so many rounds, and after the last.
    checkpoints: Where states are kept.
    rounds_per_checkpoint: Save each so many rounds, and at the end.
    release_managers: Take the metrics of every round.
    ledger: Is charged for every round; `None` if nothing is private.
    update_records: Keep what the process measured of the updates; `None` if it
      measured nothing.
    on_round: Is called with the metrics of every round, to show progress.
  """

  process: tff.learning.templates.LearningProcess
  sampler: ClientSampler
  num_rounds: int
  evaluate: EvaluateFn
  checkpoints: Checkpoints
  release_managers: Sequence[tff.program.ReleaseManager] = ()
  client_value: Callable[[str], Any] = lambda client_id: client_id
  rounds_per_evaluation: int = 1
  rounds_per_checkpoint: int = 10
  ledger: PrivacyLedger | None = None
  update_records: UpdateRecords | None = None
  on_round: Callable[[collections.OrderedDict], None] = lambda metrics: None

  def run(self) -> TrainingResult:
    """Runs all rounds that are not done yet.

    Returns:
      How training ended. The state that it holds is checkpointed.

    Raises:
      ValueError: If the checkpoint cannot be read.
      RoundError: If a round fails.
    """
    interruption = Interruption()
    round_num, state = 0, None
    try:
      with interruption.catch():
        round_num, state = self._start(interruption)
        for next_round in range(round_num + 1, self.num_rounds + 1):
          state, stop = self._run_round(next_round, state, interruption)
          if stop is not None:
            return stop
          round_num = next_round
        self.checkpoints.save(state, round_num)
    except Interrupted as e:
      if state is not None:
        self.checkpoints.save(state, round_num)
      return TrainingResult(
        StopReason.INTERRUPTED,
        f'Stopped by {e.signal.name} after round {round_num}; the same command '
        'continues.',
        round_num,
        state,
        interrupted=e,
      )
    return TrainingResult(
      StopReason.FINISHED,
      f'Finished {self.num_rounds} rounds.',
      self.num_rounds,
      state,
    )

  def _start(self, interruption: Interruption) -> tuple[int, Any]:
    """Returns the round to go on from, and the state after it."""
    state = self.process.initialize()
    latest = self.checkpoints.latest()
    if latest is not None:
      return latest, self.checkpoints.load(latest, state)
    metrics = self._metrics(0, num_clients=0, seconds=math.nan)
    metrics.update(self._evaluate(state, 0))
    with interruption.shield():
      self._release(metrics)
      self.checkpoints.save(state, 0)
    return 0, state

  def _run_round(
    self, round_num: int, state: Any, interruption: Interruption
  ) -> tuple[Any, TrainingResult | None]:
    """Returns the state after the round, or before it and why it stopped."""
    start = time.monotonic()
    cohort = self.sampler.sample(round_num)
    if self.ledger is not None:
      try:
        with interruption.shield():
          self.ledger.charge(round_num)
      except BudgetExhaustedError as e:
        self.checkpoints.save(state, round_num - 1)
        return state, TrainingResult(
          StopReason.BUDGET_EXHAUSTED, str(e), round_num - 1, state
        )
    try:
      output = self.process.next(state, [self.client_value(c) for c in cohort])
    except Exception as e:
      raise RoundError(f'Round {round_num} failed: {e}') from e
    seconds = time.monotonic() - start
    if not _is_finite(self.process.get_model_weights(output.state)):
      self.checkpoints.save(state, round_num - 1)
      return state, TrainingResult(
        StopReason.DIVERGED,
        f'The model is not finite after round {round_num}. Smaller learning '
        f'rates may help; the state after round {round_num - 1} is kept.',
        round_num - 1,
        state,
      )
    metrics = self._metrics(round_num, num_clients=len(cohort), seconds=seconds)
    if (
      round_num % self.rounds_per_evaluation == 0
      or round_num == self.num_rounds
    ):
      metrics.update(self._evaluate(output.state, round_num))
    with interruption.shield():
      if self.update_records is not None:
        metrics.update(
          self.update_records.record(round_num, cohort, output.metrics)
        )
      self._release(metrics)
      if round_num % self.rounds_per_checkpoint == 0:
        self.checkpoints.save(output.state, round_num)
    self.on_round(metrics)
    return output.state, None

  def _metrics(
    self, round_num: int, *, num_clients: int, seconds: float
  ) -> collections.OrderedDict:
    """Returns the metrics of a round, NaN where nothing was measured."""
    metrics = collections.OrderedDict(
      round_num=round_num,
      num_clients=num_clients,
      round_seconds=seconds,
      epsilon=self.ledger.epsilon if self.ledger is not None else math.nan,
      test_accuracy=math.nan,
      test_loss=math.nan,
    )
    metrics.update((field, math.nan) for field in SUMMARY_FIELDS)
    return metrics

  def _evaluate(self, state: Any, round_num: int) -> dict[str, float]:
    try:
      return self.evaluate(self.process.get_model_weights(state))
    except Exception as e:
      raise RoundError(f'Evaluation after round {round_num} failed: {e}') from e

  def _release(self, metrics: collections.OrderedDict) -> None:
    values = collections.OrderedDict(metrics)
    round_num = values.pop('round_num')
    for manager in self.release_managers:
      asyncio.run(manager.release(values, round_num))


class RoundError(RuntimeError):
  """A round could not be run, or its model not evaluated."""


def _is_finite(weights: Any) -> bool:
  return all(np.all(np.isfinite(leaf)) for leaf in tree.flatten(weights))
