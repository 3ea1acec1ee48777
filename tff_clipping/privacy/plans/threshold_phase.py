"""A first phase that estimates the clipping norm, as a part of a plan."""

import dataclasses
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import dp_accounting

from tff_clipping import argument_checks
from tff_clipping.privacy.accounting import ranges, rounding

if TYPE_CHECKING:
  from tff_clipping.privacy.plans.base_plan import BasePlan

# What it takes of the budget, if not said. About half of it is what the noise
# of training grows by.
DEFAULT_SHARE = 0.01

# What c is of the median norm of updates from the initial model. The paper's c
# is half of the mean over a run, whose norms shrink: in our runs of the
# reproduction without clip or noise, that mean is 0.2 to 1 times the norm at
# first, and about half for most.
NORM_FACTOR = 0.25

# Its noise multiplier is at least so many times that of training.
LEAST_FACTOR = 2.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class ThresholdPhase:
  """Rounds before training that release noised bits, and nothing else.

  In each of them, a client sends the bit whether the norm of its update is at
  most an estimate, as +1/2 or -1/2. The sum of the bits has Gaussian noise, and
  the next estimate is computed from it. The model does not change. What the
  last estimate is, times a factor, is the clipping norm of all training rounds.

  A bit is changed by one client by at most 1/2, as a sum of clipped updates by
  at most c: a round is the mechanism of a training round with another noise
  multiplier. The cohorts are drawn by the plan's sampler, which counts the
  rounds of both phases.

  Attributes:
    num_rounds: R, at least 1. Where clients are drawn once for an epoch, whole
      epochs.
    noise_multiplier: The standard deviation of the noise on the sum of the
      bits, over 1/2. `None` in what `from_target_epsilon` is given: it is found
      then.
    share: Then, what the phase takes of the budget, about, in (0, 1): of the
      sum over all releases of 1 / (noise over sensitivity)^2.

  Raises:
    TypeError: If an attribute is of the wrong kind.
    ValueError: If it is out of range.
  """

  num_rounds: int
  noise_multiplier: float | None = None
  share: float = DEFAULT_SHARE

  def __post_init__(self):
    argument_checks.check_probability('share', self.share)
    object.__setattr__(
      self, 'num_rounds', ranges.check_num_rounds(self.num_rounds)
    )
    if self.noise_multiplier is not None:
      checked = ranges.check_noise_multiplier(self.noise_multiplier)
      object.__setattr__(self, 'noise_multiplier', checked)

  def with_share_taken(
    self, *, own_cost: float, training_cost: float
  ) -> 'ThresholdPhase':
    """Returns the phase with the noise by which it takes its share.

    Costs are sums over releases of 1 / (noise over sensitivity)^2: that is
    exact for Gaussian releases without sampling, and a good guide with it. The
    noise is not made less than it is here: a round that is drawn anew is
    charged as one of training, and must not cost more.

    Args:
      own_cost: The cost of the phase with the noise that it has here.
      training_cost: The cost of training, if it had all of the budget.
    """
    odds = self.share / (1 - self.share)
    factor = math.sqrt(own_cost / (odds * training_cost))
    multiplier = (self.noise_multiplier or 1.0) * max(factor, 1.0)
    multiplier = min(multiplier, ranges.MAX_NOISE_MULTIPLIER)
    return dataclasses.replace(
      self, noise_multiplier=rounding.round_up(multiplier, digits=6)
    )

  def to_json(self) -> dict[str, Any]:
    """Returns the attributes for `json.dump`."""
    return dataclasses.asdict(self)

  @classmethod
  def from_json(cls, value: Any) -> 'ThresholdPhase':
    """Returns the phase that `to_json` wrote.

    Raises:
      TypeError: If `value` is not a mapping with the attributes.
    """
    if not isinstance(value, Mapping):
      raise TypeError(f'`threshold` must be a mapping, found {value!r}.')
    return cls(**value)


def check_phase(phase: Any) -> ThresholdPhase:
  """Returns a first phase if it is one.

  Raises:
    TypeError: If it is not.
  """
  if not isinstance(phase, ThresholdPhase):
    raise TypeError(f'`threshold` must be a ThresholdPhase, found {phase!r}.')
  return phase


def require_phase(plan: 'BasePlan') -> Any:
  """Returns the first phase of a plan, whose noise is known.

  Raises:
    ValueError: If it has none.
  """
  if plan.threshold is None:
    raise ValueError('`threshold` must be given for a plan of it, found none.')
  return plan.threshold


def with_threshold_event(
  plan: 'BasePlan', training: dp_accounting.DpEvent
) -> dp_accounting.DpEvent:
  """Returns the event of both phases.

  Args:
    plan: The plan.
    training: What is charged for training.
  """
  if plan.threshold is None:
    return training
  return dp_accounting.ComposedDpEvent(
    [plan.build_threshold_plan().dp_event, training]
  )
