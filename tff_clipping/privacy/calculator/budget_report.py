"""What the budget calculator answers, as values, a table or JSON."""

import dataclasses
import json
import math
import warnings
from collections.abc import Mapping
from typing import Any

from tff_clipping.privacy.accounting import rounding, sampled_gaussian
from tff_clipping.privacy.audit import attack_bounds
from tff_clipping.privacy.calculator import (
  budget_comparison,
  budget_question,
  command_line,
)
from tff_clipping.privacy.plans import base_plan, noise_summary, plan_text
from tff_clipping.theory import theorem_2

# What a first phase may take of the budget, to compare.
_SHARES = (0.001, 0.01, 0.1)

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
    attacks: What an attacker may find out, if it was asked.
    thresholds: Plans by what a first phase takes of the budget, the plan among
      them; none without `threshold_rounds`.
    comparisons: The other samplings, mechanisms and accountants.
    warnings: Warnings of the library.
  """

  question: budget_question.Question
  plan: base_plan.BasePlan
  noise: noise_summary.NoiseSummary
  theorem_2_constant: float | None
  attacks: attack_bounds.AttackBounds | None
  thresholds: tuple[base_plan.BasePlan, ...]
  comparisons: tuple[budget_comparison.Row, ...]
  warnings: tuple[str, ...]


def target_epsilon(
  question: budget_question.Question, plan: base_plan.BasePlan
) -> float:
  """Returns the epsilon that was asked for, or that of the plan; 0 is one."""
  if question.target_epsilon is None:
    return plan.epsilon
  return question.target_epsilon


def compute_answer(question: budget_question.Question) -> Answer:
  """Solves for what is not given.

  Args:
    question: What is given.

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
      attacks = attack_bounds.bound_attacks(plan, question.false_positive_rate)
    thresholds = _vary_share(question, plan)
    comparisons = budget_comparison.compare(question, plan)
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
    thresholds=thresholds,
    comparisons=comparisons,
    warnings=tuple(messages),
  )


def format_json(
  answer: Answer,
  record: Mapping[str, Any] | None = None,
  plot: str | None = None,
) -> str:
  """Returns the answer as one JSON object.

  Args:
    answer: The answer.
    record: When and how it was computed.
    plot: The file of its figure, if there is one.
  """
  plan, attacks = answer.plan, answer.attacks
  value: dict[str, Any] = {
    **{name: getattr(plan, name, None) for name in _OF_PLAN},
    'solved_for': _solved_name(answer.question),
    'noise_to_clients_ratio': plan.noise_multiplier / plan.clients_per_round,
    'mechanism': answer.question.mechanism,
    'relation': plan.relation.value,
    'theorem_2_constant': answer.theorem_2_constant,
    'attacks': None if attacks is None else attacks._asdict(),
    'noise': dataclasses.asdict(answer.noise),
    'thresholds': [_to_json(each) for each in answer.thresholds],
    'comparisons': [each.to_json() for each in answer.comparisons],
    'description': plan.describe(),
    'plan': plan.to_json(),
    'warnings': list(answer.warnings),
    'plot': plot,
    **(record or {}),
  }
  if attacks is not None and math.isinf(attacks.mu):
    value['attacks']['mu'] = None
  return json.dumps(value, indent=2, allow_nan=False)


def format_table(
  answer: Answer,
  record: Mapping[str, Any] | None = None,
  plot: str | None = None,
) -> str:
  """Returns the answer for a person to read.

  Args:
    answer: The answer.
    record: When and how it was computed.
    plot: The file of its figure, if there is one.
  """
  sections = [
    [answer.plan.describe()],
    _format_solution(answer),
    _format_noise(answer),
    *([_format_thresholds(answer)] if answer.thresholds else []),
    *([f'Warning: {message}'] for message in answer.warnings),
  ]
  if answer.attacks is not None:
    sections.append(_format_attacks(answer))
  if answer.theorem_2_constant is not None:
    sections.append(
      [
        'Theorem 2 of the paper gives this noise for its constant v = '
        f'{_number(answer.theorem_2_constant)}.'
      ]
    )
  sections.append(
    [
      'The same question for other samplings, mechanisms and accountants:',
      *_format_comparisons(answer),
      'Error: of the running sums. Compare by it: a multiplier is that of a '
      'draw, which each',
      'mechanism uses in its own way. Each epsilon is for the relation of its '
      'row alone.',
    ]
  )
  if plot is not None:
    sections.append([f'The figure is in {plot}.'])
  if record is not None:
    sections.append([command_line.format_record(record)])
  return '\n\n'.join('\n'.join(lines) for lines in sections)


