"""What the budget calculator answers, as values, JSON or CSV."""

import csv
import dataclasses
import io
import json
import math
import warnings
from collections.abc import Mapping
from typing import Any

from tff_clipping.privacy.accounting import ranges
from tff_clipping.privacy.audit import trade_off
from tff_clipping.privacy.calculator import (
  budget_comparison,
  budget_question,
)
from tff_clipping.privacy.plans import base_plan, noise_summary
from tff_clipping.theory import theorem_2

# What the JSON of an answer has of its plan; None if the plan has none.
_OF_PLAN = (
  *('noise_multiplier', 'epsilon', 'num_rounds', 'actual_epsilon'),
  *('num_clients', 'clients_per_round'),
  *('min_clients_per_round', 'max_clients_per_round'),
  *('target_delta', 'target_epsilon', 'sampling', 'sampling_prob'),
  *('min_separation', 'accountant', 'running_sum_error'),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Answer:
  """The plan that was asked for, and what it is to be compared with.

  Attributes:
    question: What was asked.
    plan: The plan, with what was not given solved for.
    noise: How large its noise is.
    theorem_2_constant: The v of the paper's Theorem 2 that gives this noise;
      None with correlated noise.
    attacks: What an attacker may find out; None if it was not computed.
    comparisons: Other samplings, mechanisms and accountants: the few that are
      the best guarantees, or all.
    is_full: Whether they are all.
    warnings: Warnings of the library.
  """

  question: budget_question.Question
  plan: base_plan.BasePlan
  noise: noise_summary.NoiseSummary
  theorem_2_constant: float | None
  attacks: trade_off.AttackBounds | None
  comparisons: tuple[budget_comparison.Row, ...]
  is_full: bool
  warnings: tuple[str, ...]


def target_epsilon(
  question: budget_question.Question, plan: base_plan.BasePlan
) -> float:
  """Returns the epsilon that was asked for, or that of the plan; 0 is one."""
  if question.target_epsilon is None:
    return plan.epsilon
  return question.target_epsilon


def compute_answer(
  question: budget_question.Question,
  *,
  is_full: bool = True,
  false_positive_rate: float | None = None,
) -> Answer:
  """Solves for what is not given.

  Args:
    question: What is given.
    is_full: Whether to compare with all that there is, or with the few best
      guarantees.
    false_positive_rate: That of the attacks to bound where the question has
      none; None for no bounds.

  Raises:
    TypeError: If a value is of the wrong kind.
    ValueError: If a value is out of range, or there is no answer.
  """
  with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter('always')
    plan = budget_question.solve(question)
    noise = plan.summarize_noise(
      clipping_norm=question.clipping_norm, model_size=question.model_size
    )
    constant = attacks = None
    target = target_epsilon(question, plan)
    # No noise is needed for what costs nothing.
    if not question.is_correlated and target > 0:
      constant = theorem_2.theorem_2_constant(
        noise_multiplier=plan.noise_multiplier,
        num_clients=plan.num_clients,
        clients_per_round=plan.clients_per_round,
        num_rounds=plan.num_rounds,
        target_epsilon=target,
        target_delta=plan.target_delta,
      )
    if question.false_positive_rate is not None:
      false_positive_rate = question.false_positive_rate
    if false_positive_rate is not None:
      attacks = trade_off.bound_attacks(plan, false_positive_rate)
    # What is warned of is the answer, and not what it is compared with.
    warnings.simplefilter('ignore', ranges.DeltaWarning)
    compare = (
      budget_comparison.compare
      if is_full
      else budget_comparison.list_alternatives
    )
    comparisons = compare(question, plan)
  messages = dict.fromkeys(
    str(each.message)
    for each in caught
    if issubclass(each.category, UserWarning)
  )
  return Answer(
    question=question,
    plan=plan,
    noise=noise,
    theorem_2_constant=constant,
    attacks=attacks,
    comparisons=comparisons,
    is_full=is_full,
    warnings=tuple(messages),
  )


def format_json(
  answer: Answer,
  record: Mapping[str, Any] | None = None,
  plot: str | None = None,
  schedule: str = '',
) -> str:
  """Returns the answer as one JSON object.

  Args:
    answer: The answer.
    record: When and how it was computed.
    plot: The file of its figure, if there is one.
    schedule: What the question's days and participations mean.
  """
  plan, attacks = answer.plan, answer.attacks
  value: dict[str, Any] = {
    **{name: getattr(plan, name, None) for name in _OF_PLAN},
    'tightest_epsilon': plan.tightest_epsilon,
    'solved_for': solved_name(answer.question),
    'noise_to_clients_ratio': plan.noise_multiplier / plan.clients_per_round,
    'mechanism': answer.question.mechanism,
    'relation': plan.relation.value,
    'theorem_2_constant': answer.theorem_2_constant,
    'attacks': None if attacks is None else attacks._asdict(),
    'noise': dataclasses.asdict(answer.noise),
    'comparisons': [each.to_json() for each in answer.comparisons],
    'description': plan.describe(),
    'plan': plan.to_json(),
    'schedule': schedule,
    'warnings': list(answer.warnings),
    'plot': plot,
    **(record or {}),
  }
  if attacks is not None and math.isinf(attacks.mu):
    value['attacks']['mu'] = None
  return json.dumps(value, indent=2, allow_nan=False)


def format_csv(answer: Answer, *, guarantees_only: bool) -> str:
  """Returns the answer and what it is compared with, a row each.

  Args:
    answer: The answer; its own row comes first.
    guarantees_only: Whether comparisons whose epsilon does not hold are left
      out.
  """
  own = budget_comparison.Row(answer.question, answer.plan)
  rows = [
    {
      'asked_for': row is own,
      **row.to_json(),
      'target_delta': answer.plan.target_delta,
    }
    for row in (own, *answer.comparisons)
    if row is own or row.is_guarantee or not guarantees_only
  ]
  text = io.StringIO()
  writer = csv.DictWriter(text, [*rows[0]], lineterminator='\n')
  writer.writeheader()
  writer.writerows(rows)
  return text.getvalue().rstrip('\n')


def solved_name(question: budget_question.Question) -> str:
  """Returns the name of what is found; an epsilon that is found is no target.

  Args:
    question: What is asked.
  """
  solved = question.solved_for
  return 'epsilon' if solved == 'target_epsilon' else solved
