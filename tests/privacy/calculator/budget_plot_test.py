"""Tests of tff_clipping.privacy.calculator.budget_plot."""

import pytest

from tests.privacy.budget_commands import ONE_ROUND, run_here


@pytest.mark.slow
def test_plot_is_drawn(capsys, tmp_path):
  pytest.importorskip('matplotlib')
  path = tmp_path / 'budget.svg'
  code, _, err = run_here(
    capsys, *ONE_ROUND, '--accountant=pld', f'--plot={path}'
  )
  assert (code, err) == (0, '')
  drawing = path.read_text()
  for text in ('clients per round', 'rounds', 'Poisson, add or remove one'):
    assert text in drawing


@pytest.mark.slow
def test_random_allocation_is_drawn_beside_poisson(capsys, tmp_path):
  pytest.importorskip('matplotlib')
  path = tmp_path / 'budget.svg'
  code, _, err = run_here(
    capsys, *ONE_ROUND, '--sampling=random_allocation', f'--plot={path}'
  )
  assert (code, err) == (0, '')
  drawing = path.read_text()
  for text in ('Poisson, add or remove one', 'random allocation, add or remo'):
    assert text in drawing


def test_correlated_noise_is_drawn_by_separation(capsys, tmp_path):
  pytest.importorskip('matplotlib')
  path = tmp_path / 'budget.svg'
  code, out, err = run_here(
    capsys,
    *(*ONE_ROUND, '--mechanism=blt', '--min_separation=24'),
    f'--plot={path}',
  )
  assert (code, err) == (0, '')
  assert f'The figure is in {path}.' in out
  drawing = path.read_text()
  for text in (
    *('rounds from one participation to the next', 'banded', 'the plan'),
    *('error of the running sums over c', 'min_separation, zero out'),
  ):
    assert text in drawing
