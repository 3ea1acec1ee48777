"""The calculator's question, answered by other samplers and mechanisms."""

import dataclasses
from collections.abc import Iterator
from typing import Any

from tff_clipping.privacy.calculator import budget_question
from tff_clipping.privacy.plans import base_plan

# Strategies for more rounds are made only for a question about them: the table
# is to come at once. Fewer where the rounds are solved for, each time anew.
_MAX_ROUNDS = 10_000
_MAX_SOLVED_ROUNDS = 2_000

# Where one of these is solved for, no separation follows from them.
_SIZES = ('clients_per_round', 'num_clients')

# What a row shows of its plan.
_FIGURES = (
  *('num_clients', 'clients_per_round', 'noise_multiplier', 'epsilon'),
  'num_rounds',
  *('running_sum_error', 'actual_epsilon'),
)

# The most alternatives beside an answer.
_MOST_ALTERNATIVES = 4


@dataclasses.dataclass(frozen=True)
class Row:
  """A question's answer, in a table of some.

  Attributes:
    question: The question, for one sampler, mechanism and accountant.
    plan: Its answer.
  """

  question: budget_question.Question
  plan: base_plan.BasePlan

  @property
  def min_separation(self) -> int | None:
    """As in `Question`; None where it is of no account."""
    question = self.question
    return question.min_separation if question.is_correlated else None

  def to_json(self) -> dict[str, Any]:
    """Returns the row for `json.dump`."""
    question = self.question
    return {
      'sampling': question.sampling,
      'mechanism': question.mechanism,
      'min_separation': self.min_separation,
      'accountant': question.charged_by,
      'relation': question.relation.value,
      **{name: getattr(self.plan, name) for name in _FIGURES},
    }


def list_alternatives(
  question: budget_question.Question, plan: base_plan.BasePlan
) -> tuple[Row, ...]:
  """Returns a few other ways to the same promise, each a guarantee.

  Of each way to draw cohorts the tightest accountant, or the mechanism with the
  least error.

  Args:
    question: What was asked.
    plan: Its answer, whose row is left out.
  """
  asked = question.vary()
  found: list[Row] = []
  for other in _list_tightest(question, plan):
    if other == asked or len(found) == _MOST_ALTERNATIVES:
      continue
    row = _answer(other)
    if row is not None:
      found.append(row)
  return tuple(found)


def _list_tightest(
  question: budget_question.Question, plan: base_plan.BasePlan
) -> Iterator[budget_question.Question]:
  """Yields the best of each way to draw cohorts, the question's own first."""
  for sampling in ('poisson', 'random_allocation'):
    yield question.vary(sampling=sampling, accountant='pld')
  separation = question.min_separation
  if separation is None and question.solved_for not in _SIZES:
    separation = plan.num_clients // plan.clients_per_round
  if separation is not None:
    yield question.vary(
      sampling='min_separation', mechanism='banded', min_separation=separation
    )
  yield question.vary(sampling='fixed_size', accountant='pld')


def _answer(question: budget_question.Question) -> Row | None:
  """Returns the answer to a question; None if it has none, or takes long."""
  most = _MAX_ROUNDS if question.num_rounds else _MAX_SOLVED_ROUNDS
  if question.is_correlated and (question.num_rounds or 0) > most:
    return None
  if _has_long_epochs(question):
    return None
  try:
    plan = budget_question.solve(question, max_strategy_rounds=most)
  except ValueError:
    return None
  return Row(question, plan)


def _has_long_epochs(question: budget_question.Question) -> bool:
  """Returns whether clients draw one of very many rounds."""
  cohort, population = question.clients_per_round, question.num_clients
  return (
    question.sampling == 'random_allocation'
    and cohort is not None
    and population is not None
    and population > _MAX_ROUNDS * cohort
  )
