"""Tests of docs/reproduction.md and of what makes it."""

import pathlib
import re

import pytest

from analysis import reproduction, reproduction_figures, results, style
from tests.analysis import run_folders

_ROOT = pathlib.Path(__file__).parents[2]
_PAGE = _ROOT / 'docs' / 'reproduction.md'

_PRIVACY = run_folders.PRIVACY | {'noise_multiplier': 1.5301}
_UPDATES = {16: [('a', 1.0, 60.0, 1.0), ('b', 3.0, 90.0, 0.3)]}


def _write_row(root, seed=0, accuracies=(0.94, 0.92, 0.91), **experiment):
  """A row of Table 3 with a seed: FedAvg, CE-FedAvg and DP-FedAvg."""
  settings = dict(
    task='mnist', examples_per_client=125, seed=seed, num_rounds=100
  )
  settings |= experiment
  for algorithm, accuracy in zip(
    ('fed_avg', 'ce_fed_avg', 'dp_fed_avg'), accuracies, strict=True
  ):
    folder = run_folders.write_run(
      root / f'{settings.get("model", "mlp")}_{algorithm}_seed{seed}',
      algorithm=algorithm,
      accuracies=(0.1, accuracy),
      privacy=_PRIVACY if algorithm == 'dp_fed_avg' else None,
      updates=None if algorithm == 'dp_fed_avg' else _UPDATES,
      **settings,
    )
    # All rounds, not the one that is evaluated.
    path = folder / 'metrics.csv'
    lines = path.read_text().splitlines()
    lines[-1] = re.sub('^1,', '100,', lines[-1])
    path.write_text('\n'.join(lines) + '\n')


def _page(root):
  return reproduction.reproduction_markdown(
    reproduction.read_results(root), root
  )


def _section(page, title):
  return page.split(f'## {title}\n', 1)[1].split('\n## ', 1)[0]


def test_the_published_page_is_that_of_the_published_runs(
  tmp_path, monkeypatch
):
  # The names of the figures are compared, not their pixels.
  monkeypatch.setattr(style, 'save', lambda drawing, path: path.touch())
  results_dir = _ROOT / 'results'
  runs = reproduction.read_results(results_dir)
  blocks = reproduction_figures.write_figures(
    results.group_by_setting(runs), tmp_path / 'reproduction'
  )
  page = reproduction.reproduction_markdown(runs, results_dir, blocks)
  assert page == _PAGE.read_text(encoding='utf-8')
  made = {path.name for path in (tmp_path / 'reproduction').iterdir()}
  kept = {path.name for path in (_ROOT / 'docs/reproduction').iterdir()}
  assert made == kept


def test_published_files_name_no_folder_of_the_machine():
  for path in (_ROOT / 'results').rglob('*'):
    if path.is_file():
      text = path.read_text(encoding='utf-8')
      assert not re.search(r'/(home|tmp|work|root|Users)/', text), path


def test_published_pictures_are_there_and_small():
  pictures = re.findall(r'\]\((reproduction/[^)]*)\)', _PAGE.read_text())
  assert pictures
  sizes = [(_PAGE.parent / picture).stat().st_size for picture in pictures]
  assert sum(sizes) < 2e6


def test_row_has_the_mean_over_seeds_and_the_command(tmp_path):
  _write_row(tmp_path, seed=0, accuracies=(0.94, 0.92, 0.91))
  _write_row(tmp_path, seed=1, accuracies=(0.96, 0.92, 0.91))
  section = _section(_page(tmp_path), "The paper's tables")
  row = next(line for line in section.splitlines() if '| MLP |' in line)
  assert '| MNIST for EMNIST | non-IID | 94.00 |' in row
  assert '| 95.00 ± 1.41 (n = 2) | 1.84 | 3.00 ± 1.41 (n = 2) | 0.29 |' in row
  assert '`python -m tasks.reproduce table3_mlp_emnist_noniid --seeds=0,1`' in (
    row
  )


