"""The audit of a run: the claim of its plan beside bounds from attacks."""

import dataclasses
import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from tff_clipping import argument_checks
from tff_clipping.privacy.accounting import ranges
from tff_clipping.privacy.audit import attacks, one_run, trade_off
from tff_clipping.privacy.audit.canaries import Canaries
from tff_clipping.privacy.plans.plan import PrivacyPlan

_NOTE = (
  'An audited run is not a private release: canaries took the place of '
  'clients, and whoever has this file knows which of them took part.'
)


@dataclasses.dataclass(frozen=True)
class AttackResult:
  """What one attack shows.

  Attributes:
    epsilon_lower_bound: Proved for one run, at the audit's confidence.
    gaussian_epsilon_lower_bound: The same if the mechanism is Gaussian.
    epsilon_estimate: No bound; NaN if there is none; see `estimate_epsilon`.
    true_positive_rate: The true-positive rate at 1 % false positives; no bound.
    is_refuted: Whether the scores refute the plan's curve at the confidence.
  """

  epsilon_lower_bound: float
  gaussian_epsilon_lower_bound: float
  epsilon_estimate: float
  true_positive_rate: float
  is_refuted: bool


@dataclasses.dataclass(frozen=True)
class AuditResult:
  """The claim of a plan beside the results of all attacks.

  Attributes:
    relation: The neighbouring relation of the audit.
    num_releases: Releases that were attacked.
    num_canaries_in: Canaries that were in.
    num_canaries_out: Canaries that were held out.
    delta: The plan's.
    confidence: The probability that all lower bounds of one kind hold, and that
      a plan that holds is not refuted.
    claimed_epsilon: The plan's.
    allowed_true_positive_rate: The largest that the plan allows at 1 % false
      positives.
    attacks: The result of each attack by its name.
  """

  relation: str
  num_releases: int
  num_canaries_in: int
  num_canaries_out: int
  delta: float
  confidence: float
  claimed_epsilon: float
  allowed_true_positive_rate: float
  attacks: Mapping[str, AttackResult]

  @property
  def epsilon_lower_bound(self) -> float:
    """The largest that is proved for one run, at the confidence."""
    return max(a.epsilon_lower_bound for a in self.attacks.values())

  @property
  def gaussian_epsilon_lower_bound(self) -> float:
    """The largest among Gaussian mechanisms, at the confidence."""
    return max(a.gaussian_epsilon_lower_bound for a in self.attacks.values())

  @property
  def is_refuted(self) -> bool:
    """Whether an attack refutes the plan."""
    return any(a.is_refuted for a in self.attacks.values())

  def to_json(self) -> str:
    """Returns the text of audit.json; values that are not finite are null."""
    fields: dict[str, Any] = {
      'note': _NOTE,
      'is_refuted': self.is_refuted,
      'epsilon_lower_bound': self.epsilon_lower_bound,
      'gaussian_epsilon_lower_bound': self.gaussian_epsilon_lower_bound,
      **dataclasses.asdict(self),
    }
    for attack in fields['attacks'].values():
      for name, value in attack.items():
        if isinstance(value, float) and not math.isfinite(value):
          attack[name] = None
    return json.dumps(fields, indent=2, allow_nan=False) + '\n'


def add_canaries_to_plan(plan: PrivacyPlan, num_canaries: int) -> PrivacyPlan:
  """Returns a plan with the population and cohort that canaries have joined.

  See `add_canaries_to_population`, also for errors.

  Args:
    plan: The plan of the run without canaries.
    num_canaries: How many join, held out or not.
  """
  num_clients, clients_per_round = add_canaries_to_population(
    plan.num_clients, plan.clients_per_round, num_canaries
  )
  return dataclasses.replace(
    plan, num_clients=num_clients, clients_per_round=clients_per_round
  )


def add_canaries_to_population(
  num_clients: int, clients_per_round: int, num_canaries: int
) -> tuple[int, int]:
  """Returns the population that canaries have joined, and its cohort.

  The cohort grows in proportion, and is rounded down to whole clients.

  Args:
    num_clients: The clients without canaries.
    clients_per_round: The cohort without canaries.
    num_canaries: How many join, held out or not.

  Raises:
    TypeError: If `num_canaries` is not an integer.
    ValueError: If it is not positive.
  """
  joined = num_clients + argument_checks.check_integer(
    'num_canaries', num_canaries, at_least=1, at_most=ranges.MAX_CLIENTS
  )
  return joined, clients_per_round * joined // num_clients


def check_canaries(plan: PrivacyPlan, canaries: Canaries) -> None:
  """Raises a ValueError if canaries cannot tell anything of a plan."""
  if canaries.relation is not plan.relation:
    raise ValueError(
      f'`canaries` must be of the relation {plan.relation.value} of the plan, '
      f'found {canaries.relation.value}.'
    )
  if len(set(canaries.is_in)) < 2:
    state = 'in' if canaries.is_in.all() else 'held out'
    raise ValueError(
      '`canaries` must have some that are in and some that are held out, found '
      f'that the coins of all {canaries.num_canaries} say {state}: take more '
      'canaries, or another seed.'
    )


def audit_plan(
  plan: PrivacyPlan,
  canaries: Canaries,
  scores: Mapping[str, np.ndarray],
  *,
  confidence: float = 0.95,
) -> AuditResult:
  """Compares a plan with the scores of the canaries in a run of it.

  The probability 1 - `confidence` of an error is divided among the attacks.

  Args:
    plan: The claim, for as many rounds as were released.
    canaries: The canaries of the run.
    scores: Of each attack, by its name, a score for each canary, higher where
      the canary seems to be in; of shape [num_canaries]. See `score_releases`.
    confidence: In (0, 1).

  Raises:
    TypeError: If an argument is of the wrong kind.
    ValueError: If it is out of range, the canaries' relation is not that of the
      plan, all of them are in or all are out, or there are no scores.
  """
  confidence = argument_checks.check_probability('confidence', confidence)
  check_canaries(plan, canaries)
  if not scores:
    raise ValueError('`scores` must have an attack, found none.')
  curve, delta = trade_off.compute_trade_off(plan), plan.target_delta
  each = 1 - (1 - confidence) / len(scores)
  is_in = canaries.is_in

  def judge(scores: np.ndarray) -> AttackResult:
    scores = np.asarray(scores, float)
    taken, held_out = scores[is_in], scores[~is_in]
    mu = one_run.bound_mu(scores, is_in, confidence=each)
    return AttackResult(
      epsilon_lower_bound=one_run.bound_epsilon(
        scores, is_in, delta=delta, confidence=each
      ),
      gaussian_epsilon_lower_bound=trade_off.compute_gaussian_epsilon(
        mu, delta
      ),
      epsilon_estimate=attacks.estimate_epsilon(taken, held_out, delta=delta),
      true_positive_rate=attacks.measure_true_positive_rate(
        taken, held_out, trade_off.FALSE_POSITIVE_RATE
      ),
      is_refuted=one_run.is_refuted(curve, scores, is_in, confidence=each),
    )

  return AuditResult(
    relation=plan.relation.value,
    num_releases=plan.num_rounds,
    num_canaries_in=int(is_in.sum()),
    num_canaries_out=int((~is_in).sum()),
    delta=delta,
    confidence=confidence,
    claimed_epsilon=plan.epsilon,
    allowed_true_positive_rate=curve.max_true_positive_rate(
      trade_off.FALSE_POSITIVE_RATE
    ),
    attacks={name: judge(of_attack) for name, of_attack in scores.items()},
  )
