"""What the budget calculator answers, as values, a table or JSON."""

import dataclasses
import functools
import json
import warnings
from typing import Any

from tff_clipping.privacy import (
  accountants,
  calibration,
  noise_summary,
  sampled_gaussian,
)
from tff_clipping.privacy import plan as plan_lib
from tff_clipping.theory import theorem_2

SOLVABLE = ('target_epsilon', 'noise_multiplier', 'num_rounds')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Question:
  """Two of three, and everything else that the third depends on.

  Attributes:
    num_clients: The paper's N.
    clients_per_round: The paper's P.
    target_delta: The paper's delta.
    target_epsilon: The paper's epsilon, or None to solve for it.
    noise_multiplier: Noise on the sum over the clipping norm, or None.
    num_rounds: The paper's T, or None.
    sampling: As in `PrivacyPlan`.
    accountant: As in `PrivacyPlan`.
    clipping_norm: The paper's c, for the noise in its unit.
    model_size: The number of parameters, or None.
    min_clients_per_round: As in `PrivacyPlan`.
    max_clients_per_round: As in `PrivacyPlan`.
  """

  num_clients: int
  clients_per_round: int
  target_delta: float
  target_epsilon: float | None
  noise_multiplier: float | None
  num_rounds: int | None
  sampling: str
  accountant: str
  clipping_norm: float
  model_size: int | None
  min_clients_per_round: int | None = None
  max_clients_per_round: int | None = None

  def __post_init__(self):
    given = [name for name in SOLVABLE if getattr(self, name) is not None]
    if len(given) != 2:
      listed = ' and '.join(f'`{name}`' for name in given) or 'none of them'
      raise ValueError(
        'exactly two of `target_epsilon`, `noise_multiplier` and `num_rounds` '
        f'must be given, found {listed}.'
      )

  @property
  def solved_for(self) -> str:
    """The one of the three that is not given."""
    return next(name for name in SOLVABLE if getattr(self, name) is None)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Comparison:
  """The same question for another sampler or accountant.

  Attributes:
    sampling: As in `PrivacyPlan`.
    accountant: 'rdp', 'pld' or 'pld_one_sided'.
    relation: The neighbouring relation of `epsilon`.
    noise_multiplier: Given or solved for; None if there is no answer.
    epsilon: Of `num_rounds` rounds, in this accounting; None if no answer.
    num_rounds: Given or solved for; None if there is no answer.
    actual_epsilon: What the sampler really gives; differs under 'paper' only.
    guarantee: Whether `epsilon` holds for the sampler.
    error: Why there is no answer, or None.
  """

  sampling: str
  accountant: str
  relation: str
  noise_multiplier: float | None = None
  epsilon: float | None = None
  num_rounds: int | None = None
  actual_epsilon: float | None = None
  guarantee: bool
  error: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Answer:
  """The plan that was asked for, and what it is to be compared with.

  Attributes:
    question: What was asked.
    plan: The plan, with the third number solved for.
    noise: How large its noise is.
    theorem_2_constant: The v of the paper's Theorem 2 that gives this noise.
    comparisons: The other accountants and samplings.
    warnings: Warnings of the library.
  """

  question: Question
  plan: plan_lib.PrivacyPlan
  noise: noise_summary.NoiseSummary
  theorem_2_constant: float
  comparisons: tuple[Comparison, ...]
  warnings: tuple[str, ...]


def compute_answer(question: Question) -> Answer:
  """Solves for the third number.

  Args:
    question: What is given.

  Raises:
    TypeError: If a value is of the wrong kind.
    ValueError: If a value is out of range, or there is no answer.
  """
  with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter('always')
    plan = _solve(question)
    noise = plan.summarize_noise(
      clipping_norm=question.clipping_norm, model_size=question.model_size
    )
    constant = theorem_2.theorem_2_constant(
      noise_multiplier=plan.noise_multiplier,
      num_clients=plan.num_clients,
      clients_per_round=plan.clients_per_round,
      num_rounds=plan.num_rounds,
      target_epsilon=question.target_epsilon or plan.epsilon,
      target_delta=plan.target_delta,
    )
    comparisons = tuple(
      _compare(question, sampling, accountant)
      for sampling in ('poisson', 'fixed_size', 'paper')
      for accountant in ('rdp', 'pld', 'pld_one_sided')
      if (sampling, accountant) != (question.sampling, question.accountant)
      and (sampling == 'fixed_size' or accountant != 'pld_one_sided')
    )
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
    comparisons=comparisons,
    warnings=tuple(messages),
  )


