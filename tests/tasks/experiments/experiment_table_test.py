"""Tests that the table of experiments is the paper's."""

import dataclasses

import pytest

from tasks.algorithms import experiment
from tasks.data.datasets import registry
from tasks.experiments import experiment_table
from tasks.experiments.experiment_table import ROWS, SCALES, VARIANTS
from tasks.experiments.named_runs import NamedRun
from tasks.models import keras_models
from tff_clipping import privacy

_PAPERS = experiment_table.PUBLISHED_ROWS


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
  return experiment.ExperimentConfig(**settings)


def test_what_older_runs_do_not_say_is_as_by_default():
  defaults = {
    field.name: field.default
    for field in dataclasses.fields(experiment.ExperimentConfig)
  }
  assert experiment_table.DEFAULTS.items() <= defaults.items()


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


@pytest.mark.parametrize(
  'run', _runs(_PAPERS, [SCALES['paper']]), ids=lambda run: run.name
)
def test_values_at_the_papers_scale_are_the_papers(run):
  config = _config(run)
  # Sec. 4.
  assert (config.clients_per_round, config.local_steps) == (80, 32)
  assert config.batch_size == 64
  if config.task == 'emnist_digits':
    # Every one of the 240,000 digits is held by one client.
    assert config.num_clients * config.examples_per_client == 240_000
  else:
    assert config.num_clients == 1920
  if run.row.table != 2:
    assert config.num_clients == 1920
  if config.is_private:
    assert config.target_delta == 1e-5


@pytest.mark.parametrize('row', _PAPERS, ids=lambda row: row.name)
def test_mnist_stands_for_emnist_and_changes_nothing_else(row):
  found = [r for r in ROWS.values() if r.stands_for == row.name]
  found = [r for r in found if r.split.task == 'mnist']
  if row.split.task != 'emnist_digits':
    assert not found
    return
  (other,) = found
  for scale in SCALES.values():
    ours, theirs = (
      NamedRun(r, scale, 'ce_fed_avg').settings for r in (other, row)
    )
    assert ours == theirs | {'task': 'mnist'}


@pytest.mark.parametrize('run', _runs(), ids=lambda run: run.name)
def test_every_run_of_the_table_can_be_asked_for(run):
  config = _config(run)
  assert config.task in registry.TASKS
  assert config.model in keras_models.MODELS
  assert all(value.source for value in run.values.values())


@pytest.mark.parametrize('scale', SCALES.values(), ids=lambda scale: scale.name)
def test_the_share_of_clients_in_a_round_is_the_papers(scale):
  for run in _runs(_PAPERS, [scale]):
    full = NamedRun(run.row, SCALES['paper'], run.algorithm).settings
    settings = run.settings
    assert (
      settings['clients_per_round'] * full['num_clients']
      == settings['num_clients'] * full['clients_per_round']
    )


@pytest.mark.parametrize(
  ('noise_multiplier', 'epsilon', 'num_rounds'), experiment_table.PAPERS_NOISE
)
def test_the_papers_noise_on_the_mean_is_that_of_its_cohort(
  noise_multiplier, epsilon, num_rounds
):
  row = ROWS['table3_mlp_mnist_noniid']
  variant = VARIANTS[f'noise_{noise_multiplier}']
  config = _config(
    NamedRun(row, SCALES['reduced'], 'dp_fed_avg', 0, (variant,))
  )
  full = NamedRun(row, SCALES['paper'], 'dp_fed_avg').settings
  of_paper = privacy.calibrate_noise_multiplier(
    **{name: full[name] for name in ('num_clients', 'clients_per_round')},
    num_rounds=num_rounds,
    target_epsilon=epsilon,
    target_delta=row.delta.value,
  )
  assert config.noise_multiplier / config.clients_per_round == pytest.approx(
    of_paper / full['clients_per_round'], rel=1e-3
  )
  assert config.target_epsilon is None


@pytest.mark.parametrize('run', _runs(), ids=lambda run: run.name)
def test_algorithms_of_a_row_differ_in_nothing_else(run):
  config = _config(run).to_json()
  plain = _config(NamedRun(run.row, run.scale, 'fed_avg')).to_json()
  assert {name for name in config if config[name] != plain[name]} <= {
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
  row, scale = ROWS['table3_mlp_mnist_noniid'], SCALES['paper']
  for algorithm in variant.algorithms:
    plain = NamedRun(row, scale, algorithm).settings
    changed = NamedRun(row, scale, algorithm, variants=(variant,))
    _config(changed)
    new = {k: v.value for k, v in variant.settings.items()}
    assert changed.settings == plain | new != plain


def test_models_of_the_settings_are_those_that_can_be_built():
  assert set(experiment.MODELS) == set(keras_models.MODELS)
