"""The answer of the budget calculator: one dict, for JSON and for a table."""

import contextlib
import dataclasses
import math
import warnings
from typing import Any

from tff_clipping.privacy.accounting import ranges, rounding, sampled_gaussian
from tff_clipping.privacy.audit import trade_off
from tff_clipping.privacy.calculator import budget_question
from tff_clipping.privacy.plans import plan_json, words
from tff_clipping.privacy.plans.base_plan import BasePlan

# Alternatives with strategies of more rounds would take long, and longer if the
# rounds are solved for.
_MAX_ROUNDS = 10_000
_MAX_SOLVED_ROUNDS = 2_000

# The separation of alternatives follows from these, if both are given.
_SIZES = ('clients_per_round', 'num_clients')


def compute_answer(
  question: budget_question.Question,
  plan: BasePlan,
  *,
  false_positive_rate: float | None = None,
  alternatives: bool = False,
) -> dict[str, Any]:
  """Returns the answer to a question for `json.dumps`.

  Args:
    question: The question.
    plan: The plan that `budget_question.solve` found.
    false_positive_rate: The rate at which attacks are bounded; None for 1 %.
    alternatives: Whether to solve it for other samplings and mechanisms too.

  Raises:
    TypeError: If the rate is not a number.
    ValueError: If the rate is not in (0, 1).
  """
  rate = trade_off.FALSE_POSITIVE_RATE
  if false_positive_rate is not None:
    rate = false_positive_rate
  attacks = trade_off.bound_attacks(plan, rate)
  solved, relation = question.solved_for, plan.relation
  return {
    # An epsilon that is found is no target.
    'solved_for': 'epsilon' if solved == 'target_epsilon' else solved,
    **_describe_row(question, plan),
    'target_epsilon': plan.target_epsilon,
    'target_delta': plan.target_delta,
    'sampling_prob': getattr(plan, 'sampling_prob', None),
    'noise_to_clients_ratio': plan.noise_multiplier / plan.clients_per_round,
    'tightest_epsilon': plan.tightest_epsilon,
    'tightest': words.describe_tightest(plan),
    'attacks': {
      **attacks._asdict(),
      'mu': attacks.mu if math.isfinite(attacks.mu) else None,
    },
    'description': words.describe_plan(plan),
    'promise': [
      words.state_promise(plan.epsilon, plan.target_delta, relation),
      words.state_attack(attacks.true_positive_rate, rate, relation),
    ],
    'alternatives': _list_alternatives(question, plan) if alternatives else [],
    'plan': plan_json.plan_to_json(plan),
  }


def format_answer(answer: dict[str, Any]) -> list[str]:
  """Returns an answer of `compute_answer` in paragraphs for a person."""
  return [
    _format_solution(answer),
    answer['description'],
    '\n'.join(answer['promise']),
  ]


def _describe_row(
  question: budget_question.Question, plan: BasePlan
) -> dict[str, Any]:
  """Returns the fields that an answer and its alternatives share."""
  return {
    'sampling': plan.sampling,
    'mechanism': question.mechanism,
    'min_separation': getattr(plan, 'min_separation', None),
    'accountant': plan.accountant,
    'relation': plan.relation.value,
    'num_clients': plan.num_clients,
    'clients_per_round': plan.clients_per_round,
    'noise_multiplier': plan.noise_multiplier,
    'epsilon': plan.epsilon,
    'num_rounds': plan.num_rounds,
    # Of the mean, on which larger cohorts have less noise.
    'running_mean_error': plan.running_sum_error / plan.clients_per_round,
  }


def _list_alternatives(
  question: budget_question.Question, plan: BasePlan
) -> list[dict[str, Any]]:
  """Returns other samplings and mechanisms for the same promise.

  Each sampling has its tightest accountant, or its mechanism with the least
  error. Alternatives without an answer, or that take long, are left out.
  """
  independent = {'mechanism': 'gaussian', 'accountant': 'pld'}
  kinds: list[dict[str, Any]] = [{'sampling': 'poisson', **independent}]
  if plan.num_clients <= _MAX_ROUNDS * plan.clients_per_round:
    kinds.append({'sampling': 'random_allocation', **independent})
  separation = question.min_separation
  if separation is None and question.solved_for not in _SIZES:
    separation = plan.num_clients // plan.clients_per_round
  most = _MAX_ROUNDS if question.num_rounds else _MAX_SOLVED_ROUNDS
  if separation is not None and (question.num_rounds or 0) <= most:
    kinds.append(
      {
        'sampling': 'min_separation',
        'min_separation': separation,
        'mechanism': 'banded',
        'accountant': None,
      }
    )
  kinds.append({'sampling': 'fixed_size', **independent})
  rows = []
  with warnings.catch_warnings():
    # Warnings are about the answer alone.
    warnings.simplefilter('ignore', ranges.DeltaWarning)
    for kind in kinds:
      other = dataclasses.replace(question, **kind)
      with contextlib.suppress(ValueError):
        found = budget_question.solve(other, max_strategy_rounds=most)
        rows.append(_describe_row(other, found))
  known = _describe_row(question, plan)
  return [row for row in rows if row != known]


