"""Tests of run folders."""

import dataclasses

import pytest

from tasks.experiment import ExperimentConfig
from tasks.run_folder import RunFolder, RunFolderError

_PUBLIC = ExperimentConfig(
  task='embedded_digits',
  partition='iid',
  model='mlp',
  algorithm='fed_avg',
  num_clients=20,
  clients_per_round=2,
  num_rounds=3,
  local_steps=1,
  batch_size=5,
  client_learning_rate=0.1,
)
_PRIVATE = dataclasses.replace(
  _PUBLIC,
  algorithm='dp_fed_avg',
  sampling_seed=None,
  clipping_norm=1.0,
  target_epsilon=1.0,
  target_delta=1e-3,
)


def _begin(folder, config):
  folder.path.mkdir()
  folder.write_json(folder.config, dict(experiment=config.to_json()))


def test_cohorts_of_a_run_without_privacy_can_be_repeated(tmp_path):
  assert _PUBLIC.sampling_seed == 0
  assert RunFolder(tmp_path).with_drawn_seeds(_PUBLIC) == _PUBLIC


def test_cohorts_of_a_private_run_come_from_fresh_entropy(tmp_path):
  assert _PRIVATE.sampling_seed is None
  seeds = {
    RunFolder(tmp_path / name).with_drawn_seeds(_PRIVATE).sampling_seed
    for name in 'abc'
  }
  assert len(seeds) == 3
  assert min(seeds) > 2**64


def test_a_private_run_keeps_the_seed_of_its_cohorts(tmp_path):
  folder = RunFolder(tmp_path / 'run')
  begun = folder.with_drawn_seeds(_PRIVATE)
  _begin(folder, begun)
  resumed = RunFolder(folder.path).with_drawn_seeds(_PRIVATE)
  assert resumed == begun
  with folder.open(resumed, resume=True):
    pass


def test_a_given_seed_stays_and_must_be_that_of_the_run(tmp_path):
  folder = RunFolder(tmp_path / 'run')
  given = dataclasses.replace(_PRIVATE, sampling_seed=7)
  assert folder.with_drawn_seeds(given) == given
  _begin(folder, given)
  assert folder.read_result(_PRIVATE) is None
  other = dataclasses.replace(_PRIVATE, sampling_seed=8)
  with (
    pytest.raises(RunFolderError, match='sampling_seed was 7 and is 8'),
    folder.open(folder.with_drawn_seeds(other), resume=True),
  ):
    pass