def format_json(answer: Answer) -> str:
  """Returns the answer as one JSON object."""
  plan = answer.plan
  value: dict[str, Any] = {
    'noise_multiplier': plan.noise_multiplier,
    'epsilon': plan.epsilon,
    'num_rounds': plan.num_rounds,
    'actual_epsilon': plan.actual_epsilon,
    'solved_for': _solved_name(answer.question),
    'num_clients': plan.num_clients,
    'clients_per_round': plan.clients_per_round,
    'min_clients_per_round': plan.min_clients_per_round,
    'max_clients_per_round': plan.max_clients_per_round,
    'sampling_prob': plan.sampling_prob,
    'target_delta': plan.target_delta,
    'target_epsilon': plan.target_epsilon,
    'sampling': plan.sampling,
    'accountant': plan.accountant,
    'relation': plan.relation.value,
    'theorem_2_constant': answer.theorem_2_constant,
    'noise': dataclasses.asdict(answer.noise),
    'comparisons': [dataclasses.asdict(each) for each in answer.comparisons],
    'description': plan.describe(),
    'warnings': list(answer.warnings),
  }
  return json.dumps(value, indent=2, allow_nan=False)


def format_table(answer: Answer) -> str:
  """Returns the answer for a person to read."""
  plan, noise, question = answer.plan, answer.noise, answer.question
  solved = _solved_name(question)
  rows = []
  for name, value in (
    ('noise_multiplier', f'{plan.noise_multiplier:g}'),
    ('epsilon', _number(plan.epsilon)),
    ('num_rounds', str(plan.num_rounds)),
  ):
    note = '  <- solved for' if name == solved else ''
    if name == 'epsilon' and question.target_epsilon is not None:
      note = f'  (target {question.target_epsilon:g})'
    if name == 'epsilon' and plan.sampling == 'paper':
      note += (
        f'  as the paper charges; its cohorts really give '
        f'{_number(plan.actual_epsilon)}'
      )
    rows.append(f'  {name.replace("_", " "):<17} {value}{note}')
  unit = '' if noise.clipping_norm != 1 else ' c'
  noises = [
    ('on the sum', noise.sum_stddev),
    ('of each client', noise.client_stddev),
    ('on the mean', noise.mean_stddev),
  ]
  lines = [plan.describe(), '', *rows, '']
  lines.append('Noise, standard deviation of a coordinate (c = clipping norm):')
  lines += [f'  {name:<17} {_number(value)}{unit}' for name, value in noises]
  if noise.relative_noise_norm is not None:
    lines.append(
      f'  norm on the mean  {_number(noise.relative_noise_norm)} c for '
      f'{noise.model_size} parameters (the mean of clipped updates is at most '
      '1 c)'
    )
  lines += [
    '',
    'Theorem 2 of the paper gives this noise for its constant v = '
    f'{_number(answer.theorem_2_constant)}.',
    '',
    'The same question for other samplings and accountants:',
    *_format_comparisons(answer),
  ]
  return '\n'.join(lines)


def _solve(question: Question) -> plan_lib.PrivacyPlan:
  """Returns the plan that answers the question."""
  given = {
    name: getattr(question, name)
    for name in SOLVABLE
    if name != question.solved_for
  }
  build = {
    'noise_multiplier': plan_lib.PrivacyPlan.from_target_epsilon,
    'target_epsilon': plan_lib.PrivacyPlan.from_noise_multiplier,
    'num_rounds': plan_lib.PrivacyPlan.from_max_rounds,
  }[question.solved_for]
  return build(
    num_clients=question.num_clients,
    clients_per_round=question.clients_per_round,
    target_delta=question.target_delta,
    sampling=question.sampling,
    accountant=question.accountant,
    min_clients_per_round=question.min_clients_per_round,
    max_clients_per_round=question.max_clients_per_round,
    **given,
  )


