"""Tests of tff_clipping.privacy.calculator.budget_report."""

import dataclasses
import json
import math
import random

import pytest

from tests.privacy.budget_commands import ONE_ROUND, PAPER, ask, run_here
from tff_clipping import privacy
from tff_clipping.privacy.accounting import rounding
from tff_clipping.privacy.calculator import (
  budget_question,
  budget_report,
  budget_text,
)


def test_solves_for_epsilon(capsys):
  code, out, err = run_here(capsys, *ONE_ROUND, '--format=json')
  answer = json.loads(out)
  plan = privacy.PrivacyPlan(
    num_clients=1920,
    clients_per_round=80,
    target_delta=1e-5,
    num_rounds=1,
    noise_multiplier=3.0,
  )
  assert (code, err) == (0, '')
  assert answer['solved_for'] == 'epsilon'
  assert answer['epsilon'] == plan.epsilon
  assert answer['target_epsilon'] is None
  assert answer['description'] == privacy.describe_plan(plan)


def test_solves_for_rounds(capsys):
  code, out, _ = run_here(
    capsys,
    *PAPER,
    '--noise_multiplier=1.8',
    '--target_epsilon=1.5',
    '--format=json',
  )
  answer = json.loads(out)
  assert code == 0
  assert answer['solved_for'] == 'num_rounds'
  assert answer['num_rounds'] == privacy.compute_max_rounds(
    num_clients=1920,
    clients_per_round=80,
    target_delta=1e-5,
    noise_multiplier=1.8,
    target_epsilon=1.5,
  )
  # So little noise allows fixed cohorts some rounds by 'pld', none by 'rdp'.
  rows = {
    (each['sampling'], each['accountant']): each
    for each in answer['comparisons']
  }
  assert ('fixed_size', 'rdp') not in rows
  assert rows['fixed_size', 'pld']['num_rounds'] > 1


def test_paper_sampling_shows_both_epsilons(capsys):
  code, out, _ = run_here(capsys, *ONE_ROUND, '--sampling=paper')
  plan = privacy.PrivacyPlan(
    num_clients=1920,
    clients_per_round=80,
    target_delta=1e-5,
    num_rounds=1,
    noise_multiplier=3.0,
    sampling='paper',
  )
  assert code == 0
  assert 'as the paper charges; its cohorts really give' in out
  assert rounding.format_up(plan.epsilon, digits=5) in out
  assert rounding.format_up(plan.actual_epsilon, digits=5) in out


def test_sampling_none_takes_all_clients(capsys):
  code, out, _ = run_here(
    capsys,
    '--num_clients=100',
    '--target_delta=1e-5',
    '--num_rounds=1',
    '--noise_multiplier=8',
    '--sampling=none',
    '--format=json',
  )
  answer = json.loads(out)
  assert code == 0
  assert answer['clients_per_round'] == 100
  assert answer['sampling_prob'] == 1


def test_a_warning_stands_in_the_answer_that_is_kept(capsys):
  _, out, _ = run_here(
    capsys,
    *('--num_clients=1000', '--clients_per_round=100', '--num_rounds=1'),
    *('--target_delta=0.01', '--noise_multiplier=3'),
  )
  assert 'Warning: `target_delta` should be below 1/`num_clients`' in out


def draw_question(seed):
  """Returns a question from the whole range that the calculator takes."""
  generator = random.Random(seed)

  def draw(low, high):
    return math.exp(generator.uniform(math.log(low), math.log(high)))

  num_clients = int(draw(1, 1e9))
  sampling = generator.choice(['poisson', 'fixed_size', 'paper', 'none'])
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


@pytest.mark.slow
@pytest.mark.parametrize('seed', range(40))
def test_any_question_has_an_answer_or_one_line(seed):
  question = draw_question(seed)
  try:
    answer = budget_report.compute_answer(question)
  except ValueError as error:
    lines = str(error).splitlines()
  else:
    lines = ['']
  assert len(lines) == 1
  if lines != ['']:
    return
  budget_text.format_table(answer)
  budget_report.format_json(answer)
  plan = answer.plan
  if question.target_epsilon is not None:
    assert plan.epsilon <= question.target_epsilon
  # More rounds and less noise cost more.
  worse = dataclasses.replace(
    plan,
    target_epsilon=None,
    num_rounds=min(2 * plan.num_rounds, 10**7),
    noise_multiplier=max(0.9 * plan.noise_multiplier, 0.01),
  )
  assert worse.epsilon >= plan.epsilon * (1 - 1e-3)


def test_what_has_no_answer_is_no_alternative(capsys):
  arguments = (*PAPER, '--num_rounds=100', '--noise_multiplier=0.02')
  found = ask(capsys, *arguments)['comparisons']
  # No finite epsilon is known by 'pld' for so little noise.
  assert not any(row['accountant'] == 'pld' for row in found)
  assert all(row['epsilon'] is not None for row in found)


