"""Runs the notebooks, and holds them to be kept without outputs."""

import json
import pathlib

import pytest

_ROOT = pathlib.Path(__file__).parent.parent
_NOTEBOOKS = sorted((_ROOT / 'notebooks').glob('*.ipynb'))


def _code_cells(notebook):
  return [c for c in notebook['cells'] if c['cell_type'] == 'code']


def _by_name(notebooks):
  return pytest.mark.parametrize(
    'path', notebooks, ids=[path.stem for path in notebooks]
  )


@_by_name(_NOTEBOOKS)
def test_a_notebook_is_kept_without_outputs(path):
  for cell in _code_cells(json.loads(path.read_text())):
    assert (cell['outputs'], cell['execution_count']) == ([], None)


@pytest.mark.slow
@_by_name(_NOTEBOOKS)
def test_a_notebook_runs_and_shows_something(path, tmp_path, monkeypatch):
  nbclient = pytest.importorskip('nbclient')
  nbformat = pytest.importorskip('nbformat')
  pytest.importorskip('tensorflow_federated')
  monkeypatch.setenv('PYTHONPATH', str(_ROOT))
  monkeypatch.setenv('IPYTHONDIR', str(tmp_path))
  notebook = nbformat.read(path, as_version=4)
  # What a cell raises is raised here.
  nbclient.NotebookClient(
    notebook,
    timeout=600,
    kernel_name='python3',
    resources={'metadata': {'path': str(path.parent)}},
  ).execute()
  outputs = [o for cell in _code_cells(notebook) for o in cell['outputs']]
  errors = [o['text'] for o in outputs if o.get('name') == 'stderr']
  assert errors == []
  assert any('image/png' in o.get('data', {}) for o in outputs)


def test_the_notebook_on_budgets_needs_no_tensorflow():
  notebook = json.loads((_ROOT / 'notebooks/privacy_budget.ipynb').read_text())
  code = ''.join(line for c in _code_cells(notebook) for line in c['source'])
  assert 'import tensorflow' not in code
