"""The privacy plan of noise that is independent in each round.

Its constructors, such as `from_target_epsilon`, are in `base_plan`. Each
function here returns one number of a plan, from the plan's attributes.
"""

import dataclasses
import functools
import math
from typing import TYPE_CHECKING, Any, NamedTuple

from tff_clipping.privacy.accounting import (
  accountants,
  ranges,
  sampled_gaussian,
)
from tff_clipping.privacy.plans import base_plan
from tff_clipping.privacy.plans.base_plan import PlanAttributes

if TYPE_CHECKING:
  from typing_extensions import Unpack

SAMPLINGS = tuple(sampled_gaussian.RELATIONS)


class SamplerParameters(NamedTuple):
  """The cohorts that a sampler must draw for the plan's figures to hold.

  Attributes:
    scheme: 'poisson', 'random_allocation', 'fixed_size' or 'none'.
    num_clients: The population to draw from.
    sampling_prob: Each client's chance to be in a round. Under 'poisson' the
      clients' draws are independent and a cohort may be empty. Under
      'random_allocation' each client draws one of the 1 / sampling_prob rounds
      of each epoch, independently of all others.
    cohort_size: The exact size of a cohort; None under 'poisson' and
      'random_allocation'.
  """

  scheme: str
  num_clients: int
  sampling_prob: float
  cohort_size: int | None


class ShareParameters(NamedTuple):
  """The parameters of an aggregator whose clients add the noise in shares.

  A client's share has the standard deviation z / sqrt(m) over the clipping
  norm. The plan charges the noise of m shares; a release has that of M shares.

  Attributes:
    noise_multiplier: z, the noise of m shares over the clipping norm.
    clients_per_round: P, the constant by which the noisy sum is divided.
    min_clients_per_round: m, the least cohort of the population and of its
      neighbours.
    max_clients_per_round: M, the largest.
  """

  noise_multiplier: float
  clients_per_round: int
  min_clients_per_round: int
  max_clients_per_round: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class PrivacyPlan(base_plan.BasePlan):
  """How cohorts are drawn, how much independent noise is added, and the cost.

  Attributes:
    clients_per_round: The paper's P, the size of a cohort; the expected size
      under 'poisson' and 'random_allocation', where it must divide
      `num_clients`.
    num_rounds: The paper's T. Under 'random_allocation' the last epoch is
      charged as a whole.
    noise_multiplier: Standard deviation of the noise on the sum of the clipped
      updates over the clipping norm c, whatever the relation: sigma_sum =
      noise_multiplier * c. The accountant of the replace-one relation, where a
      client changes the sum by up to 2c, is given half of it.
    sampling: 'poisson', 'random_allocation' (each client comes in one secret
      round of each epoch, drawn by itself), 'fixed_size' or 'none'.
    accountant: 'rdp' or 'pld'; 'pld' for 'random_allocation'; for 'none' also
      'gaussian', which is exact.

  The other attributes, and errors, are those of `BasePlan`.
  """

  sampling: str = 'poisson'
  accountant: str = 'rdp'

  def parts(self, num_rounds: int) -> sampled_gaussian.Parts:
    """Returns one round, and how many; see the base class."""
    return ((self._round, num_rounds),)

  @property
  def sampling_prob(self) -> float:
    """The paper's q = P / N: a client's chance to be in a round."""
    return self._round.sampling_prob

  @property
  def allows_new_draws(self) -> bool:
    """Not under 'random_allocation', where an epoch is one draw."""
    return self.sampling != 'random_allocation'

  @property
  def relation(self) -> sampled_gaussian.Relation:
    """The neighbouring relation that `epsilon` is for."""
    return self._round.relation

  @property
  def running_sum_error(self) -> float:
    """Of independent noise; see the base class."""
    # The sum of t rounds has t variances of one; on average, (T + 1) / 2.
    return self.noise_multiplier * math.sqrt((self.num_rounds + 1) / 2)

  @property
  def sampler_parameters(self) -> SamplerParameters:
    """The cohorts that a sampler of clients must draw."""
    has_size = self.sampling in ('fixed_size', 'none')
    size = self.clients_per_round if has_size else None
    return SamplerParameters(
      self.sampling, self.num_clients, self.sampling_prob, size
    )

  @property
  def share_parameters(self) -> ShareParameters:
    """The noise of an aggregator whose clients add it in shares.

    The bounds of cohorts hold for the population and for its neighbours: if all
    clients take part, for one client less and one more.

    Raises:
      ValueError: If `sampling` is 'poisson' or 'random_allocation', whose
        cohorts have no bounds: the shares of a cohort would tell its size.
    """
    if self.sampling in ('poisson', 'random_allocation'):
      raise ValueError(
        "`sampling` must be 'fixed_size' where the noise comes in shares, "
        f'found {self.sampling!r}: without a largest cohort the noise tells '
        'how many clients took part.'
      )
    cohort = self.clients_per_round
    more = int(self.sampling == 'none')
    return ShareParameters(
      self.noise_multiplier, cohort, cohort - more, cohort + more
    )

  def _check_attributes(self) -> dict[str, Any]:
    return {
      'num_rounds': ranges.check_count('num_rounds', self.num_rounds),
      'num_clients': self._round.num_clients,
      'clients_per_round': self._round.clients_per_round,
    }

  @functools.cached_property
  def _round(self) -> sampled_gaussian.SampledGaussian:
    """One round, which checks its attributes."""
    return sampled_gaussian.SampledGaussian(
      sampling=self.sampling,
      num_clients=self.num_clients,
      clients_per_round=self.clients_per_round,
      noise_multiplier=self.noise_multiplier,
    )


