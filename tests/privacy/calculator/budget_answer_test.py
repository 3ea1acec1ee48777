"""The answers of the budget calculator are those of its plan.

The figures are the plan's, the words promise no more, and each alternative is a
guarantee that stands beside those of its own relation.
"""

import contextlib
import dataclasses
import json
import math
import random

import pytest

from tests.privacy.budget_commands import ONE_ROUND, PAPER, ask, run_here
from tests.privacy.paper import build_plan
from tff_clipping import privacy
from tff_clipping.privacy.accounting import accountants, rounding
from tff_clipping.privacy.calculator import budget_answer, budget_question

_QUESTION = (*PAPER, '--num_rounds=100', '--target_epsilon=1.5')


def _rows(answer):
  """Returns the alternatives, by sampling and accountant."""
  return {
    (row['sampling'], row['accountant']): row for row in answer['alternatives']
  }


def test_the_figures_are_those_of_the_plan(capsys):
  answer = ask(capsys, *ONE_ROUND)
  plan = privacy.plan_from_json(answer['plan'])
  assert plan == build_plan(num_rounds=1, noise_multiplier=3.0)
  assert answer['solved_for'] == 'epsilon'
  assert answer['epsilon'] == plan.epsilon
  assert answer['target_epsilon'] is None
  assert answer['description'] == privacy.describe_plan(plan)
  assert answer['alternatives'] == []
  assert answer['warnings'] == []


def test_the_noise_that_is_printed_is_within_the_target(capsys):
  # z = 1191 * 0.0112633333 = 13.41463, of which 13.4146 is not enough.
  asked = '--noise_to_clients_ratio=0.011263333333333334', '--target_epsilon=2'
  rest = '--num_clients=1920', '--num_rounds=100', '--target_delta=1e-5'
  _, out, _ = run_here(capsys, *asked, *rest)
  assert '  clients per round 1191  <- solved for\n' in out
  assert '  noise multiplier  13.4147  (0.0112633 for each client)\n' in out


@pytest.mark.parametrize(
  ('asked', 'solved_for', 'known', 'unknown'),
  [
    (
      (*PAPER, '--noise_multiplier=1.8', '--target_epsilon=1.5'),
      'num_rounds',
      'fixed_size',
      'grouped_poisson',
    ),
    # Not even cohorts of all clients are enough for a fixed size.
    (
      (
        *('--num_clients=3383', '--target_delta=1e-5', '--num_rounds=100'),
        *('--target_epsilon=2', '--noise_to_clients_ratio=0.01'),
      ),
      'clients_per_round',
      'poisson',
      'fixed_size',
    ),
    (
      (
        *('--clients_per_round=200', '--target_delta=1e-6', '--num_rounds=2'),
        *('--target_epsilon=4', '--noise_multiplier=1.1'),
      ),
      'num_clients',
      'poisson',
      'random_allocation',
    ),
  ],
)
def test_each_alternative_is_solved_for_what_is_not_given(
  capsys, asked, solved_for, known, unknown
):
  answer = ask(capsys, *asked, '--alternatives')
  plan = privacy.plan_from_json(answer['plan'])
  assert answer['solved_for'] == solved_for
  assert answer[solved_for] == getattr(plan, solved_for)
  rows = _rows(answer)
  assert rows[known, 'pld'][solved_for] != answer[solved_for]
  assert (unknown, 'pld') not in rows


def test_all_clients_in_each_round_are_a_question_without_a_cohort(capsys):
  answer = ask(
    capsys,
    *('--num_clients=100', '--target_delta=1e-5', '--num_rounds=1'),
    *('--noise_multiplier=8', '--sampling=none', '--accountant=gaussian'),
  )
  assert answer['clients_per_round'] == 100
  assert answer['sampling_prob'] == 1
  exact = privacy.gaussian_epsilon(8.0, 1e-5)
  assert answer['epsilon'] == pytest.approx(exact, rel=1e-12)


@pytest.mark.parametrize(
  ('arguments', 'expected'),
  [
    ([], '--sampling=poisson --accountant=rdp'),
    (
      ['--mechanism=blt', '--min_separation=1'],
      '--sampling=min_separation --mechanism=blt',
    ),
  ],
)
def test_what_the_noise_is_for_stands_beside_it(capsys, arguments, expected):
  _, out, _ = run_here(capsys, *ONE_ROUND, *arguments)
  assert f'  only for          {expected}\n' in out


def test_attacks_are_bounded(capsys):
  asked = (*ONE_ROUND, '--min_separation=24')
  attacks = ask(capsys, *asked)['attacks']
  assert attacks['mu'] == pytest.approx(1 / 3)
  assert attacks['false_positive_rate'] == 0.01
  _, out, _ = run_here(capsys, *asked)
  rate = rounding.format_up(100 * attacks['true_positive_rate'], digits=3)
  assert f'names at most {rate} % of those that did' in out
  assert '  mu  ' not in out
  _, out, _ = run_here(capsys, *asked, '--false_positive_rate=0.01')
  assert '  mu                0.33334 (no worse than one Gaussian mech' in out
  rate = rounding.format_up(attacks['true_positive_rate'], digits=5)
  assert f'  true positives    {rate} at a false-positive rate of 0.01' in out


