"""Tests of settings and flags: kinds, ranges, JSON, rows and what overrides."""

import dataclasses
import json

import numpy as np
import pytest
from absl import flags

from tasks import config, train
from tests import processes
from tests.tasks.small_runs import FED_AVG

_DEMO = '--flagfile=tasks/flagfiles/demo/fed_avg.flags'
_ROW = ('--row=mlp_embedded_digits', '--scale=demo')


def test_each_setting_is_a_flag_of_a_group():
  values = flags.FlagValues()
  train.define_flags(values)
  grouped = [
    flag.name
    for group in config.GROUPS
    for flag in values.get_key_flags_for_module(group)
  ]
  fields = {field.name for field in dataclasses.fields(config.Config)}
  assert set(grouped) == fields | {'row', 'scale', 'variants'}
  # No more than a reader of --help can take in.
  assert len(grouped) <= 53


def test_settings_are_read_back_from_json():
  created = config.Config(**FED_AVG, update_rounds=(0, 1), seed=3)
  # The initial model has the seed unless it has its own.
  assert created.model_seed == 3
  assert config.Config(**FED_AVG, seed=3, model_seed=1).model_seed == 1
  saved = json.loads(json.dumps(created.to_json()))
  assert config.Config(**saved) == created
  assert created.differences(saved) == []
  assert created.differences(saved | {'seed': 4}) == ['seed was 4 and is 3']


def test_values_of_numpy_are_plain_ones():
  plain = config.Config(**FED_AVG, update_rounds=(0, 1))
  of_numpy = config.Config(
    **FED_AVG | dict(num_rounds=np.int64(2), local_steps=np.int32(1)),
    update_rounds=tuple(np.arange(2)),
    simulation_diagnostics=np.bool_(False),
  )
  assert of_numpy == plain
  assert json.dumps(of_numpy.to_json()) == json.dumps(plain.to_json())


@pytest.mark.parametrize(
  ('changes', 'error', 'words'),
  [
    (dict(local_steps=0), ValueError, '`local_steps` must be at least 1, fou'),
    (dict(local_steps=1.5), TypeError, '`local_steps` must be an integer'),
    (dict(local_steps=True), TypeError, '`local_steps` must be an integer'),
    (dict(client_learning_rate=-1), ValueError, 'must be positive and finite'),
    (dict(task=3), TypeError, '`task` must be a string, found 3'),
    (dict(model=3), TypeError, '`model` must be a function or its name, fou'),
    (dict(metrics=(1,)), TypeError, '`metrics` must be a function or its nam'),
    (dict(metrics='mse'), TypeError, '`metrics` must be a sequence, found '),
    (dict(update_rounds=1), TypeError, '`update_rounds` must be a sequence'),
    (dict(num_rounds=[2]), TypeError, '`num_rounds` must be a single value'),
    (dict(seed=-1), ValueError, '`seed` must be at least 0'),
    (dict(target_delta=2.0), ValueError, '`target_delta` must be between 0'),
    (dict(audit_canaries=9), ValueError, 'must be at least 10, found 9'),
    (dict(clipping='some'), ValueError, "`clipping` must be one of 'fixed'"),
    (dict(update_rounds=(-1,)), ValueError, '`update_rounds` must be at lea'),
    (dict(model=None, task=None), ValueError, '`task`, `model` must be given'),
    (dict(learning_rate=1), TypeError, "argument 'learning_rate'"),
  ],
)
def test_a_wrong_value_is_refused(changes, error, words):
  with pytest.raises(error, match=words):
    config.Config(**{**FED_AVG, **changes})


def _parse(*arguments):
  return train.read_flags(train.parse(arguments))


@pytest.mark.parametrize('name', ['output_dir', 'cache_dir', 'data_dir'])
def test_a_folder_may_be_in_the_home_folder(monkeypatch, name):
  monkeypatch.setenv('HOME', '/home/me')
  # No shell expands the ~ of a flag, and nobody that of an argument.
  of_flags, _ = _parse(_DEMO, f'--{name}=~/runs/a')
  of_arguments = config.Config(**FED_AVG | {name: '~/runs/a'})
  for created in (of_flags, of_arguments):
    assert getattr(created, name) == '/home/me/runs/a'


def test_the_last_of_two_flags_counts():
  created, name = _parse(_DEMO, '--num_rounds=7', '--update_rounds=0,6')
  assert (created.num_rounds, created.update_rounds) == (7, (0, 6))
  assert created.local_steps == 8
  assert name is None


