"""The calculator's question, answered by the other samplers and mechanisms."""

import dataclasses
import functools
from collections.abc import Iterator
from typing import Any

from tff_clipping.privacy.accounting import (
  accountants,
  sampled_gaussian,
  search,
)
from tff_clipping.privacy.calculator import budget_question
from tff_clipping.privacy.correlated_noise import by_name
from tff_clipping.privacy.plans import base_plan, correlated_plan, noise_summary
from tff_clipping.privacy.plans import plan as plan_lib

# Strategies for more rounds are made only for a question about them: the table
# is to come at once. Fewer where the rounds are solved for, each time anew.
_MAX_ROUNDS = 10_000
_MAX_SOLVED_ROUNDS = 2_000


@dataclasses.dataclass(frozen=True, kw_only=True)
class Comparison:
  """The same question for another sampler, mechanism or accountant.

  Attributes:
    sampling: As in `Question`.
    mechanism: As in `Question`.
    min_separation: As in `Question`; None where it is of no account.
    accountant: 'rdp', 'pld', 'pld_one_sided' or 'gaussian'.
    relation: The neighbouring relation of `epsilon`.
    clients_per_round: Given or solved for; None if there is no answer.
    noise_multiplier: Given or solved for; None if there is no answer.
    epsilon: Of `num_rounds` rounds, in this accounting; None if no answer.
    num_rounds: Given or solved for; None if there is no answer.
    running_sum_error: As in `BasePlan`: what noises can be compared by. None if
      there is no answer.
    actual_epsilon: What the sampler really gives; differs under 'paper' only.
    guarantee: Whether `epsilon` holds for the sampler.
    error: Why there is no answer, or None.
  """

  sampling: str
  mechanism: str
  min_separation: int | None = None
  accountant: str
  relation: str
  clients_per_round: int | None = None
  noise_multiplier: float | None = None
  epsilon: float | None = None
  num_rounds: int | None = None
  running_sum_error: float | None = None
  actual_epsilon: float | None = None
  guarantee: bool
  error: str | None = None


def describe_plan(
  plan: base_plan.BasePlan, mechanism: str = 'gaussian'
) -> Comparison:
  """Returns the row of a plan.

  Args:
    plan: The plan.
    mechanism: The name of its noise.
  """
  min_separation = None
  if isinstance(plan, correlated_plan.CorrelatedNoisePlan) and (
    plan.sampling in ('min_separation', 'grouped_poisson')
  ):
    min_separation = plan.min_separation
  return Comparison(
    sampling=plan.sampling,
    mechanism=mechanism,
    min_separation=min_separation,
    accountant=plan.accountant,
    relation=plan.relation.value,
    clients_per_round=plan.clients_per_round,
    noise_multiplier=plan.noise_multiplier,
    epsilon=plan.epsilon,
    num_rounds=plan.num_rounds,
    running_sum_error=plan.running_sum_error,
    actual_epsilon=plan.actual_epsilon,
    guarantee=plan.sampling != 'paper',
  )


def compare(
  question: budget_question.Question, plan: base_plan.BasePlan
) -> tuple[Comparison, ...]:
  """Returns the other rows of a question's table.

  Args:
    question: What was asked.
    plan: Its answer, whose row is left out.
  """
  return (
    *_compare_samplers(question, plan),
    *_compare_mechanisms(question, plan),
  )


def _compare_samplers(
  question: budget_question.Question, plan: base_plan.BasePlan
) -> Iterator[Comparison]:
  """Yields the rows of independent noise and cohorts that are drawn."""
  for sampling in ('poisson', 'fixed_size', 'paper'):
    for accountant in ('rdp', 'pld', 'pld_one_sided'):
      if (sampling, accountant) == (plan.sampling, plan.accountant):
        continue
      if sampling == 'fixed_size' or accountant != 'pld_one_sided':
        yield _compare_sampler(question, sampling, accountant)