def test_the_tightest_proved_accountant_stands_beside_the_answer(capsys):
  by_pld = ask(capsys, *ONE_ROUND, '--accountant=pld')['epsilon']
  answer = ask(capsys, *ONE_ROUND)
  assert answer['tightest_epsilon'] == by_pld
  line = f'cost epsilon {rounding.format_up(by_pld)} by privacy loss distr'
  assert line in answer['tightest']
  answer = ask(capsys, *ONE_ROUND, '--sampling=fixed_size')
  assert 'proved too (but for noise in integers): --acc' in answer['tightest']
  for other in ('accountant=pld', 'min_separation=24'):
    assert ask(capsys, *ONE_ROUND, f'--{other}')['tightest'] == ''


def test_a_warning_stands_in_the_answer_that_is_kept(capsys):
  arguments = (*ONE_ROUND, '--target_delta=0.01')
  code, out, err = run_here(capsys, *arguments)
  assert code == 0
  assert 'Warning: `target_delta` should be below 1/`num_clients`' in out
  assert err.startswith('tff-clipping-budget: warning: --target_delta should')
  assert len(err.splitlines()) == 1
  _, out, _ = run_here(capsys, *arguments, '--format=json')
  assert len(json.loads(out)['warnings']) == 1


@pytest.mark.slow
def test_alternatives_are_the_best_guarantee_of_each_kind(capsys):
  answer = ask(capsys, *_QUESTION, '--alternatives')
  assert answer['noise_multiplier'] == pytest.approx(1.52998, rel=1e-5)
  assert 1.4999 < answer['epsilon'] <= 1.5
  rows = _rows(answer).items()
  multipliers = {kind: row['noise_multiplier'] for kind, row in rows}
  expected = {
    ('poisson', 'pld'): 1.4206,
    # Of five epochs of 24 rounds: 4e6 draws of them have 1e-5 there, +- 7e-7.
    ('random_allocation', 'pld'): 1.3863,
    ('min_separation', 'gaussian'): 8.7717,
    ('fixed_size', 'pld'): 3.0191,
  }
  assert multipliers == pytest.approx(expected, rel=1e-4)


def test_alternatives_under_another_relation_stand_apart(capsys):
  _, out, _ = run_here(capsys, *ONE_ROUND, '--alternatives')
  _, same, other, _ = out.rsplit('\n\n', 3)
  # What is solved for is epsilon, and all have the noise of the question.
  assert same.startswith('The same noise multiplier with other')
  assert 'this plan' in same
  assert 'add_or_remove_one' in same
  assert 'replace_one' not in same
  assert other.startswith('With another promise, for zero_out and replace_one')
  assert 'add_or_remove_one' not in other


def test_alternatives_that_take_long_are_left_out(capsys):
  rows = _rows(
    ask(
      capsys,
      *('--num_clients=1e6', '--clients_per_round=10', '--num_rounds=1e5'),
      *('--noise_multiplier=3', '--target_delta=1e-7', '--alternatives'),
    )
  )
  assert ('poisson', 'pld') in rows
  assert ('random_allocation', 'pld') not in rows
  assert not any(row['relation'] == 'zero_out' for row in rows.values())


def test_the_error_is_that_of_the_mean(capsys):
  # The sums of 1, 2 and 3 rounds have so many variances.
  answer = ask(capsys, *PAPER, '--num_rounds=3', '--noise_multiplier=2')
  expected = 2 * ((1 + 2 + 3) / 3) ** 0.5 / 80
  assert answer['running_mean_error'] == pytest.approx(expected)


def draw_question(seed):
  """Returns a question from the whole range that the calculator takes."""
  generator = random.Random(seed)

  def draw(low, high):
    return math.exp(generator.uniform(math.log(low), math.log(high)))

  num_clients = int(draw(1, 1e9))
  sampling = generator.choice(['poisson', 'fixed_size', 'none'])
  cohort = num_clients if sampling == 'none' else int(draw(1, num_clients))
  values = {
    'target_epsilon': draw(1e-3, 1e3),
    'noise_multiplier': draw(0.05, 1e3),
    'num_rounds': int(draw(1, 1e7)),
  }
  values[generator.choice([*values])] = None
  return budget_question.Question(
    num_clients=num_clients,
    clients_per_round=max(cohort, 1),
    target_delta=draw(1e-15, 0.1),
    sampling=sampling,
    accountant=generator.choice(['rdp', 'pld']),
    **values,
  )


# All unknowns, samplings and accountants.
@pytest.mark.slow
@pytest.mark.parametrize('seed', [1, 4, 5, 6, 7, 8, 10, 11, 12, 15, 16, 17])
def test_any_question_has_an_answer_or_one_line(seed):
  question = draw_question(seed)
  try:
    found = budget_question.solve(question)
  except ValueError as error:
    if '\n' in str(error):
      raise
    return
  answer = budget_answer.compute_answer(question, found)
  json.dumps(answer, allow_nan=False)
  plan = privacy.plan_from_json(answer['plan'])
  if question.target_epsilon is not None:
    assert plan.epsilon <= question.target_epsilon
  # More rounds and less noise cost more, or have no finite epsilon.
  with contextlib.suppress(accountants.NoEpsilonError):
    worse = dataclasses.replace(
      plan,
      target_epsilon=None,
      num_rounds=min(2 * plan.num_rounds, 10**7),
      noise_multiplier=max(0.9 * plan.noise_multiplier, 0.01),
    )
    assert worse.epsilon >= plan.epsilon * (1 - 1e-3)
