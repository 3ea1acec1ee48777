"""Tests of docs/reproduction.md, its details, and what fills them."""

import pathlib
import re

import pytest

from analysis import figures, page, stats, tables
from tests.analysis import run_folders

_ROOT = pathlib.Path(__file__).parents[2]
_DOCS = _ROOT / 'docs'
_MNIST = ('table3_mlp_mnist_noniid', 'paper')


@pytest.fixture(scope='module')
def published():
  return page.make_pages(tables.Evidence(stats.read_results(_ROOT / 'results')))


@pytest.mark.slow
def test_the_published_pages_are_those_of_the_published_runs(published):
  # The names of the figures are compared, not their pixels.
  assert page.differing(*published, _DOCS) == []


@pytest.mark.slow
def test_a_number_that_is_not_that_of_the_runs_is_found(published, tmp_path):
  texts, drawings = published
  folder = tmp_path / page.FOLDER
  folder.mkdir()
  for name, text in texts.items():
    (tmp_path / name).write_text(text)
  for drawing in drawings:
    (folder / drawing.name).touch()
  assert page.differing(texts, drawings, tmp_path) == []
  path = tmp_path / page.PAGES[0]
  path.write_text(path.read_text().replace('2.25 ± 0.40', '2.24 ± 0.40'))
  (folder / drawings[0].name).unlink()
  assert page.differing(texts, drawings, tmp_path) == [
    page.PAGES[0],
    f'{page.FOLDER}/{drawings[0].name}',
  ]


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
    accuracies = {
      'fed_avg': plain,
      'ce_fed_avg': plain - 0.02,
      'dp_fed_avg': plain - 0.03,
    }
    run_folders.write_named_runs(tmp_path / 'runs', _MNIST, accuracies, seed)
  found = run_folders.read_evidence(tmp_path / 'runs')
  texts, drawings = page.make_pages(found)
  page.write(texts, drawings, tmp_path / 'docs')
  text = (tmp_path / 'docs' / page.PAGES[0]).read_text('utf-8')
  row = '| MLP | MNIST | non-IID | 94.00 | 94.00 ± 2.48 | 1.84 | 2.00 ± 0.00 |'
  assert f'{row} 0.29 | 1.00 ± 0.00 | 1.5 | 1.5 | 80, 32, 64, 100 | 3 |' in text
  assert '| AlexNet |' not in text
  assert '± nan' not in text
  assert (tmp_path / 'docs' / page.FOLDER / 'accuracy_mnist.png').exists()


def test_variants_change_no_figure_of_a_row(tmp_path):
  for algorithm, accuracy, variants in (
    ('fed_avg', 0.94, ()),
    ('ce_fed_avg', 0.92, ()),
    ('dp_fed_avg', 0.91, ()),
    ('ce_fed_avg', 0.935, ('matched_steps',)),
    ('ce_fed_avg', 0.90, ('expected_norms',)),
    ('dp_fed_avg', 0.85, ('fixed_size',)),
    ('dp_fed_avg', 0.915, ('epsilon_5',)),
    ('fed_avg', 0.80, ('client_rate_0.03',)),
    ('ce_fed_avg', 0.79, ('client_rate_0.03',)),
  ):
    run_folders.write_named_run(
      tmp_path, *_MNIST, algorithm, accuracy, variants=variants
    )
  texts, _ = page.make_pages(run_folders.read_evidence(tmp_path))
  figures = '| 94.00 | 94.00 | 1.84 | 2.00 | 0.29 | 1.00 | 1.5 | 1.5 |'
  assert f'| MLP | MNIST | non-IID {figures}' in texts[page.PAGES[0]]
  lines = texts[f'{page.FOLDER}/clipping.csv'].splitlines()
  # One line, of the runs that no variant changes.
  assert len(lines) == 2
  assert lines[1].startswith(f'{_MNIST[0]},paper,1,')


def test_folder_without_a_row_of_the_paper_is_refused(tmp_path):
  run_folders.write_run(tmp_path / 'run', examples_per_client=60)
  with pytest.raises(ValueError, match='no finished run of a row of the paper'):
    run_folders.read_evidence(tmp_path)