def _format_solution(answer: dict[str, Any]) -> str:
  """Returns the numbers, with a mark at the one that was solved for."""
  solved, epsilon = answer['solved_for'], _at_most(answer['epsilon'])
  values = {
    'num_clients': f'{answer["num_clients"]}',
    'clients_per_round': f'{answer["clients_per_round"]}',
    'noise_multiplier': _at_most(answer['noise_multiplier'], digits=6),
    'epsilon': epsilon,
    'num_rounds': f'{answer["num_rounds"]}',
  }
  notes = {}
  if solved == 'clients_per_round':
    ratio = answer['noise_to_clients_ratio']
    notes['noise_multiplier'] = f'  ({ratio:g} for each client)'
  if answer['target_epsilon'] is not None:
    notes['epsilon'] = f'  (target {answer["target_epsilon"]:g})'
  notes[solved] = f'  <- solved for{notes.get(solved, "")}'
  rows = [
    f'  {name.replace("_", " "):<17} {value}{notes.get(name, "")}'
    for name, value in values.items()
    if name == solved or name not in _SIZES
  ]
  kind = f'--accountant={answer["accountant"]}'
  if answer['min_separation'] is not None:
    kind = f'--mechanism={answer["mechanism"]}'
  only = f'  {"only for":<17} --sampling={answer["sampling"]} {kind}'
  tightest = [answer['tightest']] if answer['tightest'] else []
  return '\n'.join(['The answer:', *rows, only, *tightest])


def format_attacks(answer: dict[str, Any]) -> str:
  """Returns the bounds on attacks, for a person to read."""
  attacks = answer['attacks']
  mu = 'above 1000' if attacks['mu'] is None else _at_most(attacks['mu'])
  return (
    'What an attacker may find out about one client, at most:\n'
    f'  mu                {mu} (no worse than one Gaussian mechanism of this '
    f'mu, at any delta from {answer["target_delta"]:g})\n'
    f'  true positives    {_at_most(attacks["true_positive_rate"])} at a '
    f'false-positive rate of {attacks["false_positive_rate"]:g}'
  )


def format_alternatives(answer: dict[str, Any]) -> list[str]:
  """Returns the alternatives as tables: of this relation, and of others."""
  same, others = [answer], list[dict[str, Any]]()
  for row in answer['alternatives']:
    (same if row['relation'] == answer['relation'] else others).append(row)
  title = 'Other ways to the same promise'
  if answer['solved_for'] == 'epsilon':
    title = 'The same noise multiplier with other cohorts and mechanisms'
  tables = [
    f'{title}, the best of each kind:\n'
    f'{_format_rows(same, answer)}\n'
    'Error: of the mean of the updates, added up over the rounds, in units of '
    'c. Compare by\nit: a multiplier is that of a draw, which each mechanism '
    'uses in its own way.'
  ]
  if others:
    relations = ' and '.join(dict.fromkeys(row['relation'] for row in others))
    change = words.RELATIONS[
      sampled_gaussian.Relation(answer['relation'])
    ].change
    tables.append(
      f'With another promise, for {relations}: no epsilon here is to be '
      f'compared with one for {change}.\n{_format_rows(others, answer)}'
    )
  return tables


def _format_rows(rows: list[dict[str, Any]], answer: dict[str, Any]) -> str:
  """Returns a table."""
  figures = {
    'in all': lambda row: f'{row["num_clients"]}',
    'clients': lambda row: f'{row["clients_per_round"]}',
    'noise mult.': lambda row: _at_most(row['noise_multiplier'], digits=6),
    'epsilon': lambda row: _at_most(row['epsilon']),
    'rounds': lambda row: f'{row["num_rounds"]}',
    'error': lambda row: f'{row["running_mean_error"]:.4g} c',
  }
  if answer['solved_for'] != 'num_clients':
    del figures['in all']
  if answer['solved_for'] != 'clients_per_round':
    del figures['clients']
  cells = [('sampling', 'mechanism', 'accountant', 'relation', *figures, '')]
  for row in rows:
    sampling = row['sampling']
    if row['min_separation'] is not None:
      sampling += f', b = {row["min_separation"]}'
    cells.append(
      (
        *(sampling, row['mechanism'], row['accountant'], row['relation']),
        *(show(row) for show in figures.values()),
        'this plan' if row is answer else '',
      )
    )
  widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
  return '\n'.join(
    '  '
    + '  '.join(
      cell.ljust(width) for cell, width in zip(row, widths, strict=True)
    ).rstrip()
    for row in cells
  )


def _at_most(value: float, digits: int = 5) -> str:
  """Returns a cost, or noise that costs no more, rounded up."""
  return rounding.format_up(value, digits=digits)
