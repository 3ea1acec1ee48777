"""Tests that the flag files are the paper's experiments."""

import pathlib
import re

import pytest
from absl import flags
from absl.testing import flagsaver

from tasks import experiment, grid, keras_models, partition_config, registry
from tasks import train as train_flags

_ROOT = pathlib.Path(__file__).parents[2]
_FOLDER = pathlib.Path('tasks') / 'flagfiles'
_PAPER = sorted(p.name for p in (_ROOT / _FOLDER).glob('table*.flags'))
_CLIPPED = [n for n in _PAPER if re.search('_(ce|dp)_fed_avg', n)]
_FIELDS = experiment.ExperimentConfig.__dataclass_fields__


def _read(path, monkeypatch):
  """Returns the settings and the output folder that a flag file describes."""
  assert train_flags  # Defines the flags.
  # Flag files name each other from the root of the checkout.
  monkeypatch.chdir(_ROOT)
  with flagsaver.flagsaver():
    flags.FLAGS(['train', f'--flagfile={path}'])
    settings = {
      name: flags.FLAGS[name].value for name in _FIELDS if name in flags.FLAGS
    }
    settings['update_rounds'] = tuple(map(int, settings['update_rounds']))
    clipped_as = flags.FLAGS.clipping_norm_from
    if clipped_as is not None:
      settings['clipping_norm'] = 1.0
    return (
      experiment.ExperimentConfig(**settings),
      flags.FLAGS.output_dir,
      clipped_as,
    )


def test_there_is_one_for_each_row_and_curve():
  # Tables 3 and 4: 7 rows of 3 algorithms. Table 2: 8 cells of 2.
  rows = [
    f'table3_{m}_emnist_noniid'
    for m in ('mlp', 'alexnet', 'mobilenet_v2', 'resnet18')
  ]
  rows += [f'table4_{m}_cifar10_iid' for m in ('mlp', 'alexnet', 'resnet18')]
  expected = {
    f'{row}_{algorithm}.flags'
    for row in rows
    for algorithm in ('fed_avg', 'ce_fed_avg', 'dp_fed_avg')
  }
  expected |= {
    f'table2_{model}_{data}_{split}_{algorithm}.flags'
    for model in ('alexnet', 'resnet18')
    for data in ('emnist', 'cifar10')
    for split in ('iid', 'noniid')
    for algorithm in ('fed_avg', 'ce_fed_avg')
  }
  assert set(_PAPER) == expected
  assert len(_PAPER) == 7 * 3 + 8 * 2
  reduced = {p.name for p in (_ROOT / _FOLDER / 'reduced').glob('*.flags')}
  assert reduced == expected


@pytest.mark.parametrize('name', _PAPER)
def test_values_are_the_papers(name, monkeypatch):
  config, output_dir, clipped_as = _read(_FOLDER / name, monkeypatch)
  table, rest = name.removesuffix('.flags').split('_', 1)
  assert output_dir == f'runs/{table}_{rest}'
  # Sec. 4.
  assert (config.clients_per_round, config.local_steps) == (80, 32)
  assert config.batch_size == 64
  emnist = 'emnist' in name
  assert config.task == ('emnist_digits' if emnist else 'cifar10')
  if emnist:
    # Every one of the 240,000 digits is held by one client.
    assert config.num_clients * config.examples_per_client == 240_000
  else:
    assert config.num_clients == 1920
  if table != 'table2':
    assert config.num_clients == 1920
    assert config.examples_per_client == (125 if emnist else 500)
  assert config.partition == (
    ('label_skew' if 'noniid' in name else 'iid')
    if emnist
    else 'class_balanced'
  )
  assert rest.startswith(config.model)
  assert name.endswith(f'{config.algorithm}.flags')
  if config.algorithm == 'fed_avg':
    assert clipped_as is None
  else:
    row = rest.removesuffix(f'_{config.algorithm}')
    assert clipped_as == f'runs/{table}_{row}_fed_avg'
  if config.is_private:
    assert config.target_delta == 1e-5
    large = name.startswith('table3_resnet18')
    assert config.target_epsilon == (5 if large else 1.5)


@pytest.mark.parametrize('folder', ['', 'reduced'])
@pytest.mark.parametrize('name', _CLIPPED)
def test_algorithms_of_a_row_differ_in_nothing_else(folder, name, monkeypatch):
  config, _, _ = _read(_FOLDER / folder / name, monkeypatch)
  row = name.removesuffix(f'_{config.algorithm}.flags')
  plain, _, _ = _read(_FOLDER / folder / f'{row}_fed_avg.flags', monkeypatch)
  different = {
    name
    for name, value in config.to_json().items()
    if value != plain.to_json()[name]
  }
  assert different <= {
    'algorithm',
    'clipping_norm',
    'sampling',
    'target_epsilon',
    'target_delta',
    # Drawn by a private run.
    'sampling_seed',
  }


