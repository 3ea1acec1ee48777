"""What can be seen of a cohort: whether it may be one of its plan's sampler.

A sampler of one's own claims the distribution of a plan. Whether it has it, no
cohort shows; but some cohorts show that it has not. Nothing here depends on the
clients' data.
"""

from collections.abc import Sequence
from typing import Any

from tff_clipping.privacy import BasePlan
from tff_clipping.programs.client_sampling import ClientSampler


def check_cohort(
  sampler: ClientSampler, plan: BasePlan, round_num: int, cohort: Sequence[str]
) -> None:
  """Raises if no sampler of a plan draws such a cohort.

  Args:
    sampler: What has drawn it.
    plan: The plan that charges for it.
    round_num: The number of the round, from 1.
    cohort: The ids of its clients.

  Raises:
    ValueError: If a client is there twice, the cohort has a size that the plan
      does not charge for, or, where clients take turns, a client comes back too
      soon.
  """
  if len(set(cohort)) < len(cohort):
    raise _wrong(sampler, 'a client at most once in a cohort', round_num)
  # The scheme tells which fields there are.
  parameters: Any = plan.sampler_parameters
  least, largest = _size_bounds(parameters)
  if getattr(sampler, 'leaves_out', False):
    least = 0
  if not least <= len(cohort) <= largest:
    rule = (
      f'cohorts of {least}'
      if least == largest
      else f'cohorts of {least} to {largest} clients'
    )
    raise _wrong(sampler, rule, round_num, f' one of {len(cohort)}')
  first = round_num
  if parameters.scheme in ('min_separation', 'grouped_poisson'):
    first = max(1, round_num - parameters.min_separation + 1)
    rule = f'a client at most once in {parameters.min_separation} rounds'
  elif parameters.scheme == 'shuffled_epochs':
    rounds_per_epoch = -(-parameters.num_clients // parameters.cohort_size)
    first = round_num - (round_num - 1) % rounds_per_epoch
    rule = 'a client at most once in an epoch'
  members = set(cohort)
  for before in range(first, round_num):
    if not members.isdisjoint(sampler.sample(before)):
      raise _wrong(sampler, rule, round_num, f' one of round {before} again')


def _size_bounds(parameters: Any) -> tuple[int, int]:
  """Returns the least and the largest cohort that a plan charges for."""
  if parameters.scheme == 'truncated_poisson':
    return parameters.min_clients_per_round, parameters.max_clients_per_round
  if parameters.scheme in ('fixed_size', 'none'):
    return parameters.cohort_size, parameters.cohort_size
  if parameters.scheme in ('min_separation', 'shuffled_epochs'):
    return 0, parameters.cohort_size
  return 0, parameters.num_clients


def _wrong(
  sampler: ClientSampler, rule: str, round_num: int, found: str = ' it twice'
) -> ValueError:
  return ValueError(
    f"`sampler` must draw {rule}, as the ledger's plan charges for, found"
    f'{found} in round {round_num}, by {type(sampler).__name__}.'
  )
