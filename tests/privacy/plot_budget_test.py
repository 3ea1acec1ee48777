"""Runs the example that draws a budget."""

import runpy

import pytest

from tests.privacy.ledgers import ROOT


@pytest.mark.slow
def test_a_budget_is_drawn(tmp_path, capsys):
  pytest.importorskip('matplotlib')
  path = tmp_path / 'budget.svg'
  example = runpy.run_path(str(ROOT / 'examples/plot_budget.py'))
  # A small plan takes seconds.
  example['_PLAN'].update(num_clients=4, clients_per_round=2, num_rounds=10)
  example['main'](path)
  assert capsys.readouterr().out == f'The figure is in {path}.\n'
  # Text is drawn as shapes, and named in comments.
  drawing = path.read_text()
  for text in (
    *('rounds', 'clients per round', 'noise multiplier 4.36569'),
    *('Poisson, add or remove one', 'fixed size, replace one'),
  ):
    assert f'<!-- {text} -->' in drawing