@pytest.mark.parametrize('name', _PAPER)
def test_reduced_set_only_makes_smaller(name, monkeypatch):
  full, _, full_clip = _read(_FOLDER / name, monkeypatch)
  reduced, output_dir, clip = _read(_FOLDER / 'reduced' / name, monkeypatch)
  assert output_dir == f'runs/reduced/{name.removesuffix(".flags")}'
  assert clip == (full_clip and full_clip.replace('runs/', 'runs/reduced/'))
  sizes = (
    'num_clients',
    'clients_per_round',
    'local_steps',
    'batch_size',
    'num_rounds',
  )
  smaller = [f for f in sizes if getattr(reduced, f) < getattr(full, f)]
  assert all(getattr(reduced, f) <= getattr(full, f) for f in sizes)
  # Of the MLP on digits, nothing is reduced but the data.
  assert bool(smaller) == (reduced.model != 'mlp' or reduced.task != 'mnist')
  assert reduced.task == ('mnist' if 'emnist' in name else 'cifar10')
  # P / N is the paper's.
  assert (
    reduced.clients_per_round * full.num_clients
    == reduced.num_clients * full.clients_per_round
  )
  for field in (
    'model',
    'algorithm',
    'partition',
    'target_epsilon',
    'examples_per_client',
    'client_learning_rate',
  ):
    assert getattr(reduced, field) == getattr(full, field)
  if reduced.task == 'mnist' and reduced.model != 'mlp':
    # No digit is held by two clients, as in the paper's split of EMNIST.
    assert reduced.num_clients * reduced.examples_per_client <= 60_000


@pytest.mark.parametrize('name', _PAPER)
def test_task_partition_and_model_exist(name, monkeypatch):
  for folder in ('', 'reduced'):
    config, _, _ = _read(_FOLDER / folder / name, monkeypatch)
    assert config.task in registry.TASKS
    assert config.model in keras_models.MODELS
    partition_config.PartitionConfig(config.partition, config.num_clients)


@pytest.mark.parametrize(
  'path',
  sorted(
    str(p.relative_to(_ROOT / _FOLDER))
    for pattern in (
      'table*.flags',
      'common/*.flags',
      'reduced/**/*.flags',
      'more/*.flags',
    )
    for p in (_ROOT / _FOLDER).glob(pattern)
  ),
)
def test_file_says_what_it_is_and_where_its_values_are_from(path):
  lines = (_ROOT / _FOLDER / path).read_text().splitlines()
  assert lines[0].startswith('# ')
  if path.startswith('reduced'):
    assert lines[0].startswith('# Reduced: ')
  if not path.startswith(('table', 'common')):
    return
  # A comment stands before each value that is not the name of a file, or
  # before the first of several that it is about.
  values = [
    i
    for i, line in enumerate(lines)
    if re.match(r'--(?!flagfile|output_dir|clipping_norm_from|partition)', line)
  ]
  assert values or path.startswith('table')
  for i in values:
    assert lines[i - 1].startswith('#'), lines[i]


@pytest.mark.parametrize(
  'path',
  sorted(
    str(p.relative_to(_ROOT)) for p in (_ROOT / _FOLDER / 'more').glob('*')
  ),
)
def test_runs_beyond_the_tables_can_be_run(path, monkeypatch):
  config, output_dir, clipped_as = _read(path, monkeypatch)
  name = pathlib.Path(path).stem
  assert output_dir == f'runs/more/{name}'
  assert (clipped_as is None) == (
    config.algorithm in ('fed_avg', 'model_clipping_fed_avg')
  )
  large = 'reduced/table3_alexnet_emnist_noniid_fed_avg.flags'
  reduced = _scale(_read(_FOLDER / large, monkeypatch)[0])
  if name.startswith('same_scale'):
    assert _scale(config) == reduced
  elif name.startswith('longer'):
    assert _scale(config) == (*reduced[:3], 100)
  elif name.startswith('paper_cohort'):
    assert _scale(config) == (80, *reduced[1:])
    assert config.num_clients == 1920
  elif config.task == 'mnist':
    mlp = 'table3_mlp_emnist_noniid_fed_avg.flags'
    like, _, _ = _read(_FOLDER / mlp, monkeypatch)
    # The writers are fewer than the paper's clients.
    assert _scale(config)[1:] == _scale(like)[1:]


def test_all_reduced_rows_of_large_models_are_of_one_scale(monkeypatch):
  scales = {
    _scale(_read(path.relative_to(_ROOT), monkeypatch)[0])
    for path in (_ROOT / _FOLDER / 'reduced').glob('*.flags')
    if '_mlp_' not in path.name
  }
  assert len(scales) == 1


@pytest.mark.parametrize(
  'path',
  sorted(
    str(p.relative_to(_ROOT))
    for p in (_ROOT / _FOLDER / 'search').glob('*.grid')
  ),
)
def test_searches_are_of_fed_avg_alone_and_of_rates_alone(path, monkeypatch):
  monkeypatch.chdir(_ROOT)
  runs = grid.read_grid(path)
  rates = [run.config.client_learning_rate for run in runs]
  assert len(set(rates)) == len(rates) >= 2
  assert {run.config.algorithm for run in runs} == {'fed_avg'}
  others = {
    str(run.config.to_json() | {'client_learning_rate': 0}) for run in runs
  }
  assert len(others) == 1


def _scale(config) -> tuple:
  return (
    config.clients_per_round,
    config.local_steps,
    config.batch_size,
    config.num_rounds,
  )
