"""Tests that the table of experiments is the paper's."""

import json

import pytest

from analysis import experiments as published
from tasks import algorithms, config, experiments
from tasks.experiments import ROWS, SCALES, VARIANTS, NamedRun
from tasks.models import keras_models
from tests.tasks import train_command

_PAPERS = experiments.PUBLISHED_ROWS
_MLP = 'table3_mlp_mnist_noniid'


def _runs(rows=ROWS, scales=SCALES):
  return [
    NamedRun(row, scale, algorithm)
    for row in rows
    for scale in scales
    for algorithm in experiments.compared_algorithms(row)
  ]


def _config(run):
  settings = run.settings
  if run.algorithm != 'fed_avg':
    settings.setdefault('clipping_norm', 1.0)
  created = config.Config(**settings)
  algorithms.check(created)
  return created


def test_there_is_a_row_for_each_of_the_papers():
  # Table 2: 2 models, 2 data sets, IID and not. Table 3: 4 models on EMNIST.
  # Table 4: 3 on CIFAR-10.
  papers = [row for row in published.ROWS if row.name in _PAPERS]
  tables = [row.table for row in papers]
  assert [tables.count(t) for t in (2, 3, 4)] == [8, 4, 3]
  assert {row.name for row in papers} == {*_PAPERS}


def test_the_rows_of_analysis_are_those_that_are_trained():
  for row in published.ROWS:
    assert row.epsilon == ROWS[row.name].get('target_epsilon'), row
  for row, other in published.SHARED.items():
    assert ROWS[row] == ROWS[other] | {'target_epsilon': 1.5}
  assert {*published.FIGURE_ROWS} <= {*ROWS}


def test_published_figures_are_the_papers():
  rows = {row.name: row for row in published.ROWS}
  # The paper prints the rows of CIFAR-10, IID, in Table 2 and in Table 4.
  for model in ('alexnet', 'resnet18'):
    second, fourth = (rows[f'table{t}_{model}_cifar10_iid'] for t in (2, 4))
    assert second.fed_avg == fourth.fed_avg
    assert second.clipping_drop == fourth.clipping_drop
  # "epsilon = 1.5 for MLP, AlexNet and MobileNetV2 and 5 for ResNet-18".
  assert [
    row.epsilon
    for row in rows.values()
    if row.table == 3 and row.name in _PAPERS
  ] == [1.5, 1.5, 1.5, 5.0]
  mlp = rows['table3_mlp_emnist_noniid']
  assert (mlp.fed_avg, mlp.clipping_drop, mlp.dp_drop) == (94.0, 1.84, 0.29)


def test_values_at_the_papers_scale_are_the_papers():
  for run in _runs(_PAPERS):
    full = NamedRun(run.row, 'paper', run.algorithm)
    found, settings = _config(full), run.settings
    # At every scale the share of the clients in a round is the paper's.
    assert (
      settings['clients_per_round'] * found.num_clients
      == settings['num_clients'] * found.clients_per_round
    )
    # Sec. 4.
    assert (found.clients_per_round, found.local_steps) == (80, 32)
    assert found.batch_size == 64
    if found.task == 'emnist.npz':
      # Every one of the 240,000 digits is held by one client.
      assert found.num_clients * found.examples_per_client == 240_000
    if found.task != 'emnist.npz' or not run.row.startswith('table2'):
      assert found.num_clients == 1920
    assert found.target_delta in (None, 1e-5)


def test_every_run_can_be_asked_for_and_those_of_a_row_differ_in_nothing_else():
  for run in _runs():
    found = _config(run).to_json()
    assert found['model'] in keras_models.MODELS
    plain = _config(NamedRun(run.row, run.scale, 'fed_avg')).to_json()
    assert {name for name in found if found[name] != plain[name]} <= {
      'algorithm',
      'clipping_norm',
      'sampling',
      'target_epsilon',
      'target_delta',
    }


def test_no_digit_is_held_by_two_clients_at_the_reduced_scale():
  for name, row in ROWS.items():
    if row['task'] == 'mnist' and row['examples_per_client']:
      settings = NamedRun(name, 'reduced', 'fed_avg').settings
      assert settings['num_clients'] * settings['examples_per_client'] <= 60_000


@pytest.mark.parametrize('name', VARIANTS)
def test_variants_change_what_they_say(name):
  for algorithm in VARIANTS[name].algorithms:
    # With a rate that no variant has.
    row = 'table4_mlp_cifar10_iid'
    plain = NamedRun(row, 'reduced', algorithm).settings
    changed = NamedRun(row, 'reduced', algorithm, variants=(name,))
    _config(changed)
    assert changed.settings == plain | VARIANTS[name].settings != plain