def compute_epsilon(
  *, noise_multiplier: float, **attributes: 'Unpack[PlanAttributes]'
) -> float:
  """Returns the finite epsilon >= 0 that `num_rounds` rounds spend.

  Args:
    noise_multiplier: Noise on the sum over the clipping norm.
    **attributes: `num_clients`, `clients_per_round`, `num_rounds` and
      `target_delta`; and, where they are not the defaults, `sampling`
      and `accountant`.

  Raises:
    TypeError: If an argument is of the wrong kind, or missing.
    ValueError: If an argument is out of range, or the accountant has no finite
      answer.
  """
  return PrivacyPlan.from_noise_multiplier(
    noise_multiplier=noise_multiplier, **attributes
  ).epsilon


def compute_delta(
  *,
  num_clients: int,
  clients_per_round: int,
  num_rounds: int,
  noise_multiplier: float,
  target_epsilon: float,
  sampling: str = 'poisson',
  accountant: str = 'rdp',
) -> float:
  """Returns the delta in [0, 1] that `num_rounds` rounds spend at an epsilon.

  The epsilon is positive. The other arguments are attributes of a plan; errors
  are those of `compute_epsilon`.
  """
  mechanism = sampled_gaussian.SampledGaussian(
    sampling=sampling,
    num_clients=num_clients,
    clients_per_round=clients_per_round,
    noise_multiplier=ranges.check('noise_multiplier', noise_multiplier),
  )
  num_rounds = ranges.check_count('num_rounds', num_rounds)
  target_epsilon = ranges.check('target_epsilon', target_epsilon)
  cost = accountants.compose([(mechanism, num_rounds)], accountant)
  return cost.compute_delta(target_epsilon)


def calibrate_noise_multiplier(
  *, target_epsilon: float, **attributes: 'Unpack[PlanAttributes]'
) -> float:
  """Returns the smallest noise multiplier that keeps epsilon in the target.

  Args:
    target_epsilon: The epsilon that must not be passed, positive.
    **attributes: As in `PrivacyPlan.from_target_epsilon`, as are errors.

  Returns:
    The least multiplier of 6 significant digits whose epsilon by the same
    accountant is not above the target.
  """
  return PrivacyPlan.from_target_epsilon(
    target_epsilon=target_epsilon, **attributes
  ).noise_multiplier


def compute_max_rounds(
  *,
  noise_multiplier: float,
  target_epsilon: float,
  **attributes: 'Unpack[PlanAttributes]',
) -> int:
  """Returns the most rounds >= 1 whose epsilon is not above the target.

  Arguments and errors are those of `PrivacyPlan.from_max_rounds`. It is an
  error too if one round alone passes the target, or if more rounds would fit
  than are accounted for.
  """
  return PrivacyPlan.from_max_rounds(
    noise_multiplier=noise_multiplier,
    target_epsilon=target_epsilon,
    **attributes,
  ).num_rounds
