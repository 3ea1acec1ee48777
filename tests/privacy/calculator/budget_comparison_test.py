"""Tests of tff_clipping.privacy.calculator.budget_comparison."""

import json

import pytest

from tests.privacy.budget_commands import PAPER, ask, run_process

_QUESTION = (*PAPER, '--num_rounds=100', '--target_epsilon=1.5')


def _rows(answer):
  """Returns what an answer is compared with, by sampling and accountant."""
  return {
    (row['sampling'], row['accountant']): row for row in answer['comparisons']
  }


@pytest.mark.slow
def test_command_of_the_readme():
  result = run_process(
    *_QUESTION, '--sampling=poisson', '--accountant=rdp', '--format=json'
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
  multipliers = {
    key: row['noise_multiplier'] for key, row in _rows(answer).items()
  }
  assert multipliers == pytest.approx(
    {
      ('poisson', 'pld'): 1.4206,
      # Of five epochs of 24 rounds: 4e6 draws of them have 1e-5 there, +- 7e-7.
      ('random_allocation', 'pld'): 1.3863,
      ('min_separation', 'gaussian'): 8.7717,
      ('fixed_size', 'pld'): 3.0191,
    },
    rel=1e-4,
  )
  assert [*multipliers] == [*_rows(answer)]


@pytest.mark.slow
@pytest.mark.parametrize(
  ('sampling', 'accountant', 'multiplier'),
  [
    ('fixed_size', 'rdp', 5.1014),
    ('paper', 'rdp', 1.52999),
    ('paper', 'pld', 1.4206),
  ],
)
def test_any_other_sampling_is_a_question_of_its_own(
  capsys, sampling, accountant, multiplier
):
  answer = ask(
    capsys, *_QUESTION, f'--sampling={sampling}', f'--accountant={accountant}'
  )
  assert answer['noise_multiplier'] == pytest.approx(multiplier, rel=1e-4)
  # No guarantee is among what a question is compared with.
  assert ('paper', 'rdp') not in _rows(answer)
  if (sampling, accountant) == ('paper', 'rdp'):
    assert answer['actual_epsilon'] == pytest.approx(5.8785, rel=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize(
  ('epsilon', 'errors'),
  # As in docs/correlated_noise.md.
  [
    (1.5, {'gaussian': 41.0, 'blt': 14.7, 'banded': 13.9}),
    (5, {'gaussian': 14.2, 'blt': 5.1, 'banded': 4.8}),
  ],
)
def test_the_best_mechanism_stands_beside_the_samplers(capsys, epsilon, errors):
  asked = (*PAPER, '--num_rounds=100', f'--target_epsilon={epsilon}')
  for mechanism, error in errors.items():
    answer = ask(
      capsys, *asked, f'--mechanism={mechanism}', '--min_separation=24'
    )
    assert answer['running_sum_error'] == pytest.approx(error, abs=0.05)
  row = _rows(ask(capsys, *asked))['min_separation', 'gaussian']
  assert row['mechanism'] == 'banded'
  assert row['running_sum_error'] == pytest.approx(errors['banded'], abs=0.05)
  assert row['relation'] == 'zero_out'
  assert row['min_separation'] == 24  # All 1920 clients take turns.


@pytest.mark.slow
def test_independent_noise_has_the_error_of_a_random_walk(capsys):
  answer = ask(capsys, *PAPER, '--num_rounds=3', '--noise_multiplier=2')
  # The sums of 1, 2 and 3 rounds have so many variances.
  expected = 2 * ((1 + 2 + 3) / 3) ** 0.5
  assert answer['running_sum_error'] == pytest.approx(expected)
  for row in answer['comparisons']:
    if row['mechanism'] == 'gaussian':
      assert row['running_sum_error'] == pytest.approx(expected)


@pytest.mark.slow
def test_groups_have_an_error_that_they_are_asked_for(capsys):
  question = (*PAPER, '--num_rounds=100', '--target_epsilon=5')
  answer = ask(
    capsys,
    *(*question, '--sampling=grouped_poisson', '--min_separation=6'),
    '--mechanism=banded',
  )
  assert answer['accountant'] == 'pld'
  assert answer['running_sum_error'] == pytest.approx(4.4, abs=0.05)


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
  assert ('poisson', 'pld') in _rows(answer)
  assert ('random_allocation', 'pld') not in _rows(answer)


@pytest.mark.slow
def test_strategies_for_very_many_rounds_are_left_out(capsys):
  answer = ask(capsys, *PAPER, '--num_rounds=10001', '--noise_multiplier=30')
  assert ('fixed_size', 'pld') in _rows(answer)
  assert not any(row['relation'] == 'zero_out' for row in answer['comparisons'])
