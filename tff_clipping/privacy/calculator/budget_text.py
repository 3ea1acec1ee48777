"""What the budget calculator answers, for a person to read."""

import math
from collections.abc import Mapping
from typing import Any

from tff_clipping.privacy.accounting import rounding, sampled_gaussian
from tff_clipping.privacy.calculator import (
  budget_comparison,
  budget_report,
  command_line,
)
from tff_clipping.privacy.plans import noise_summary, promise_text


def format_table(
  answer: budget_report.Answer,
  record: Mapping[str, Any] | None = None,
  plot: str | None = None,
  schedule: str = '',
  *,
  shows_theorem_2: bool = False,
) -> str:
  """Returns the answer for a person to read.

  Args:
    answer: The answer.
    record: When and how it was computed.
    plot: The file of its figure, if there is one.
    schedule: What the question's days and participations mean.
    shows_theorem_2: Whether to tell the constant of the paper's Theorem 2.
  """
  question = answer.question
  sections = [
    _format_solution(answer),
    [schedule] if schedule else [],
    [answer.plan.describe()],
    _format_promise(answer),
    *([f'Warning: {message}'] for message in answer.warnings),
  ]
  if (
    answer.is_full
    or question.model_size is not None
    or question.clipping_norm != 1
  ):
    sections.append(_format_noise(answer))
  if question.false_positive_rate is not None:
    sections.append(_format_attacks(answer))
  if shows_theorem_2:
    sections.append([_state_theorem_2(answer)])
  sections.append(_format_comparisons(answer))
  if plot is not None:
    sections.append([f'The figure is in {plot}.'])
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
  tightest = plan.describe_tightest()
  return [*rows, tightest] if tightest else rows


def _format_promise(answer: budget_report.Answer) -> list[str]:
  """Returns what is promised, in words."""
  plan, attacks = answer.plan, answer.attacks
  lines = [
    promise_text.state_promise(
      plan.actual_epsilon, plan.target_delta, plan.actual_relation
    )
  ]
  if attacks is not None:
    lines.append(
      promise_text.state_attack(
        attacks.true_positive_rate,
        attacks.false_positive_rate,
        plan.actual_relation,
      )
    )
  return lines


def _state_theorem_2(answer: budget_report.Answer) -> str:
  """Returns the constant of Theorem 2."""
  if answer.theorem_2_constant is None:
    return (
      'Theorem 2 of the paper has no constant for this plan: it is about '
      'independent noise, and an epsilon above 0.'
    )
  return (
    'Theorem 2 of the paper gives this noise for its constant v = '
    f'{_number(answer.theorem_2_constant)}.'
  )


def _format_noise(answer: budget_report.Answer) -> list[str]:
  """Returns how large the noise is, and where."""
  noise, plan = answer.noise, answer.plan
  unit = '' if noise.clipping_norm != 1 else ' c'
  if answer.question.is_correlated:
    noises = {'of a draw': noise.sum_stddev}
  else:
    noises = {'on the sum': noise.sum_stddev, 'on the mean': noise.mean_stddev}
    # Cohorts without bounds have no shares.
    if plan.sampling not in sampled_gaussian.UNBOUNDED:
      noises |= {
        'of each share': noise.client_stddev,
        'on sum of shares': noise.shares_stddev,
      }
  lines = ['Noise, standard deviation of a coordinate (c = clipping norm):']
  lines += [f'  {k:<17} {_number(v)}{unit}' for k, v in noises.items()]
  error = plan.running_sum_error
  lines.append(
    f'  on running sums   {_number(error * noise.clipping_norm)}{unit} (root '
    'mean square over the sums of the first 1, 2, ... rounds)'
  )
  if noise.model_size is None:
    return lines
  if answer.question.is_correlated:
    norm = noise_summary.relative_norm(
      error, plan.clients_per_round, noise.model_size
    )
    return [
      *lines,
      f'  norm on the model {_number(norm)} c for {noise.model_size} '
      'parameters (running sums of the means; T rounds move it by at most T c)',
    ]
  return [
    *lines,
    f'  norm on the mean  {_number(noise.relative_noise_norm)} c for '
    f'{noise.model_size} parameters (the mean of clipped updates is at most '
    '1 c)',
  ]


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
  title = 'Other ways to the same promise, the best of each kind:'
  if answer.is_full:
    title = 'The same question for other samplings, mechanisms and accountants:'
  notes = [
    'Error: of the running sums. Compare by it: a multiplier is that of a '
    'draw, which each',
    'mechanism uses in its own way. Each epsilon is for the relation of its '
    'row alone.',
  ]
  if not answer.is_full:
    notes.append('--full shows all of them, and how large the noise is.')
  return [title, *_format_rows(answer), *notes]


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
  notes = ['']
  for row in (own, *answer.comparisons):
    question = row.question
    sampling = question.sampling
    if row.min_separation is not None:
      sampling += f', b = {row.min_separation}'
    cells.append(
      (
        *(sampling, question.mechanism),
        *(question.charged_by, question.relation.value),
        *('–' if row.error else show(row.plan) for show in figures.values()),
      )
    )
    notes.append(_note_on(row))
  notes[1] = ', '.join(note for note in ('this plan', notes[1]) if note)
  widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
  lines = (
    '  '.join(
      cell.ljust(width) for cell, width in zip(row, widths, strict=True)
    )
    for row in cells
  )
  return [
    f'  {line}  {note}'.rstrip()
    for line, note in zip(lines, notes, strict=True)
  ]


def _note_on(row: budget_comparison.Row) -> str:
  """Returns what a reader of a row must know."""
  if row.error:
    return 'no answer: ' + row.error.replace('`', '')
  if row.question.sampling == 'paper':
    return f'really gives {_at_most(row.plan.actual_epsilon)} (replace_one)'
  return ''
