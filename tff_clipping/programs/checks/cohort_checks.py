"""Checks whether the plan's sampler may have drawn a cohort.

A user's own sampler claims the distribution of a plan. No cohort proves the
claim, but some cohorts refute it. Nothing here depends on the clients' data.
"""

from collections.abc import Sequence
from typing import Any

from tff_clipping.privacy import BasePlan
from tff_clipping.programs.clients.client_sampling import ClientSampler


class CohortChecks:
  """Checks the cohorts of a sampler, round by round.

  If clients take turns, the last cohorts are kept. When a run goes on, the
  sampler draws its earlier cohorts again.
  """

  def __init__(self, sampler: ClientSampler, plan: BasePlan) -> None:
    """Initializes the checks of what `sampler` draws, by the plan's rules."""
    self.sampler = sampler
    # The scheme tells which fields there are.
    self._parameters: Any = plan.sampler_parameters
    self._cohorts: dict[int, frozenset[str]] = {}

  def check(self, round_num: int, cohort: Sequence[str]) -> None:
    """Raises if no sampler of the plan draws such a cohort.

    Raises:
      ValueError: If a client is there twice, the cohort has a size that the
        plan does not charge for, or, where clients take turns, a client comes
        back too soon or the round has had another cohort.
    """
    if len(set(cohort)) < len(cohort):
      raise self._wrong('a client at most once in a cohort', round_num)
    scheme = self._parameters.scheme
    least, largest = 0, self._parameters.num_clients
    if scheme in ('fixed_size', 'none', 'min_separation'):
      largest = self._parameters.cohort_size
      may_leave = getattr(self.sampler, 'leaves_out', False)
      least = 0 if may_leave or scheme == 'min_separation' else largest
    if not least <= len(cohort) <= largest:
      rule = f'cohorts of {least}'
      if least < largest:
        rule += f' to {largest} clients'
      raise self._wrong(rule, round_num, f' one of {len(cohort)}')
    if scheme in ('min_separation', 'grouped_poisson'):
      separation = self._parameters.min_separation
      rule = f'a client at most once in {separation} rounds'
      self._check_turn(round_num - separation + 1, rule, round_num, cohort)
    elif scheme == 'random_allocation':
      rounds_per_epoch = round(1 / self._parameters.sampling_prob)
      first = round_num - (round_num - 1) % rounds_per_epoch
      rule = 'a client at most once in an epoch'
      self._check_turn(first, rule, round_num, cohort)

  def _check_turn(
    self, first: int, rule: str, round_num: int, cohort: Sequence[str]
  ) -> None:
    """Raises if a client takes part twice from round `first` on."""
    kept = self._cohorts
    for before in range(max(1, first), round_num):
      if before not in kept:
        kept[before] = frozenset(self.sampler.sample(before))
      if not kept[before].isdisjoint(cohort):
        raise self._wrong(rule, round_num, f' one of round {before} again')
    if kept.setdefault(round_num, frozenset(cohort)) != frozenset(cohort):
      raise self._wrong('one cohort a round', round_num, ' another one')
    self._cohorts = {t: each for t, each in kept.items() if t >= first}

  def _wrong(
    self, rule: str, round_num: int, found: str = ' it twice'
  ) -> ValueError:
    return ValueError(
      f"`sampler` must draw {rule}, as the ledger's plan charges for, found"
      f'{found} in round {round_num}, by {type(self.sampler).__name__}.'
    )