# What went in 0.3.0; commit 44967cd3 makes these runs.
_GONE = {
  *('dp_model_clipping_fed_avg', 'dp_steps_fed_avg', 'local_dp_fed_avg'),
  *('threshold', 'expected_norms', 'smooth', 'smooth_cifar10', 'dp_sgd'),
  *('noise_0.147', 'noise_0.0881', 'noise_0.1727', 'noise_0.1912'),
  *('noise_0.1057', 'geyer_100', 'geyer_1000', 'geyer_10000'),
  *(
    f'mlp_{data}_{name}'
    for data in ('mnist', 'cifar10')
    for name in ('disjoint', 'examples')
  ),
}


def test_published_runs_are_called_what_ran():
  lines = (train_command.ROOT / 'results' / 'runs.jsonl').read_text()
  watching = ('rounds_per_evaluation', 'test_examples', 'rounds_per_checkpoint')
  gone, names = set(), set()
  for saved in map(json.loads, lines.splitlines()):
    of_run, settings = saved['config']['run'], saved['config']['experiment']
    went = {of_run['row'], of_run['algorithm'], *of_run['variants']}
    went -= {*ROWS, *experiments.ALGORITHMS, *VARIANTS}
    if went:
      gone |= went
      continue
    run = NamedRun(**of_run)
    assert run.name == saved['name']
    # The settings are those that these names ask for.
    differing = {
      key: (value, settings[key])
      for key, value in run.settings.items()
      if key not in (*watching, 'update_rounds')
      and settings.get(key)
      and settings[key] != value
    }
    assert not differing, run.name
    names |= {run.name, run.threshold_run and run.threshold_run.name}
  assert gone == _GONE
  # c of each is published, or a row or a variant gives it.
  published_names = {json.loads(line)['name'] for line in lines.splitlines()}
  assert names - {None} <= published_names


def test_a_threshold_is_that_of_fed_avg_with_the_same_settings():
  run = NamedRun(_MLP, 'paper', 'dp_fed_avg', 3, ('fixed_size', 'scaffold'))
  assert run.name == (
    'mnist-label_skew_125-mlp-paper-dp_fed_avg-fixed_size-scaffold-seed3'
  )
  source = NamedRun(_MLP, 'paper', 'fed_avg', 3, ('scaffold',))
  assert run.threshold_run == source
  assert source.threshold_run is None
  given = NamedRun('mlp_mnist_half', 'paper', 'dp_fed_avg')
  assert given.settings['clipping_norm'] == 0.373
  assert given.threshold_run is None
  seeds = ('seed', 'model_seed', 'sampling_seed')
  assert {run.settings[name] for name in seeds} == {3}


def test_a_row_with_ones_own_files_has_a_folder_by_their_names(monkeypatch):
  row = {
    **ROWS['mlp_embedded_digits'],
    'model': 'my/models.py:create_model',
    'task': '/data/mine.npz',
    'partition': 'natural',
    'examples_per_client': None,
  }
  monkeypatch.setitem(experiments.ROWS, 'mine', row)
  run = NamedRun('mine', 'demo', 'ce_fed_avg')
  name = 'mine-natural-models_create_model-demo-{}-seed0'
  assert run.name == name.format('ce_fed_avg')
  assert run.threshold_run.name == name.format('fed_avg')


@pytest.mark.parametrize(
  ('names', 'message'),
  [
    (('table9', 'paper', 'fed_avg'), "`row` must be one of .*, found 'table9'"),
    ((_MLP, 'tiny', 'fed_avg'), "`scale` must be one of .*, found 'tiny'"),
    ((_MLP, 'paper', 'sgd'), "`algorithm` must be one of .*, found 'sgd'"),
    ((_MLP, 'paper', 'fed_avg', 0, ['x']), "`variants` must be .*, found 'x'"),
    (
      (_MLP, 'paper', 'fed_avg', 0, ['fixed_size']),
      '`variants` must fit the algorithm, found fixed_size',
    ),
    (
      (_MLP, 'paper', 'dp_fed_avg', 0, ['banded', 'blt']),
      '`variants` must agree on `mechanism`, found banded and blt in banded, ',
    ),
  ],
)
def test_names_that_are_not_in_the_table_are_refused(names, message):
  with pytest.raises(ValueError, match=message):
    NamedRun(*names)