def test_other_sizes_of_clients_are_in_other_tables(tmp_path):
  _write_row(tmp_path, model='alexnet', examples_per_client=500)
  section = _section(_page(tmp_path), "The paper's tables")
  table_3, table_2 = section.split('### Table 2')
  assert 'Not run: MLP, EMNIST, non-IID; AlexNet, EMNIST, non-IID' in table_3
  assert '| AlexNet | MNIST for EMNIST | non-IID |' in table_2


def test_smaller_scales_stand_beside_the_row(tmp_path):
  for scale, cohort, accuracies in (
    ('table3', 80, (0.94, 0.92, 0.91)),
    ('same_scale', 10, (0.5, 0.4, 0.3)),
    ('tiny', 5, (0.3, 0.2, 0.1)),
  ):
    folder = tmp_path / scale
    _write_row(folder, clients_per_round=cohort, accuracies=accuracies)
    for path in folder.iterdir():
      name = path.name.replace('mlp_', 'mlp_emnist_noniid_')
      path.rename(tmp_path / f'{scale}_{name}')
    folder.rmdir()
  page = _page(tmp_path)
  row = _section(page, "The paper's tables")
  assert '| 94.00 | 94.00 |' in row
  assert '`python -m tasks.reproduce table3_mlp_emnist_noniid`' in row
  beside = page.split('### Once more, at other scales')[1]
  beside = beside.split('\n## ')[0]
  lines = [line for line in beside.splitlines() if '| MLP |' in line]
  assert [line.split(' | ')[4] for line in lines] == ['50.00', '30.00']
  for line, scale in zip(lines, ('same_scale', 'tiny'), strict=True):
    command = f'`python -m tasks.reproduce {scale}_mlp_emnist_noniid`'
    assert command in line


def test_smaller_scales_of_several_tables_stand_in_one(tmp_path):
  for size, drop in ((500, 0.02), (125, 0.01)):
    for cohort in (80, 10):
      root = tmp_path / f'{size}_{cohort}'
      _write_row(
        root,
        model='alexnet',
        clients_per_round=cohort,
        examples_per_client=size,
        accuracies=(0.94, 0.94 - drop, 0.9),
      )
      for path in root.iterdir():
        path.rename(tmp_path / f'{root.name}_{path.name}')
      root.rmdir()
  beside = _page(tmp_path).split('### Once more, at other scales')[1]
  beside = beside.split('\n## ')[0]
  header, _, *lines = [
    [cell.strip() for cell in line.strip('|').split('|')]
    for line in beside.splitlines()
    if line.startswith('|')
  ]
  ours = [dict(zip(header, line, strict=True)) for line in lines]
  assert [line['clipping drop, ours'] for line in ours] == ['2.00', '1.00']
  # Table 2 has no DP-FedAvg.
  assert [line['DP drop, ours'] for line in ours] == ['–', '3.00']
  assert header[-1] == 'repeat with'


def test_what_was_not_run_is_listed_with_its_command(tmp_path):
  _write_row(tmp_path)
  section = _section(_page(tmp_path), 'What was not run, and why')
  assert 'Table 3: MLP, EMNIST, non-IID:' not in section
  assert (
    '- Table 4: MLP, CIFAR-10, IID: FedAvg, CE-FedAvg, DP-FedAvg '
    '(`python -m tasks.reproduce table4_mlp_cifar10_iid`)' in section
  )
  assert 'three seeds, for want of machine time: Table 3: MLP' in section


def test_scale_of_the_rows_is_said(tmp_path):
  _write_row(tmp_path)
  _write_row(tmp_path, model='alexnet', clients_per_round=20)
  page = _page(tmp_path)
  assert 'At the paper’s N, P, Q and batch: Table 3: MLP, EMNIST' in page
  assert '1 of 2 rows' in page