def test_flags_override_a_row():
  created, name = _parse(*_ROW, '--algorithm=fed_avg', '--num_rounds=20')
  assert (created.num_rounds, created.clients_per_round) == (20, 100)
  # As far as there are rounds.
  assert created.update_rounds == (0, 2, 8, 16)
  assert name is None
  folder = 'runs/embedded_digits-label_skew_8-mlp-demo-fed_avg-seed0'
  assert created.output_dir == folder
  # One of the two sets the noise.
  created, _ = _parse(*_ROW, '--algorithm=dp_fed_avg', '--noise_multiplier=2')
  assert (created.target_epsilon, created.noise_multiplier) == (None, 2.0)


def test_a_run_of_the_table_keeps_its_name_where_it_is_watched_otherwise():
  created, name = _parse(
    *(*_ROW, '--algorithm=ce_fed_avg', '--seed=2', '--rounds_per_checkpoint=1'),
    *('--output_dir=here', '--data_dir=there'),
  )
  assert name == dict(
    row='mlp_embedded_digits',
    scale='demo',
    algorithm='ce_fed_avg',
    seed=2,
    variants=(),
  )
  assert created.seed == created.model_seed == created.sampling_seed == 2


def test_a_run_with_another_norm_or_test_set_is_not_that_of_the_table(tmp_path):
  row = (*_ROW, '--algorithm=ce_fed_avg')
  source = f'--clipping_norm_from={tmp_path}'
  own = dict(row='mlp_embedded_digits', scale='demo', algorithm='fed_avg')
  for given_by, is_of_the_table in (
    (own, True),
    (own | dict(seed=1), False),
    (own | dict(row='mlp_that_went'), False),
    (None, False),
  ):
    saved = dict(experiment=FED_AVG, run=given_by)
    (tmp_path / 'config.json').write_text(json.dumps(saved))
    assert (_parse(*row, source)[1] is not None) == is_of_the_table
  (tmp_path / 'config.json').unlink()
  # As before the run that gives the norm.
  for other in (source, '--test_examples=10'):
    assert _parse(*row, other)[1] is None


@pytest.mark.parametrize('algorithm', ['fed_avg', 'ce_fed_avg', 'dp_fed_avg'])
def test_the_demo_is_the_smallest_row(algorithm):
  own = ('--output_dir=x', '--model_seed=0', '--sampling_seed=0')
  demo, _ = _parse(f'--flagfile=tasks/flagfiles/demo/{algorithm}.flags', *own)
  row, _ = _parse(*_ROW, f'--algorithm={algorithm}', *own)
  # The demo's figures are of exact updates.
  assert dataclasses.replace(demo, simulation_diagnostics=False) == row


@pytest.mark.parametrize(
  ('arguments', 'words'),
  [
    ((_DEMO, '--update_rounds=0,x'), "flag --update_rounds=0,x: .*'x'"),
    ((_DEMO, 'seed=0'), "Only flags are taken, found 'seed=0'"),
    (('--scale=demo',), '`scale` and `variants` must be given with `row`'),
    (('--row=mlp_embedded_digits',), '`scale` must be given with `row`'),
    (_ROW, '`algorithm` must be given with `row`'),
    (('--algorithm=fed_avg',), '`task`, `model`, `num_rounds`, .*must be giv'),
    ((*_ROW, '--algorithm=x'), "`algorithm` must be one of .*'x'"),
  ],
)
def test_what_is_missing_or_wrong_is_named(arguments, words):
  with pytest.raises((ValueError, flags.Error), match=words):
    _parse(*arguments)


def test_help_lists_the_flags_in_groups():
  ended = processes.run_python('-m', 'tasks.train', '--help')
  assert ended.code == 0
  places = [ended.output.index(f'\n{group}:') for group in config.GROUPS]
  assert places == sorted(places)


def test_settings_are_printed_without_training(tmp_path):
  ended = processes.run_python(
    *('-m', 'tasks.train', _DEMO, '--print_settings'),
    f'--output_dir={tmp_path / "run"}',
  )
  assert ended.code == 0, ended.errors
  assert json.loads(ended.output)['local_steps'] == 8
  assert ended.errors == ''
  assert not (tmp_path / 'run').exists()


def test_settings_that_do_not_go_together_are_not_printed():
  ended = processes.run_python(
    *('-m', 'tasks.train', _DEMO, '--print_settings', '--clipping_norm=3'),
  )
  assert (ended.code, ended.output) == (2, '')
  assert ended.errors.startswith('Error: --clipping_norm must be given for')
