"""Tests of docs/reproduction.md, its details, and what makes them."""

import json
import pathlib
import re

import pytest

from analysis import reproduction, style
from tests.analysis import run_folders

_ROOT = pathlib.Path(__file__).parents[2]
_DOCS = _ROOT / 'docs'

_PRIVACY = run_folders.PRIVACY | {'noise_multiplier': 1.5301}
_UPDATES = {16: [('a', 1.0, 60.0, 1.0), ('b', 3.0, 90.0, 0.3)]}


def _write_run(root, name, accuracy, **settings):
  """A run of the MLP of Table 3 on MNIST, with all of its 100 rounds."""
  defaults = dict(task='mnist', examples_per_client=125, num_rounds=100)
  folder = run_folders.write_run(
    root / name, accuracies=(0.1, accuracy), **defaults | settings
  )
  path = folder / 'metrics.csv'
  path.write_text(path.read_text().replace('\n1,', '\n100,'))


def _write_row(root, seed=0, accuracies=(0.94, 0.92, 0.91), **settings):
  for algorithm, accuracy in zip(
    ('fed_avg', 'ce_fed_avg', 'dp_fed_avg'), accuracies, strict=True
  ):
    is_private = algorithm == 'dp_fed_avg'
    _write_run(
      root,
      f'{algorithm}_seed{seed}',
      accuracy,
      algorithm=algorithm,
      privacy=_PRIVACY if is_private else None,
      updates=None if is_private else _UPDATES,
      seed=seed,
      **settings,
    )


@pytest.fixture
def pages(tmp_path, monkeypatch):
  """Makes the two pages of the runs in a folder, without pixels."""
  monkeypatch.setattr(style, 'save', lambda drawing, path: path.touch())

  def make(root):
    docs = tmp_path / 'docs'
    docs.mkdir()
    reproduction.write_pages(root, docs)
    return [(docs / page).read_text('utf-8') for page in reproduction.PAGES]

  return make


def _section(page, title):
  return page.split(f'## {title}\n', 1)[1].split('\n## ', 1)[0]


@pytest.mark.slow
def test_the_published_pages_are_those_of_the_published_runs(pages, tmp_path):
  # The names of the figures are compared, not their pixels.
  made = pages(_ROOT / 'results')
  for text, page in zip(made, reproduction.PAGES, strict=True):
    assert text == (_DOCS / page).read_text('utf-8')
  drawn = {path.name for path in (tmp_path / 'docs/reproduction').iterdir()}
  assert drawn == {path.name for path in (_DOCS / 'reproduction').iterdir()}


def test_published_files_name_no_folder_of_the_machine():
  for path in (_ROOT / 'results').rglob('*'):
    if path.is_file():
      text = path.read_text(encoding='utf-8')
      assert not re.search(r'/(home|tmp|work|root|Users)/', text), path


def test_published_pictures_are_there_and_small():
  text = ''.join((_DOCS / page).read_text() for page in reproduction.PAGES)
  pictures = re.findall(r'\]\((reproduction/[^)]*)\)', text)
  assert pictures
  sizes = [(_DOCS / picture).stat().st_size for picture in pictures]
  assert sum(sizes) < 2e6


def test_readme_has_the_figures_of_the_page():
  page = (_DOCS / 'reproduction.md').read_text('utf-8').splitlines()
  lines = [
    [cell.strip() for cell in line.strip('|').split('|')]
    for line in (_ROOT / 'README.md').read_text('utf-8').splitlines()
    if line.startswith('|') and ' ± ' in line
  ]
  assert len(lines) == 2
  for setting, *figures in lines:
    data, split = setting.split(', ')
    row = next(r for r in page if r.startswith(f'| MLP | {data} | {split} |'))
    assert f'| {" | ".join(figures)} |' in row


def test_row_has_the_mean_over_seeds_and_its_margin(tmp_path, pages):
  for seed, plain in enumerate((0.93, 0.94, 0.95)):
    _write_row(tmp_path / 'runs', seed, (plain, plain - 0.02, plain - 0.03))
  page, _ = pages(tmp_path / 'runs')
  row = '| MLP | MNIST | non-IID | 94.00 | 94.00 ± 2.48 | 1.84 | 2.00 ± 0.00 |'
  assert f'{row} 0.29 | 1.00 ± 0.00 | 1.5 | 1.5 | 80, 32, 64, 100 | 3 |' in page
  assert '- MLP on MNIST, non-IID, at the paper' in page
  assert 'as have 1 of our 1 rows' in page
  assert 'not run: Table 2: AlexNet, EMNIST, IID;' in page
  assert '± nan' not in page


def test_privacy_table_has_the_figures_of_the_accountant(tmp_path, pages):
  _write_row(tmp_path / 'runs')
  _, details = pages(tmp_path / 'runs')
  row = next(
    line
    for line in _section(details, 'What ε the runs have').splitlines()
    if line.startswith('| 1920 | 80 | 100 | 1e-5 |')
  )
  assert '| 1.530 | 1.5 | 5.878 | 5.102 by RDP, 3.02 by PLD |' in row