def test_privacy_table_has_the_figures_of_the_accountant(tmp_path):
  _write_row(tmp_path)
  section = _section(_page(tmp_path), 'What ε the runs have')
  row = next(line for line in section.splitlines() if 'Table 3: MLP' in line)
  cells = [cell.strip() for cell in row.strip('|').split('|')]
  assert cells[6] == '1.530'
  assert cells[7] == '1.50'
  assert cells[8] == '5.88'
  assert cells[9] == '5.101 by RDP, 3.019 by PLD'


def test_calibrations_stand_side_by_side(tmp_path):
  _write_row(tmp_path)
  plan = _PRIVACY | {'sampling': 'fixed_size', 'noise_multiplier': 5.102}
  folder = run_folders.write_run(
    tmp_path / 'dp_fixed',
    algorithm='dp_fed_avg',
    accuracies=(0.1, 0.85),
    privacy=plan,
    task='mnist',
    examples_per_client=125,
    num_rounds=100,
  )
  path = folder / 'metrics.csv'
  path.write_text(path.read_text().replace('\n1,', '\n100,'))
  section = _section(_page(tmp_path), 'What ε the runs have')
  assert '| Poisson cohorts, charged as such | MNIST for EMNIST |' in section
  assert '| fixed P of N, charged as such | MNIST for EMNIST | 5.102 |' in (
    section
  )
  # It is no second DP-FedAvg of the row.
  row = _section(_page(tmp_path), "The paper's tables")
  assert '| 1.00 |' in row
  assert '7.00' not in row


def test_model_clipping_stands_beside_what_its_noise_is(tmp_path):
  _write_row(tmp_path)
  for threshold, accuracy in ((9.0, 0.93), (1.0, 0.3)):
    folder = run_folders.write_run(
      tmp_path / f'models_{threshold:.0f}',
      algorithm='model_clipping_fed_avg',
      accuracies=(0.1, accuracy),
      clipping_norm=threshold,
      task='mnist',
      examples_per_client=125,
      num_rounds=100,
    )
    path = folder / 'metrics.csv'
    path.write_text(path.read_text().replace('\n1,', '\n100,'))
  section = _section(
    _page(tmp_path), 'Difference clipping against model clipping'
  )
  # That of CE-FedAvg itself is no larger one.
  assert 'models at c = 9 it is 9.0 times that of CE-FedAvg.' in section
  assert (
    '| Model clipping | MNIST for EMNIST | models | 100 | 93.00 | 1.00 ±'
    in (section)
  )
  assert (
    '| Model clipping | MNIST for EMNIST | models | 100 | 30.00 | 64.00 ±'
    in (section)
  )


def test_model_that_table_4_lacks_has_a_table_of_its_own(tmp_path):
  section = 'MobileNetV2 on CIFAR-10'
  _write_row(tmp_path)
  assert 'Not run yet' in _section(_page(tmp_path), section)
  _write_row(
    tmp_path,
    model='mobilenet_v2',
    task='cifar10',
    partition='class_balanced',
    examples_per_client=500,
  )
  found = _section(_page(tmp_path), section)
  assert '| CE-FedAvg | CIFAR-10 | 100 | 92.00 | 2.00 ±' in found
  # It is in no table of the paper.
  assert (
    '92.00'
    not in _section(_page(tmp_path), "The paper's tables").split('### Table 4')[
      1
    ]
  )


def test_search_shows_the_rates_and_which_is_used(tmp_path):
  _write_row(tmp_path)
  folder = tmp_path / 'search' / 'mlp_mnist'
  folder.mkdir(parents=True)
  (folder / 'sweep.csv').write_text(
    'client_learning_rate,status,rounds,final_accuracy\n'
    '0.03,finished,20,0.84\n0.1,finished,20,0.88\n0.3,not started,,\n'
  )
  section = _section(_page(tmp_path), 'The search for learning rates')
  assert '| 0.03: 84.0, 0.1: 88.0 | 0.1 | 0.1 |' in section


def test_folder_without_runs_is_refused(tmp_path):
  with pytest.raises(ValueError, match='`results_dir` .* found none'):
    reproduction.read_results(tmp_path)
