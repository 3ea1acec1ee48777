"""One phase of a run, as a ledger of its own: what a training program is given.

A plan with a `threshold` has two phases on one clock, and one ledger. A program
runs one of them, and counts its rounds from 1. What it charges goes to the
ledger of both, under the number of the round on the clock.
"""

from collections.abc import Sequence
from typing import TypeAlias

from tff_clipping import argument_checks
from tff_clipping.privacy.ledger.ledger import PrivacyLedger
from tff_clipping.privacy.plans import base_plan

PHASES = ('threshold', 'training')


class LedgerPhase:
  """A view of a ledger; see `PrivacyLedger` for what is not described here.

  Attributes:
    ledger: The ledger of both phases.
    plan: What the rounds of this phase must be like. What they cost is for both
      phases together: `epsilon` is that of all releases of the ledger.
    first_round: The number on the clock of the round before the first.
  """

  def __init__(self, ledger: PrivacyLedger, phase: str):
    """Initializes the view.

    Args:
      ledger: A ledger whose plan has a `threshold`.
      phase: 'threshold' or 'training'.

    Raises:
      TypeError: If `phase` is not a string.
      ValueError: If it is neither, or the plan has no `threshold`.
    """
    argument_checks.check_choice('phase', phase, PHASES)
    self.ledger = ledger
    first = ledger.plan.build_threshold_plan()
    is_first = phase == 'threshold'
    self.plan: base_plan.BasePlan = (
      first if is_first else ledger.plan.build_training_plan()
    )
    self.first_round = 0 if is_first else first.num_rounds
    self._last_round = first.num_rounds if is_first else None

  @property
  def caveats(self) -> tuple[str, ...]:
    """Those of the ledger."""
    return self.ledger.caveats

  @property
  def num_releases(self) -> int:
    """The releases of the ledger, in both phases."""
    return self.ledger.num_releases

  @property
  def run_id(self) -> str:
    """That of the ledger."""
    return self.ledger.run_id

  @property
  def epsilon(self) -> float:
    """The epsilon of all releases so far, in both phases."""
    return self.ledger.epsilon

  @property
  def actual_epsilon(self) -> float:
    """That of all releases too."""
    return self.ledger.actual_epsilon

  @property
  def rounds(self) -> list[int | None]:
    """The rounds of this phase that were charged, by its own numbers.

    None for a line that was cut short, which may be of either phase.
    """
    return [
      None if each is None else each - self.first_round
      for each in self.ledger.rounds
      if each is None or self._is_here(each)
    ]

  def last_draw(self, round_num: int) -> int | None:
    """Returns the number of the last draw of a round; None if it has none."""
    return self.ledger.last_draw(self._on_clock(round_num))

  def last_environment(self, round_num: int) -> str | None:
    """Returns where the last draw of a round was computed."""
    return self.ledger.last_environment(self._on_clock(round_num))

  def check_cohorts(self, digest: str) -> None:
    """Raises unless the cohorts are those of the releases before."""
    self.ledger.check_cohorts(digest)

  def record_seed(self, digest: str) -> None:
    """Writes down by what seed the cohorts are drawn, once."""
    self.ledger.record_seed(digest)

  def check_budget(self, round_num: int) -> None:
    """Raises if one more release would pass the target, or be refused.

    Raises:
      ValueError: Also if training begins before the first phase has ended.
    """
    self._check_order()
    self.ledger.check_budget(self._on_clock(round_num))

  def charge(
    self,
    round_num: int,
    digest: str,
    *,
    draw: int = 0,
    environment: str | None = None,
  ) -> float:
    """Charges the release of a round; see `PrivacyLedger.charge`.

    Raises:
      ValueError: Also if training begins before the first phase has ended.
    """
    self._check_order()
    return self.ledger.charge(
      self._on_clock(round_num), digest, draw=draw, environment=environment
    )

  def add_caveats(self, caveats: Sequence[str]) -> None:
    """Writes down why the run does not have the plan's guarantee."""
    self.ledger.add_caveats(caveats)

  def _on_clock(self, round_num: int) -> int:
    """Returns the number of a round in the ledger."""
    return (
      argument_checks.check_integer(
        'round_num', round_num, at_least=1, at_most=self._last_round or 2**52
      )
      + self.first_round
    )

  def _is_here(self, clock: int) -> bool:
    """Returns whether a round of the ledger is of this phase."""
    last = self._last_round
    return self.first_round < clock and (last is None or clock <= last)

  def _check_order(self) -> None:
    """Raises if the phase before has not ended."""
    charged = self.ledger.rounds
    missing = set(range(1, self.first_round + 1)).difference(charged)
    # A line that was cut short may have been of any round.
    if len(missing) > charged.count(None):
      raise ValueError(
        '`phase` must begin after the one before it: round '
        f'{min(missing)} of the {self.first_round} that estimate the clipping '
        'norm was not charged.'
      )


# What a program may charge.
Ledger: TypeAlias = PrivacyLedger | LedgerPhase
