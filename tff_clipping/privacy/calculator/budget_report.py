"""What the budget calculator answers, as values or JSON."""

import dataclasses
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
from tff_clipping.privacy.plans import base_plan, plan_json, words

# What the JSON of an answer has of its plan; None if the plan has none.
_OF_PLAN = (
  *('noise_multiplier', 'epsilon', 'num_rounds', 'actual_epsilon'),
  *('num_clients', 'clients_per_round'),
  *('target_delta', 'target_epsilon', 'sampling', 'sampling_prob'),
  *('min_separation', 'accountant', 'running_sum_error'),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Answer:
  """The plan that was asked for, and what it is to be compared with.

  Attributes:
    question: What was asked.
    plan: The plan, with what was not given solved for.
    attacks: What an attacker may find out; None if it was not computed.
    comparisons: A few other samplings, mechanisms and accountants.
    warnings: Warnings of the library.
  """

  question: budget_question.Question
  plan: base_plan.BasePlan
  attacks: trade_off.AttackBounds | None
  comparisons: tuple[budget_comparison.Row, ...]
  warnings: tuple[str, ...]


def compute_answer(
  question: budget_question.Question,
  *,
  false_positive_rate: float | None = None,
) -> Answer:
  """Solves for what is not given.

  Args:
    question: What is given.
    false_positive_rate: That of the attacks to bound where the question has
      none; None for no bounds.

  Raises:
    TypeError: If a value is of the wrong kind.
    ValueError: If a value is out of range, or there is no answer.
  """
  with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter('always')
    plan = budget_question.solve(question)
    attacks = None
    if question.false_positive_rate is not None:
      false_positive_rate = question.false_positive_rate
    if false_positive_rate is not None:
      attacks = trade_off.bound_attacks(plan, false_positive_rate)
    # What is warned of is the answer, and not what it is compared with.
    warnings.simplefilter('ignore', ranges.DeltaWarning)
    comparisons = budget_comparison.list_alternatives(question, plan)
  messages = dict.fromkeys(
    str(each.message)
    for each in caught
    if issubclass(each.category, UserWarning)
  )
  return Answer(
    question=question,
    plan=plan,
    attacks=attacks,
    comparisons=comparisons,
    warnings=tuple(messages),
  )


def format_json(answer: Answer, record: Mapping[str, Any] | None = None) -> str:
  """Returns the answer as one JSON object.

  Args:
    answer: The answer.
    record: When and how it was computed.
  """
  plan, attacks = answer.plan, answer.attacks
  value: dict[str, Any] = {
    **{name: getattr(plan, name, None) for name in _OF_PLAN},
    'tightest_epsilon': plan.tightest_epsilon,
    'solved_for': solved_name(answer.question),
    'noise_to_clients_ratio': plan.noise_multiplier / plan.clients_per_round,
    'mechanism': answer.question.mechanism,
    'relation': plan.relation.value,
    'attacks': None if attacks is None else attacks._asdict(),
    'comparisons': [each.to_json() for each in answer.comparisons],
    'description': words.describe_plan(plan),
    'plan': plan_json.plan_to_json(plan),
    'warnings': list(answer.warnings),
    **(record or {}),
  }
  if attacks is not None and math.isinf(attacks.mu):
    value['attacks']['mu'] = None
  return json.dumps(value, indent=2, allow_nan=False)


def solved_name(question: budget_question.Question) -> str:
  """Returns the name of what is found; an epsilon that is found is no target.

  Args:
    question: What is asked.
  """
  solved = question.solved_for
  return 'epsilon' if solved == 'target_epsilon' else solved