def _format_solution(answer: Answer) -> list[str]:
  """Returns the numbers, and which of them was solved for."""
  plan, question = answer.plan, answer.question
  solved = _solved_name(question)
  values = {
    'clients_per_round': str(plan.clients_per_round),
    'noise_multiplier': f'{plan.noise_multiplier:g}',
    'epsilon': _at_most(plan.epsilon),
    'num_rounds': str(plan.num_rounds),
  }
  if solved != 'clients_per_round':
    del values['clients_per_round']
  rows = []
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
  return rows


def _format_noise(answer: Answer) -> list[str]:
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


def _vary_share(
  question: budget_question.Question, plan: base_plan.BasePlan
) -> tuple[base_plan.BasePlan, ...]:
  """Returns plans whose first phases take other shares of the budget."""
  if plan.threshold is None:
    return ()
  return tuple(
    plan
    if share == plan.threshold.share
    else budget_question.solve(question, threshold_share=share)
    for share in _SHARES
  )


def _to_json(plan: base_plan.BasePlan) -> dict[str, float]:
  """Returns what a first phase takes, and what it leaves."""
  first = plan.build_threshold_plan()
  assert plan.threshold is not None
  return {
    'share': plan.threshold.share,
    'bits_noise_stddev': first.noise_multiplier / 2,
    'epsilon_alone': first.epsilon,
    'noise_multiplier': plan.noise_multiplier,
  }


def _format_thresholds(answer: Answer) -> list[str]:
  """Returns how much of epsilon a first phase takes, and what that gives."""
  clients = answer.plan.clients_per_round
  drawn = 0.5 / math.sqrt(clients)
  rows = [('share', 'noise on a share of bits', 'epsilon alone', 'noise mult.')]
  for plan in answer.thresholds:
    found = _to_json(plan)
    rows.append(
      (
        f'{100 * found["share"]:g} %',
        f'{100 * found["bits_noise_stddev"] / clients:.2g} %',
        _at_most(found['epsilon_alone']),
        f'{plan.noise_multiplier:g}',
      )
    )
  widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
  rounds = plan_text.count_rounds(answer.plan.threshold_rounds)
  return [
    f'Of the budget, {rounds} that estimate the clipping norm take:',
    *(
      '  '
      + '  '.join(
        cell.ljust(width) for cell, width in zip(row, widths, strict=True)
      ).rstrip()
      for row in rows
    ),
    f'That {clients} clients are drawn moves a share of bits by '
    f'{100 * drawn:.2g} % already: much less noise',
    'than that is not worth its cost. The plan takes '
    f'{100 * answer.plan.threshold.share:g} %.',
  ]


def _format_attacks(answer: Answer) -> list[str]:
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


def _solved_name(question: budget_question.Question) -> str:
  """The name of the answer: the epsilon that is found is not a target."""
  solved = question.solved_for
  return 'epsilon' if solved == 'target_epsilon' else solved


def _number(value: float) -> str:
  """Returns a number with 5 significant digits."""
  return f'{value:.5g}'


def _at_most(value: float) -> str:
  """Returns what a run may cost with 5 significant digits, rounded up."""
  return rounding.format_up(value, digits=5)


def _format_comparisons(answer: Answer) -> list[str]:
  """Returns the lines of the table, the plan's own row first."""
  figures = {
    'clients': lambda plan: str(plan.clients_per_round),
    'noise mult.': lambda plan: f'{plan.noise_multiplier:g}',
    'epsilon': lambda plan: _at_most(plan.epsilon),
    'rounds': lambda plan: str(plan.num_rounds),
    'error': lambda plan: _number(plan.running_sum_error) + ' c',
  }
  if answer.question.solved_for != 'clients_per_round':
    del figures['clients']
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