def _compare_sampler(
  question: budget_question.Question, sampling: str, accountant: str
) -> Comparison:
  """Returns the answer of a sampler, or why there is none.

  By the accountants and not by plans: no plan takes 'pld_one_sided'.
  """
  charged = 'poisson' if sampling == 'paper' else sampling
  row: dict[str, Any] = {
    'sampling': sampling,
    'mechanism': 'gaussian',
    'accountant': accountant,
    'relation': sampled_gaussian.RELATIONS[charged].value,
    'guarantee': accountant != 'pld_one_sided' and sampling != 'paper',
  }
  try:
    mechanism, rounds, epsilon = _solve_charged(question, charged, accountant)
    actual = epsilon
    if sampling == 'paper':
      actual = plan_lib.PrivacyPlan(
        num_clients=question.num_clients,
        clients_per_round=mechanism.clients_per_round,
        num_rounds=rounds,
        target_delta=question.target_delta,
        noise_multiplier=mechanism.noise_multiplier,
        sampling='paper',
        accountant=accountant,
      ).actual_epsilon
  except ValueError as error:
    return Comparison(**row, error=str(error))
  return Comparison(
    **row,
    clients_per_round=mechanism.clients_per_round,
    noise_multiplier=mechanism.noise_multiplier,
    epsilon=epsilon,
    num_rounds=rounds,
    running_sum_error=noise_summary.independent_sum_error(
      mechanism.noise_multiplier, rounds
    ),
    actual_epsilon=actual,
  )


@functools.lru_cache(maxsize=64)  # 'paper' asks what 'poisson' has answered.
def _solve_charged(
  question: budget_question.Question, sampling: str, accountant: str
) -> tuple[sampled_gaussian.SampledGaussian, int, float]:
  """Returns a round, how many of them, and their epsilon, for one event."""
  delta, target = question.target_delta, question.target_epsilon
  noise, rounds = question.noise_multiplier, question.num_rounds
  cohort = question.clients_per_round
  if question.solved_for == 'clients_per_round':
    cohort = search.find_clients_per_round(
      sampling,
      accountant,
      num_clients=question.num_clients,
      num_rounds=rounds,
      noise_to_clients_ratio=question.noise_to_clients_ratio,
      target_epsilon=target,
      target_delta=delta,
    )
    noise = question.noise_to_clients_ratio * cohort
  cohorts = sampled_gaussian.CohortSampling(
    sampling=sampling,
    num_clients=question.num_clients,
    clients_per_round=cohort,
  )
  if noise is None:
    noise = search.find_noise_multiplier(
      cohorts,
      accountant,
      num_rounds=rounds,
      target_epsilon=target,
      target_delta=delta,
    )
  mechanism = sampled_gaussian.add_noise(cohorts, noise)
  if rounds is None:
    rounds = search.find_max_rounds(
      mechanism, accountant, target_epsilon=target, target_delta=delta
    )
  epsilon = accountants.compute_epsilon(
    mechanism, accountant, num_rounds=rounds, target_delta=delta
  )
  return mechanism, rounds, epsilon


def _compare_mechanisms(
  question: budget_question.Question, plan: base_plan.BasePlan
) -> Iterator[Comparison]:
  """Yields the rows of noise that needs no secret cohorts, and of groups."""
  separation = question.min_separation
  if separation is None and question.solved_for == 'clients_per_round':
    return
  own = (question.sampling, question.mechanism)
  for mechanism in by_name.MECHANISMS:
    if own != ('min_separation', mechanism):
      yield _compare_mechanism(
        question,
        'min_separation',
        mechanism,
        # By default, all clients take turns.
        separation or plan.num_clients // plan.clients_per_round,
      )
  # Fewer groups than that are worth a draw.
  if separation is not None and own != ('grouped_poisson', 'banded'):
    yield _compare_mechanism(question, 'grouped_poisson', 'banded', separation)


def _compare_mechanism(
  question: budget_question.Question,
  sampling: str,
  mechanism: str,
  min_separation: int,
) -> Comparison:
  """Returns the answer of a mechanism, or why there is none."""
  most = _MAX_ROUNDS if question.num_rounds else _MAX_SOLVED_ROUNDS
  try:
    if (question.num_rounds or 0) > most:
      raise ValueError(
        f'more than {most} rounds, for which a table would take long'
      )
    plan = budget_question.solve(
      dataclasses.replace(
        question,
        sampling=sampling,
        mechanism=mechanism,
        min_separation=min_separation,
        accountant=None,
        min_clients_per_round=None,
        max_clients_per_round=None,
      ),
      max_strategy_rounds=most,
    )
  except ValueError as error:
    is_amplified = sampling == 'grouped_poisson'
    return Comparison(
      sampling=sampling,
      mechanism=mechanism,
      min_separation=min_separation,
      accountant='pld' if is_amplified else 'gaussian',
      relation=sampled_gaussian.Relation.ZERO_OUT.value,
      guarantee=True,
      error=str(error),
    )
  return describe_plan(plan, mechanism)
