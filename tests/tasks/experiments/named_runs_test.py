"""Tests of runs by their names in the table of experiments."""

import dataclasses

import pytest

from tasks.experiments import experiment_table, named_runs
from tests.tasks import published_runs

_MLP = 'table3_mlp_mnist_noniid'


def test_published_runs_are_called_what_ran():
  published = published_runs.read()
  assert published
  for name, config in published.items():
    run = named_runs.get_run(**config['run'])
    assert run.name == name
    assert run.to_json() == config['run']
    # The settings are those that these names ask for.
    settings = {
      key: value
      for key, value in run.settings.items()
      if key not in named_runs.WATCHING and config['experiment'].get(key)
    }
    differing = {
      key: (value, config['experiment'][key])
      for key, value in settings.items()
      if config['experiment'][key] != value
    }
    assert not differing, name


def test_every_published_threshold_comes_from_a_published_run():
  published = published_runs.read()
  for config in published.values():
    run = named_runs.get_run(**config['run'])
    source = run.threshold_run
    # Some variants give it.
    is_given = 'clipping_norm' in run.values
    if run.algorithm in ('ce_fed_avg', 'dp_fed_avg') and not is_given:
      assert source.name in published
    else:
      assert source is None


def test_a_threshold_is_that_of_fed_avg_with_the_same_settings():
  run = named_runs.get_run(_MLP, 'paper', 'dp_fed_avg', 3, ['fixed_size'])
  assert run.name == (
    'mnist-label_skew_125-mlp-paper-dp_fed_avg-fixed_size-seed3'
  )
  assert run.threshold_run == named_runs.get_run(_MLP, 'paper', 'fed_avg', 3)


def test_a_row_with_ones_own_files_has_a_folder_by_their_names():
  row = dataclasses.replace(
    experiment_table.ROWS['mlp_embedded_digits'],
    name='mine',
    model='my/models.py:create_model',
    split=experiment_table.Split(
      '/data/mine.npz', 'natural', False, None, None, 'mine'
    ),
  )
  scale = experiment_table.SCALES['demo']
  run = named_runs.NamedRun(row, scale, 'ce_fed_avg')
  with pytest.raises(ValueError, match='must have a `client_learning_rate`'):
    _ = run.values
  row = dataclasses.replace(
    row, client_learning_rate=experiment_table.Value(0.2, 'a search of mine')
  )
  run = dataclasses.replace(run, row=row)
  assert run.values['client_learning_rate'] == (0.2, 'a search of mine')
  name = 'mine-natural-models_create_model-demo-{}-seed0'
  assert run.name == name.format('ce_fed_avg')
  assert run.threshold_run.name == name.format('fed_avg')


@pytest.mark.parametrize(
  ('row', 'scale', 'rounds'),
  [(_MLP, 'paper', 24), ('mlp_embedded_digits', 'demo', 5)],
)
def test_clients_take_turns_in_as_many_rounds_as_the_row_has_room_for(
  row, scale, rounds
):
  run = named_runs.get_run(row, scale, 'dp_fed_avg', variants=['banded'])
  assert run.settings['min_separation'] == rounds


def test_a_seed_is_that_of_the_split_the_model_and_the_cohorts():
  settings = named_runs.get_run(_MLP, 'paper', 'fed_avg', 3).settings
  assert settings['seed'] == 3
  assert settings['model_seed'] == 3
  assert settings['sampling_seed'] == 3


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
    named_runs.get_run(*names)
