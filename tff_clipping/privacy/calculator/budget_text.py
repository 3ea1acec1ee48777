"""What the budget calculator answers, for a person to read."""

import math
from collections.abc import Mapping
from typing import Any

from tff_clipping.privacy.accounting import rounding
from tff_clipping.privacy.calculator import (
  budget_comparison,
  budget_report,
  command_line,
)
from tff_clipping.privacy.plans import words


def format_table(
  answer: budget_report.Answer,
  record: Mapping[str, Any] | None = None,
) -> str:
  """Returns the answer for a person to read.

  Args:
    answer: The answer.
    record: When and how it was computed.
  """
  sections = [
    _format_solution(answer),
    [words.describe_plan(answer.plan)],
    _format_promise(answer),
    *([f'Warning: {message}'] for message in answer.warnings),
  ]
  if answer.question.false_positive_rate is not None:
    sections.append(_format_attacks(answer))
  sections.append(_format_comparisons(answer))
  if record is not None:
    sections.append([command_line.format_record(record)])
  return '\n\n'.join('\n'.join(lines) for lines in sections if lines)


def _format_solution(answer: budget_report.Answer) -> list[str]:
  """Returns the numbers, and which of them was solved for."""
  plan, question = answer.plan, answer.question
  solved = budget_report.solved_name(question)
  values = {
    'num_clients': str(plan.num_clients),
    'clients_per_round': str(plan.clients_per_round),
    'noise_multiplier': f'{plan.noise_multiplier:g}',
    'epsilon': _at_most(plan.epsilon),
    'num_rounds': str(plan.num_rounds),
  }
  for name in ('num_clients', 'clients_per_round'):
    if name != solved:
      del values[name]
  rows = ['The answer:']
  for name, value in values.items():
    note = '  <- solved for' if name == solved else ''
    if name == 'epsilon' and question.target_epsilon is not None:
      note = f'  (target {question.target_epsilon:g})'
    if name == 'epsilon' and plan.sampling == 'paper':
      note += (
        f'  as the paper charges; its cohorts really give '
        f'{_at_most(plan.actual_epsilon)}'
      )
    if name == 'noise_multiplier' and question.noise_to_clients_ratio:
      note = f'  ({question.noise_to_clients_ratio:g} for each client)'
    rows.append(f'  {name.replace("_", " "):<17} {value}{note}')
  kind = (
    f'--mechanism={question.mechanism}'
    if question.is_correlated
    else f'--accountant={plan.accountant}'
  )
  rows.append(f'  {"only for":<17} --sampling={plan.sampling} {kind}')
  tightest = words.describe_tightest(plan)
  return [*rows, tightest] if tightest else rows


def _format_promise(answer: budget_report.Answer) -> list[str]:
  """Returns what is promised, in words."""
  plan, attacks = answer.plan, answer.attacks
  lines = [
    words.state_promise(
      plan.actual_epsilon, plan.target_delta, plan.actual_relation
    )
  ]
  if attacks is not None:
    lines.append(
      words.state_attack(
        attacks.true_positive_rate,
        attacks.false_positive_rate,
        plan.actual_relation,
      )
    )
  return lines


def _format_attacks(answer: budget_report.Answer) -> list[str]:
  """Returns what an attacker may find out."""
  attacks, plan = answer.attacks, answer.plan
  mu = 'above 1000' if math.isinf(attacks.mu) else _at_most(attacks.mu)
  drawn = ''
  if plan.sampling == 'paper':
    drawn = ', for the cohorts that are really drawn'
  return [
    f'What an attacker may find out about one client, at most{drawn}:',
    f'  mu                {mu} (no worse than one Gaussian '
    f'mechanism of this mu, at any delta from {plan.target_delta:g})',
    f'  true positives    {_at_most(attacks.true_positive_rate)} at a '
    f'false-positive rate of {attacks.false_positive_rate:g}',
  ]


def _number(value: float) -> str:
  """Returns a number with 5 significant digits."""
  return f'{value:.5g}'


def _at_most(value: float) -> str:
  """Returns what a run may cost with 5 significant digits, rounded up."""
  return rounding.format_up(value, digits=5)


def _format_comparisons(answer: budget_report.Answer) -> list[str]:
  """Returns the lines of the table, the plan's own row first."""
  return [
    'Other ways to the same promise, the best of each kind:',
    *_format_rows(answer),
    'Error: of the running sums. Compare by it: a multiplier is that of a '
    'draw, which each',
    'mechanism uses in its own way. Each epsilon is for the relation of its '
    'row alone.',
  ]


def _format_rows(answer: budget_report.Answer) -> list[str]:
  """Returns the rows of the table."""
  figures = {
    'in all': lambda plan: str(plan.num_clients),
    'clients': lambda plan: str(plan.clients_per_round),
    'noise mult.': lambda plan: f'{plan.noise_multiplier:g}',
    'epsilon': lambda plan: _at_most(plan.epsilon),
    'rounds': lambda plan: str(plan.num_rounds),
    'error': lambda plan: _number(plan.running_sum_error) + ' c',
  }
  for column, name in (
    ('in all', 'num_clients'),
    ('clients', 'clients_per_round'),
  ):
    if answer.question.solved_for != name:
      del figures[column]
  own = budget_comparison.Row(answer.question, answer.plan)
  cells = [('sampling', 'mechanism', 'accountant', 'relation', *figures)]
  for row in (own, *answer.comparisons):
    question = row.question
    sampling = question.sampling
    if row.min_separation is not None:
      sampling += f', b = {row.min_separation}'
    cells.append(
      (
        *(sampling, question.mechanism),
        *(question.charged_by, question.relation.value),
        *(show(row.plan) for show in figures.values()),
      )
    )
  widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
  note = 'this plan'
  if answer.plan.sampling == 'paper':
    really = _at_most(answer.plan.actual_epsilon)
    note += f', really gives {really} (replace_one)'
  lines = [
    '  '
    + '  '.join(
      cell.ljust(width) for cell, width in zip(row, widths, strict=True)
    )
    for row in cells
  ]
  lines[1] += f'  {note}'
  return [line.rstrip() for line in lines]
