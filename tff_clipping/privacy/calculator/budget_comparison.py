"""The calculator's question, answered by the other samplers and mechanisms."""

import dataclasses
from collections.abc import Iterator
from typing import Any

from tff_clipping.privacy.accounting import accountants
from tff_clipping.privacy.calculator import budget_question
from tff_clipping.privacy.correlated_noise import by_name
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
    plan: Its answer, or None.
    error: Why there is no answer, or None.
  """

  question: budget_question.Question
  plan: base_plan.BasePlan | None
  error: str | None = None

  @property
  def min_separation(self) -> int | None:
    """As in `Question`; None where it is of no account."""
    if self.question.sampling in ('min_separation', 'grouped_poisson'):
      return self.question.min_separation
    return None

  @property
  def is_guarantee(self) -> bool:
    """Whether `epsilon` holds for the sampler."""
    return self.question.sampling != 'paper'

  def to_json(self) -> dict[str, Any]:
    """Returns the row for `json.dump`; figures are None without an answer."""
    question = self.question
    return {
      'sampling': question.sampling,
      'mechanism': question.mechanism,
      'min_separation': self.min_separation,
      'accountant': question.charged_by,
      'relation': question.relation.value,
      **{name: getattr(self.plan, name, None) for name in _FIGURES},
      'guarantee': self.is_guarantee,
      'error': self.error,
    }


def compare(
  question: budget_question.Question, plan: base_plan.BasePlan
) -> tuple[Row, ...]:
  """Returns the other rows of a question's table.

  Args:
    question: What was asked.
    plan: Its answer, whose row is left out.
  """
  others = (
    *_list_samplers(question),
    *_list_mechanisms(question, plan.num_clients // plan.clients_per_round),
  )
  asked = question.vary()
  return tuple(_answer(each) for each in others if each != asked)


def list_alternatives(
  question: budget_question.Question, plan: base_plan.BasePlan
) -> tuple[Row, ...]:
  """Returns the few rows to look at first: each a guarantee, with an answer.

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
    if row.plan is not None:
      found.append(row)
  return tuple(found)


def _list_tightest(
  question: budget_question.Question, plan: base_plan.BasePlan
) -> Iterator[budget_question.Question]:
  """Yields the best of each way to draw cohorts, the question's own first."""
  if question.sampling == 'truncated_poisson':
    yield question.vary(sampling='truncated_poisson', accountant='pld')
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


def _list_samplers(
  question: budget_question.Question,
) -> Iterator[budget_question.Question]:
  """Yields independent noise and cohorts that are drawn."""
  for sampling in ('poisson', 'random_allocation', 'fixed_size', 'paper'):
    for accountant in accountants.list_for(sampling):
      yield question.vary(sampling=sampling, accountant=accountant)


def _list_mechanisms(
  question: budget_question.Question, largest_separation: int
) -> Iterator[budget_question.Question]:
  """Yields noise that needs no secret cohorts, and groups."""
  separation = question.min_separation
  if separation is None and question.solved_for in _SIZES:
    return
  for mechanism in by_name.MECHANISMS:
    yield question.vary(
      sampling='min_separation',
      mechanism=mechanism,
      # By default, all clients take turns.
      min_separation=separation or largest_separation,
    )
  # Fewer groups than that are worth a draw.
  if separation is not None:
    yield question.vary(sampling='grouped_poisson', mechanism='banded')


def _answer(question: budget_question.Question) -> Row:
  """Returns the answer to a question, or why there is none."""
  most = _MAX_ROUNDS if question.num_rounds else _MAX_SOLVED_ROUNDS
  try:
    if question.is_correlated and (question.num_rounds or 0) > most:
      raise ValueError(
        f'more than {most} rounds, for which a table would take long'
      )
    if _has_long_epochs(question):
      raise ValueError(
        f'epochs of more than {_MAX_ROUNDS} rounds, for which a table would '
        'take long'
      )
    return Row(
      question, budget_question.solve(question, max_strategy_rounds=most)
    )
  except ValueError as error:
    return Row(question, None, str(error))


def _has_long_epochs(question: budget_question.Question) -> bool:
  """Returns whether clients draw one of very many rounds."""
  cohort, population = question.clients_per_round, question.num_clients
  return (
    question.sampling == 'random_allocation'
    and cohort is not None
    and population is not None
    and population > _MAX_ROUNDS * cohort
  )
