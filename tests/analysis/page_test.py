"""Tests of docs/reproduction.md, its details, and what fills them."""

import pathlib
import re

import pytest

from analysis import figures, page, tables
from tests.analysis import run_folders

_ROOT = pathlib.Path(__file__).parents[2]
_DOCS = _ROOT / 'docs'


@pytest.mark.slow
def test_the_published_pages_are_those_of_the_published_runs(published):
  found = tables.Evidence(published)
  # The names of the figures are compared, not their pixels.
  assert page.differing(*page.make_pages(found), _DOCS) == []


def test_published_pictures_are_there_and_small():
  text = ''.join((_DOCS / name).read_text('utf-8') for name in page.PAGES)
  pictures = re.findall(r'\]\((reproduction/[^)]*\.png)\)', text)
  assert pictures
  sizes = [(_DOCS / picture).stat().st_size for picture in pictures]
  assert sum(sizes) < 2e6


def test_readme_has_the_figures_of_the_page():
  lines = (_DOCS / page.PAGES[0]).read_text('utf-8').splitlines()
  shown = [
    [cell.strip() for cell in line.strip('|').split('|')]
    for line in (_ROOT / 'README.md').read_text('utf-8').splitlines()
    if line.startswith('|') and ' ± ' in line
  ]
  assert len(shown) == 2
  for setting, *cells in shown:
    data, split = setting.split(', ')
    row = next(x for x in lines if x.startswith(f'| MLP | {data} | {split} |'))
    assert f'| {" | ".join(cells)} |' in row


def test_pages_of_other_runs_have_their_figures(tmp_path, monkeypatch):
  monkeypatch.setattr(figures, 'save', lambda drawing, path, dpi: path.touch())
  for seed, plain in enumerate((0.93, 0.94, 0.95)):
    final = (plain, plain - 0.02, plain - 0.03)
    run_folders.write_three(tmp_path / 'runs', final, seed=seed)
  found = run_folders.read_evidence(tmp_path / 'runs')
  texts, drawings = page.make_pages(found)
  page.write(texts, drawings, tmp_path / 'docs')
  docs = tmp_path / 'docs'
  path = docs / page.PAGES[0]
  text = path.read_text('utf-8')
  row = '| MLP | MNIST | non-IID | 94.00 | 94.00 ± 2.48 | 1.84 | 2.00 ± 0.00 |'
  assert f'{row} 0.29 | 1.00 ± 0.00 | 1.5 | 1.5 | 80, 32, 64, 3 | 3 |' in text
  assert '| AlexNet |' not in text
  assert '± nan' not in text
  # What is not as the runs give it is found.
  assert page.differing(texts, drawings, docs) == []
  path.write_text(text.replace('2.00 ± 0.00', '2.01 ± 0.00'))
  (docs / page.FOLDER / 'accuracy_mnist.png').unlink()
  assert page.differing(texts, drawings, docs) == [
    page.PAGES[0],
    f'{page.FOLDER}/accuracy_mnist.png',
  ]
