"""Tests of tff_clipping.privacy.calculator.schedule."""

import itertools

import pytest

from tests.privacy.budget_commands import PAPER, ask, run_here
from tff_clipping import privacy
from tff_clipping.privacy.accounting import rounding
from tff_clipping.privacy.calculator.schedule import Schedule


@pytest.mark.parametrize(
  ('rounds_per_day', 'max_per_day'),
  itertools.product([1, 5, 24, 25], [1, 2, 5, 24, 30]),
)
def test_no_day_has_more_participations_than_the_limit(
  rounds_per_day, max_per_day
):
  schedule = Schedule(rounds_per_day=rounds_per_day, max_per_day=max_per_day)
  separation = schedule.find_separation(None)
  # A device that comes as soon as it may, in any 24 hours of such rounds.
  rounds = range(0, 200, separation)
  for start in range(100):
    day = range(start, start + rounds_per_day)
    assert sum(each in day for each in rounds) <= max_per_day


@pytest.mark.parametrize(
  ('num_rounds', 'most'), itertools.product([1, 7, 100], [1, 3, 60, 200])
)
def test_no_device_comes_more_often_than_the_limit(num_rounds, most):
  separation = Schedule(max_participations=most).find_separation(num_rounds)
  assert len(range(0, num_rounds, separation)) <= most


def test_a_device_once_a_day_costs_as_one_gaussian_of_its_days(capsys):
  answer = ask(
    capsys,
    *('--num_clients=1e5', '--clients_per_round=500', '--target_delta=1e-6'),
    *('--rounds_per_day=24', '--num_days=30', '--max_per_day=1'),
    '--noise_multiplier=10',
  )
  assert (answer['num_rounds'], answer['min_separation']) == (720, 24)
  # 30 participations, each of norm c: one Gaussian of sensitivity sqrt(30) c.
  expected = privacy.gaussian_epsilon(10 / 30**0.5, 1e-6)
  assert answer['epsilon'] == pytest.approx(expected, rel=1e-9)
  assert '720 rounds at 24 a day take 30 days.' in answer['schedule']
  assert 'comes at most 30 times in all' in answer['schedule']


def test_at_most_k_participations_cost_as_one_gaussian_of_k(capsys):
  code, out, err = run_here(
    capsys,
    *(*PAPER, '--num_rounds=100', '--noise_multiplier=10'),
    '--max_participations=5',
  )
  assert (code, err) == (0, '')
  assert 'fewer than 20 rounds ago: then it comes at most 5 times' in out
  epsilon = privacy.gaussian_epsilon(10 / 5**0.5, 1e-5)
  assert f'epsilon           {rounding.format_up(epsilon, digits=5)}  <' in out


@pytest.mark.slow
def test_days_are_told_where_rounds_are_solved_for(capsys):
  answer = ask(
    capsys,
    *(*PAPER, '--noise_multiplier=1.5', '--target_epsilon=1.5'),
    '--rounds_per_day=24',
  )
  days = answer['num_rounds'] / 24
  assert answer['schedule'].endswith(f'a day take {days:.4g} days.')


@pytest.mark.parametrize(
  ('arguments', 'message'),
  [
    (['--num_days=3'], '--rounds_per_day must be given with --num_days'),
    (['--max_per_day=3'], '--rounds_per_day must be given with --max_per_da'),
    (['--rounds_per_day=0'], '--rounds_per_day must be at least 1, found 0.'),
    (
      ['--rounds_per_day=24', '--num_days=3', '--num_rounds=9'],
      '--num_rounds must not be given with --num_days, found 9.',
    ),
    (
      ['--rounds_per_day=24', '--max_per_day=1', '--max_participations=9'],
      '--max_per_day must not be given with --max_participations',
    ),
    (
      ['--target_epsilon=1', '--max_participations=9'],
      '--num_rounds must be given with --max_participations',
    ),
    (
      ['--num_rounds=9', '--max_participations=9', '--min_separation=2'],
      '--min_separation must not be given with --max_per_day or',
    ),
    (
      ['--num_rounds=9', '--max_participations=9', '--sampling=poisson'],
      '--sampling must be min_separation or grouped_poisson where a device',
    ),
  ],
)
def test_what_does_not_go_together_is_one_line(capsys, arguments, message):
  code, out, err = run_here(capsys, *PAPER, '--noise_multiplier=3', *arguments)
  assert (code, out) == (2, '')
  assert message in err
  assert len(err.splitlines()) == 1