def _compare(question: Question, sampling: str, accountant: str) -> Comparison:
  """Returns the answer for another sampler or accountant, or why there is none.

  By the accountants and not by plans: no plan takes 'pld_one_sided'.
  """
  charged = 'poisson' if sampling == 'paper' else sampling
  row = {
    'sampling': sampling,
    'accountant': accountant,
    'relation': sampled_gaussian.RELATIONS[charged].value,
    'guarantee': accountant != 'pld_one_sided' and sampling != 'paper',
  }
  try:
    noise, epsilon, rounds = _solve_charged(question, charged, accountant)
    actual = epsilon
    if sampling == 'paper':
      actual = plan_lib.PrivacyPlan(
        num_clients=question.num_clients,
        clients_per_round=question.clients_per_round,
        num_rounds=rounds,
        target_delta=question.target_delta,
        noise_multiplier=noise,
        sampling='paper',
        accountant=accountant,
      ).actual_epsilon
  except ValueError as error:
    return Comparison(**row, error=str(error))
  return Comparison(
    **row,
    noise_multiplier=noise,
    epsilon=epsilon,
    num_rounds=rounds,
    actual_epsilon=actual,
  )


@functools.lru_cache(maxsize=64)  # 'paper' asks what 'poisson' has answered.
def _solve_charged(
  question: Question, sampling: str, accountant: str
) -> tuple[float, float, int]:
  """Returns noise multiplier, epsilon and rounds for one event."""
  cohorts = sampled_gaussian.CohortSampling(
    sampling=sampling,
    num_clients=question.num_clients,
    clients_per_round=question.clients_per_round,
  )
  delta, target = question.target_delta, question.target_epsilon
  noise, rounds = question.noise_multiplier, question.num_rounds
  if noise is None:
    noise = calibration.find_noise_multiplier(
      cohorts,
      accountant,
      num_rounds=rounds,
      target_epsilon=target,
      target_delta=delta,
    )
  mechanism = sampled_gaussian.add_noise(cohorts, noise)
  if rounds is None:
    rounds = calibration.find_max_rounds(
      mechanism, accountant, target_epsilon=target, target_delta=delta
    )
  epsilon = accountants.compute_epsilon(
    mechanism, accountant, num_rounds=rounds, target_delta=delta
  )
  return noise, epsilon, rounds


def _solved_name(question: Question) -> str:
  """The name of the answer: the epsilon that is found is not a target."""
  solved = question.solved_for
  return 'epsilon' if solved == 'target_epsilon' else solved


def _number(value: float) -> str:
  """Returns a number with 5 significant digits."""
  return f'{value:.5g}'


def _format_comparisons(answer: Answer) -> list[str]:
  """Returns the lines of the table, the plan's own row first."""
  plan = answer.plan
  own = Comparison(
    sampling=plan.sampling,
    accountant=plan.accountant,
    relation=plan.relation.value,
    noise_multiplier=plan.noise_multiplier,
    epsilon=plan.epsilon,
    num_rounds=plan.num_rounds,
    actual_epsilon=plan.actual_epsilon,
    guarantee=plan.sampling != 'paper',
  )
  cells = [
    ('sampling', 'accountant', 'relation', 'noise mult.', 'epsilon', 'rounds')
  ]
  notes = ['']
  for each in (own, *answer.comparisons):
    if each.error is None:
      figures = (
        f'{each.noise_multiplier:g}',
        _number(each.epsilon),
        str(each.num_rounds),
      )
    else:
      figures = ('–', '–', '–')
    cells.append((each.sampling, each.accountant, each.relation, *figures))
    notes.append(_note_on(each))
  notes[1] = ', '.join(note for note in ('this plan', notes[1]) if note)
  widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
  return [
    '  '
    + '  '.join(
      cell.ljust(width) for cell, width in zip(row, widths, strict=True)
    )
    + ('  ' + note if note else '')
    for row, note in zip(cells, notes, strict=True)
  ]


def _note_on(comparison: Comparison) -> str:
  """Returns what a reader of a row must know."""
  if comparison.error is not None:
    return 'no answer: ' + comparison.error.replace('`', '')
  if comparison.sampling == 'paper':
    return f'really gives {_number(comparison.actual_epsilon)} (replace_one)'
  if not comparison.guarantee:
    return 'not a guarantee'
  return ''
