"""Tests that the table of experiments is the paper's."""

import dataclasses

import pytest

from tasks import algorithms, config, experiments
from tasks.experiments import ROWS, SCALES, VARIANTS, NamedRun, get_run
from tasks.models import keras_models
from tests.tasks import published_runs

_PAPERS = experiments.PUBLISHED_ROWS
_MLP = 'table3_mlp_mnist_noniid'


def _runs(rows=None, scales=None):
  return [
    NamedRun(row, scale, algorithm)
    for row in rows or ROWS.values()
    for scale in scales or SCALES.values()
    for algorithm in row.algorithms
  ]


def _config(run):
  settings = run.settings
  if run.algorithm != 'fed_avg':
    settings.setdefault('clipping_norm', 1.0)
  created = config.create(**settings)
  algorithms.check(created)
  return created


def test_there_is_a_row_for_each_of_the_papers():
  # Table 2: 2 models, 2 data sets, IID and not. Table 3: 4 models on EMNIST.
  # Table 4: 3 on CIFAR-10.
  assert [sum(row.table == t for row in _PAPERS) for t in (2, 3, 4)] == [
    8,
    4,
    3,
  ]
  assert len({(r.table, r.model, r.split) for r in _PAPERS}) == 15
  for row in _PAPERS:
    assert row.name.startswith(f'table{row.table}_{row.model}_')
    assert row.name.endswith('_iid' if row.split.is_iid else '_noniid')
    assert row.stands_for is None
    # Table 2 has no noise.
    assert (row.epsilon is None) == (row.dp_drop is None) == (row.table == 2)


def test_published_figures_are_the_papers():
  # The paper prints the rows of CIFAR-10, IID, in Table 2 and in Table 4.
  for model in ('alexnet', 'resnet18'):
    second, fourth = (ROWS[f'table{t}_{model}_cifar10_iid'] for t in (2, 4))
    assert second.fed_avg == fourth.fed_avg
    assert second.clipping_drop == fourth.clipping_drop
  # "epsilon = 1.5 for MLP, AlexNet and MobileNetV2 and 5 for ResNet-18".
  assert [r.epsilon for r in _PAPERS if r.table == 3] == [1.5, 1.5, 1.5, 5.0]
  mlp = ROWS['table3_mlp_emnist_noniid']
  assert (mlp.fed_avg, mlp.clipping_drop, mlp.dp_drop) == (94.0, 1.84, 0.29)


def test_values_at_the_papers_scale_are_the_papers():
  for run in _runs(_PAPERS, [SCALES['paper']]):
    found = _config(run)
    # Sec. 4.
    assert (found.clients_per_round, found.local_steps) == (80, 32)
    assert found.batch_size == 64
    if found.task == 'emnist.npz':
      # Every one of the 240,000 digits is held by one client.
      assert found.num_clients * found.examples_per_client == 240_000
    if found.task != 'emnist.npz' or run.row.table != 2:
      assert found.num_clients == 1920
    assert found.target_delta in (None, 1e-5)


def test_mnist_stands_for_emnist_and_changes_nothing_else():
  for row in _PAPERS:
    found = [r for r in ROWS.values() if r.stands_for == row.name]
    found = [r for r in found if r.split.task == 'mnist']
    assert len(found) == (row.split.task == 'emnist.npz')
    for other in found:
      ours, theirs = (
        NamedRun(r, SCALES['reduced'], 'ce_fed_avg').settings
        for r in (other, row)
      )
      assert ours == theirs | {'task': 'mnist'}


def test_every_run_of_the_table_can_be_asked_for():
  for run in _runs():
    assert _config(run).model in keras_models.MODELS


def test_the_share_of_clients_in_a_round_is_the_papers():
  for run in _runs(_PAPERS):
    full = NamedRun(run.row, SCALES['paper'], run.algorithm).settings
    settings = run.settings
    assert (
      settings['clients_per_round'] * full['num_clients']
      == settings['num_clients'] * full['clients_per_round']
    )


def test_algorithms_of_a_row_differ_in_nothing_else():
  for run in _runs():
    found = _config(run).to_json()
    plain = _config(NamedRun(run.row, run.scale, 'fed_avg')).to_json()
    assert {name for name in found if found[name] != plain[name]} <= {
      'algorithm',
      'clipping_norm',
      'sampling',
      'target_epsilon',
      'target_delta',
    }


def test_no_digit_is_held_by_two_clients_at_the_reduced_scale():
  for row in ROWS.values():
    if row.split.task == 'mnist' and row.split.examples_per_client:
      settings = NamedRun(row, SCALES['reduced'], 'fed_avg').settings
      assert settings['num_clients'] * settings['examples_per_client'] <= 60_000


@pytest.mark.parametrize('variant', VARIANTS.values(), ids=lambda v: v.name)
def test_variants_change_what_they_say(variant):
  row, scale = ROWS[_MLP], SCALES['reduced']
  for algorithm in variant.algorithms:
    plain = NamedRun(row, scale, algorithm).settings
    changed = NamedRun(row, scale, algorithm, variants=(variant,))
    _config(changed)
    assert changed.settings == plain | variant.settings != plain


def test_published_runs_are_called_what_ran():
  published = published_runs.read()
  assert published
  watching = ('rounds_per_evaluation', 'test_examples', 'rounds_per_checkpoint')
  for name, saved in published.items():
    run = get_run(**saved['run'])
    assert run.name == name
    assert run.to_json() == saved['run']
    # The settings are those that these names ask for.
    differing = {
      key: (value, saved['experiment'][key])
      for key, value in run.settings.items()
      if key not in (*watching, 'update_rounds')
      and saved['experiment'].get(key)
      and saved['experiment'][key] != value
    }
    assert not differing, name


def test_every_published_threshold_comes_from_a_published_run():
  published = published_runs.read()
  for saved in published.values():
    run = get_run(**saved['run'])
    source = run.threshold_run
    # Some rows and variants give it.
    is_given = 'clipping_norm' in run.settings
    if run.algorithm in ('ce_fed_avg', 'dp_fed_avg') and not is_given:
      assert source.name in published
    else:
      assert source is None


def test_a_threshold_is_that_of_fed_avg_with_the_same_settings():
  run = get_run(_MLP, 'paper', 'dp_fed_avg', 3, ['fixed_size'])
  assert run.name == (
    'mnist-label_skew_125-mlp-paper-dp_fed_avg-fixed_size-seed3'
  )
  assert run.threshold_run == get_run(_MLP, 'paper', 'fed_avg', 3)
  seeds = ('seed', 'model_seed', 'sampling_seed')
  assert {run.settings[name] for name in seeds} == {3}


def test_a_row_with_ones_own_files_has_a_folder_by_their_names():
  row = dataclasses.replace(
    ROWS['mlp_embedded_digits'],
    name='mine',
    model='my/models.py:create_model',
    split=experiments.Split('/data/mine.npz', 'natural', False, None, None),
  )
  run = NamedRun(row, SCALES['demo'], 'ce_fed_avg')
  with pytest.raises(ValueError, match='must have a `client_learning_rate`'):
    _ = run.settings
  row = dataclasses.replace(row, client_learning_rate=0.2)
  run = dataclasses.replace(run, row=row)
  assert run.settings['client_learning_rate'] == 0.2
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
  ],
)
def test_names_that_are_not_in_the_table_are_refused(names, message):
  with pytest.raises(ValueError, match=message):
    get_run(*names)
