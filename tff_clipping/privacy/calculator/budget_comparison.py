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

# What a row shows of its plan.
_FIGURES = (
  *('clients_per_round', 'noise_multiplier', 'epsilon', 'num_rounds'),
  *('running_sum_error', 'actual_epsilon'),
)


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
      # Whether `epsilon` holds for the sampler.
      'guarantee': question.sampling != 'paper',
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


def _list_samplers(
  question: budget_question.Question,
) -> Iterator[budget_question.Question]:
  """Yields independent noise and cohorts that are drawn."""
  for sampling in ('poisson', 'random_allocation', 'fixed_size', 'paper'):
    if sampling == 'paper' and question.threshold_rounds is not None:
      continue  # It has no first phase.
    for accountant in accountants.list_for(sampling):
      yield question.vary(sampling=sampling, accountant=accountant)


def _list_mechanisms(
  question: budget_question.Question, largest_separation: int
) -> Iterator[budget_question.Question]:
  """Yields noise that needs no secret cohorts, and groups."""
  separation = question.min_separation
  if separation is None and question.solved_for == 'clients_per_round':
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
  cohort = question.clients_per_round
  return (
    question.sampling == 'random_allocation'
    and cohort is not None
    and question.num_clients > _MAX_ROUNDS * cohort
  )