def test_variants_change_no_figure_of_a_row(tmp_path, pages):
  row = ('table3_mlp_mnist_noniid', 'paper')
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
      tmp_path / 'runs',
      *row,
      algorithm,
      accuracy,
      variants=variants,
      privacy={
        'noise_multiplier': 1.5301,
        'sampling': 'fixed_size' if variants == ('fixed_size',) else 'poisson',
      },
    )
  page, details = pages(tmp_path / 'runs')
  figures = '| 94.00 | 94.00 | 1.84 | 2.00 | 0.29 | 1.00 | 1.5 | 1.5 |'
  assert f'| MLP | MNIST | non-IID {figures} 80, 32, 64, 100 |' in page
  assert (
    f'| {row[0]} | paper | 1.84 | 2.00 | 0.50 | 1.50 | – and – | 1 |' in page
  )
  # One line, of the runs that no variant changes.
  section = _section(details, 'Clipping, at every scale')
  assert len(re.findall(f'^[|] {row[0]} ', section, re.MULTILINE)) == 1


def test_bound_stands_beside_what_it_bounds(tmp_path, pages):
  _write_row(tmp_path / 'runs')
  folder = run_folders.write_named_run(
    tmp_path / 'runs',
    'table3_mlp_mnist_noniid',
    'paper',
    'ce_fed_avg',
    0.9,
    variants=['expected_norms'],
    updates={0: [('a', 1.0, 60.0, 1.0)], 50: [('a', 4.0, 60.0, 0.25)]},
    clipping_norm=1.0,
  )
  constants = dict(
    smoothness=1.0,
    gradient_bound=3.0,
    local_stddev=0.0,
    global_stddev=0.0,
    initial_gap=2.4,
    rounds=[0, 50],
    squared_gradient_norms=[8.0, 16.0],
  )
  (folder / 'constants.json').write_text(json.dumps(constants))
  _, details = pages(tmp_path / 'runs')
  section = _section(details, 'Theorem 1, measured')
  # From 8 at t = 0 in a line to 16 / 4 at t = 50, and 4 to t = 99:
  # (8 + 4) / 2 * 51 / 100 + 4 * 49 / 100 = 5.02.
  assert '| measured: ᾱ ‖∇f‖² | (nats / length)² | 5 |' in section
  # 4 · 2.4 / (0.3 · 32 · 100).
  assert '| bound: f(x⁰) − f* over T rounds | (nats / length)² | 0.01 |' in (
    section
  )
  assert 'η_l <= 1 / (4 Q L)' in section


def test_model_clipping_stands_beside_difference_clipping(tmp_path, pages):
  _write_row(tmp_path / 'runs')
  for threshold, accuracy in ((9.0, 0.93), (1.0, 0.3)):
    _write_run(
      tmp_path / 'runs',
      f'models_{threshold:.0f}',
      accuracy,
      algorithm='model_clipping_fed_avg',
      clipping_norm=threshold,
    )
  _, details = pages(tmp_path / 'runs')
  section = _section(details, 'Difference clipping against model clipping')
  assert '| CE-FedAvg | updates | 100 | 92.00 | 2.00 | 1 |' in section
  assert '| Model clipping | models | 100 | 93.00 | 1.00 | 9 |' in section
  assert '| Model clipping | models | 100 | 30.00 | 64.00 | 1 |' in section


def test_row_that_the_paper_lacks_is_beyond_its_tables(tmp_path, pages):
  _write_row(tmp_path / 'runs')
  _write_row(
    tmp_path / 'runs',
    seed=1,
    accuracies=(0.76, 0.71, 0.7),
    model='mobilenet_v2',
    task='cifar10',
    partition='class_balanced',
    examples_per_client=500,
  )
  page, details = pages(tmp_path / 'runs')
  section = _section(details, "Beyond the paper's tables")
  row = '| mobilenet_v2_cifar10_iid | CE-FedAvg | 100 | 71.00 | 5.00 |'
  assert row in section
  assert '71.00' not in page


def test_search_shows_the_rates_and_which_is_used(tmp_path, pages):
  _write_row(tmp_path / 'runs')
  folder = tmp_path / 'runs' / 'search' / 'mlp_mnist'
  folder.mkdir(parents=True)
  (folder / 'sweep.csv').write_text(
    'client_learning_rate,status,rounds,final_accuracy\n'
    '0.03,finished,20,0.84\n0.1,finished,20,0.88\n0.3,not started,,\n'
  )
  _, details = pages(tmp_path / 'runs')
  section = _section(details, 'The search for learning rates')
  assert '| 0.03: 84.0, 0.1: 88.0 | 0.1 | 0.1 |' in section


def test_folder_without_a_row_of_the_paper_is_refused(tmp_path, pages):
  _write_run(tmp_path / 'runs', 'run', 0.9, examples_per_client=60)
  with pytest.raises(ValueError, match='a finished run of a row of the paper'):
    pages(tmp_path / 'runs')