def test_solves_for_the_clients_of_a_round(capsys):
  # The tutorial "Differential Privacy in TFF": 120 clients and noise 1.2.
  answer = ask(
    capsys,
    *('--num_clients=3383', '--target_delta=1e-5', '--num_rounds=100'),
    *('--target_epsilon=2', '--noise_to_clients_ratio=0.01'),
  )
  assert answer['solved_for'] == 'clients_per_round'
  assert answer['clients_per_round'] == 120
  assert answer['noise_multiplier'] == pytest.approx(1.2)
  rows = {(x['sampling'], x['accountant']): x for x in answer['comparisons']}
  # The tighter accountant needs fewer; each row solves for its own.
  assert 100 < rows['poisson', 'pld']['clients_per_round'] < 120
  # Not even cohorts of all 3383 are enough there.
  assert ('fixed_size', 'pld') not in rows


def test_the_plan_in_the_json_can_be_read_back(capsys):
  answer = ask(capsys, *ONE_ROUND, '--mechanism=blt', '--min_separation=24')
  plan = privacy.plan_from_json(answer['plan'])
  assert plan.epsilon == answer['epsilon']
  assert privacy.describe_plan(plan) == answer['description']
  assert plan.running_sum_error == answer['running_sum_error']
  plan = privacy.plan_from_json(ask(capsys, *ONE_ROUND)['plan'])
  assert plan.noise_multiplier == 3


def test_attacks_are_bounded_where_asked(capsys):
  assert ask(capsys, *ONE_ROUND)['attacks'] is None
  asked = (*ONE_ROUND, '--min_separation=24', '--false_positive_rate=0.01')
  attacks = ask(capsys, *asked)['attacks']
  assert attacks['mu'] == pytest.approx(1 / 3)
  code, out, _ = run_here(capsys, *asked)
  assert code == 0
  assert '  mu                0.33334 (no worse than one Gaussian mech' in out
  rate = rounding.format_up(attacks['true_positive_rate'], digits=5)
  assert f'  true positives    {rate} at a false-positive rate of 0.01' in out


@pytest.mark.parametrize('output', [(), ('--format=json',)])
def test_an_epsilon_of_0_is_an_answer(capsys, output):
  code, out, err = run_here(
    capsys,
    '--num_clients=1000000',
    '--clients_per_round=1',
    '--num_rounds=1',
    '--noise_multiplier=30',
    '--target_delta=1e-7',
    '--accountant=pld',
    *output,
  )
  assert (code, err) == (0, '')
  if output:
    answer = json.loads(out)
    assert answer['epsilon'] == 0


def read_rows(out):
  """Returns the first words of the rows of a table."""
  lines = out.splitlines()
  start = next(i for i, x in enumerate(lines) if x.split()[:1] == ['sampling'])
  rows = []
  for line in lines[start + 1 :]:
    if not line.startswith('  '):
      return rows
    rows.append(line.replace(', b = 24', '').split()[:3])


def test_the_first_screen_has_four_alternatives_that_are_guarantees(capsys):
  code, out, err = run_here(capsys, *ONE_ROUND)
  assert (code, err) == (0, '')
  assert read_rows(out) == [
    ['poisson', 'gaussian', 'rdp'],
    ['poisson', 'gaussian', 'pld'],
    ['random_allocation', 'gaussian', 'pld'],
    ['min_separation', 'banded', 'gaussian'],
    ['fixed_size', 'gaussian', 'pld'],
  ]
  assert out.startswith('The answer:\n  noise multiplier')


def test_the_tightest_proved_accountant_stands_beside_the_answer(capsys):
  by_pld = ask(capsys, *ONE_ROUND, '--accountant=pld')['epsilon']
  assert ask(capsys, *ONE_ROUND)['tightest_epsilon'] == by_pld
  line = f'cost epsilon {rounding.format_up(by_pld)} by privacy loss distr'
  _, out, _ = run_here(capsys, *ONE_ROUND)
  assert line in out
  _, out, _ = run_here(capsys, *ONE_ROUND, '--sampling=fixed_size')
  assert 'which is proved too (but for noise in integers): --acc' in out
  for arguments in (
    ['--accountant=pld'],
    ['--sampling=paper'],
    ['--min_separation=24'],
  ):
    _, out, _ = run_here(capsys, *ONE_ROUND, *arguments)
    assert 'proved too' not in out


def test_the_promise_is_told_in_words_with_the_true_positive_rate(capsys):
  asked = (*ONE_ROUND, '--false_positive_rate=0.01')
  attacks = ask(capsys, *asked)['attacks']
  rate = rounding.format_up(100 * attacks['true_positive_rate'], digits=3)
  _, out, _ = run_here(capsys, *ONE_ROUND)
  assert f'names at most {rate} % of those that did' in out
  assert 'In words: whether a client takes part' in out


@pytest.mark.slow
def test_solves_for_the_clients_in_all(capsys):
  answer = ask(
    capsys,
    *('--clients_per_round=200', '--target_delta=1e-6', '--num_rounds=2'),
    *('--target_epsilon=4', '--noise_multiplier=1.1'),
  )
  assert answer['solved_for'] == 'num_clients'
  plan = privacy.PrivacyPlan.from_smallest_population(
    clients_per_round=200,
    target_delta=1e-6,
    num_rounds=2,
    target_epsilon=4,
    noise_multiplier=1.1,
  )
  assert answer['num_clients'] == plan.num_clients
  rows = {(x['sampling'], x['accountant']): x for x in answer['comparisons']}
  assert rows['poisson', 'pld']['num_clients'] < plan.num_clients
  assert ('random_allocation', 'pld') not in rows
