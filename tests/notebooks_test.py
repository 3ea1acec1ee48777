"""Holds the notebooks to be kept without outputs; `make docs` runs them."""

import json
import pathlib

import pytest

_ROOT = pathlib.Path(__file__).parent.parent
_NOTEBOOKS = sorted((_ROOT / 'notebooks').glob('*.ipynb'))


def _code_cells(notebook):
  return [c for c in notebook['cells'] if c['cell_type'] == 'code']


@pytest.mark.parametrize('path', _NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_kept_without_outputs(path):
  for cell in _code_cells(json.loads(path.read_text())):
    assert (cell['outputs'], cell['execution_count']) == ([], None)


def test_the_notebook_on_budgets_needs_no_tensorflow():
  notebook = json.loads((_ROOT / 'notebooks/privacy_budget.ipynb').read_text())
  code = ''.join(line for c in _code_cells(notebook) for line in c['source'])
  assert 'import tensorflow' not in code
