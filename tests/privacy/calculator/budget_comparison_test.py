"""Tests of tff_clipping.privacy.calculator.budget_comparison."""

import json

import pytest

from tests.privacy.budget_commands import PAPER, ask, run_process


@pytest.mark.slow
def test_command_of_the_readme():
  result = run_process(
    *PAPER,
    '--num_rounds=100',
    '--target_epsilon=1.5',
    '--sampling=poisson',
    '--accountant=rdp',
    '--format=json',
  )
  assert result.returncode == 0
  assert result.stderr == ''
  answer = json.loads(result.stdout)
  assert answer['noise_multiplier'] == pytest.approx(1.52998, rel=1e-5)
  assert 1.4999 < answer['epsilon'] <= 1.5
  assert answer['num_rounds'] == 100
  assert answer['solved_for'] == 'noise_multiplier'
  assert answer['relation'] == 'add_or_remove_one'
  assert answer['warnings'] == []
  figures = {
    (each['sampling'], each['accountant']): each
    for each in answer['comparisons']
    if each['sampling'] != 'min_separation'
  }
  assert list(figures) == [
    ('poisson', 'pld'),
    ('random_allocation', 'pld'),
    ('fixed_size', 'rdp'),
    ('fixed_size', 'pld'),
    ('paper', 'rdp'),
    ('paper', 'pld'),
  ]
  multipliers = {key: row['noise_multiplier'] for key, row in figures.items()}
  assert multipliers == pytest.approx(
    {
      ('poisson', 'pld'): 1.4206,
      # Of five epochs of 24 rounds: 4e6 draws of them have 1e-5 there, +- 7e-7.
      ('random_allocation', 'pld'): 1.3863,
      ('fixed_size', 'rdp'): 5.1014,
      ('fixed_size', 'pld'): 3.0191,
      ('paper', 'rdp'): 1.52999,
      ('paper', 'pld'): 1.4206,
    },
    rel=1e-4,
  )
  assert [key for key, row in figures.items() if not row['guarantee']] == [
    ('paper', 'rdp'),
    ('paper', 'pld'),
  ]
  assert figures['paper', 'rdp']['actual_epsilon'] == pytest.approx(
    5.8785, rel=1e-3
  )


@pytest.mark.slow
@pytest.mark.parametrize(
  ('epsilon', 'errors'),
  # As in docs/correlated_noise.md.
  [
    (1.5, {'gaussian': 41.0, 'tree': 22.5, 'blt': 14.7, 'banded': 13.9}),
    (5, {'gaussian': 14.2, 'tree': 7.8, 'blt': 5.1, 'banded': 4.8}),
  ],
)
def test_mechanisms_stand_beside_the_samplers(capsys, epsilon, errors):
  answer = ask(
    capsys, *PAPER, '--num_rounds=100', f'--target_epsilon={epsilon}'
  )
  rows = [
    row for row in answer['comparisons'] if row['sampling'] == 'min_separation'
  ]
  assert {row['mechanism']: row['running_sum_error'] for row in rows} == (
    pytest.approx(errors, abs=0.05)
  )
  for row in rows:
    assert row['relation'] == 'zero_out'
    assert row['guarantee']
    assert row['min_separation'] == 24  # All 1920 clients take turns.
  # Groups are compared where a separation is given.
  assert 'grouped_poisson' not in str(answer['comparisons'])


@pytest.mark.slow
def test_independent_noise_has_the_error_of_a_random_walk(capsys):
  answer = ask(capsys, *PAPER, '--num_rounds=3', '--noise_multiplier=2')
  # The sums of 1, 2 and 3 rounds have so many variances.
  expected = 2 * ((1 + 2 + 3) / 3) ** 0.5
  rows = [row for row in answer['comparisons'] if row['mechanism'] != 'tree']
  assert answer['running_sum_error'] == pytest.approx(expected)
  for row in rows:
    if row['mechanism'] == 'gaussian':
      assert row['running_sum_error'] == pytest.approx(expected)


@pytest.mark.slow
@pytest.mark.parametrize('sampling', ['poisson', 'min_separation'])
def test_groups_are_compared_where_a_separation_is_given(capsys, sampling):
  question = (*PAPER, '--num_rounds=100', '--target_epsilon=5')
  answer = ask(
    capsys, *question, f'--sampling={sampling}', '--min_separation=6'
  )
  (row,) = [
    row for row in answer['comparisons'] if row['sampling'] == 'grouped_poisson'
  ]
  assert (row['mechanism'], row['accountant']) == ('banded', 'pld')
  assert row['running_sum_error'] == pytest.approx(4.4, abs=0.05)


@pytest.mark.slow
def test_every_strategy_is_asked_for_its_own_number_of_rounds(capsys):
  answer = ask(
    capsys,
    *(*PAPER, '--noise_multiplier=3', '--target_epsilon=5'),
    *('--mechanism=banded', '--min_separation=6'),
  )
  for row in answer['comparisons']:
    assert row['epsilon'] <= 5
    assert row['num_rounds'] >= 1
  assert not any(
    (row['sampling'], row['mechanism']) == ('min_separation', 'banded')
    for row in answer['comparisons']
  )


def test_epochs_of_very_many_rounds_are_left_out(capsys):
  answer = ask(
    capsys,
    *('--num_clients=1e6', '--clients_per_round=10', '--num_rounds=1'),
    *('--noise_multiplier=3', '--target_delta=1e-7'),
  )
  (row,) = [
    row
    for row in answer['comparisons']
    if row['sampling'] == 'random_allocation'
  ]
  assert row['error'].startswith('epochs of more than 10000 rounds')
  assert row['epsilon'] is None


@pytest.mark.slow
def test_strategies_for_very_many_rounds_are_left_out(capsys):
  answer = ask(capsys, *PAPER, '--num_rounds=10001', '--noise_multiplier=30')
  correlated = [
    row for row in answer['comparisons'] if row['relation'] == 'zero_out'
  ]
  assert correlated
  for row in correlated:
    assert row['error'].startswith('more than 10000 rounds')
