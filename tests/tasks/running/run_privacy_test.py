"""Tests of what takes a plan's guarantee from a run."""

import collections

import numpy as np
import pytest

from tasks.algorithms.experiment import ExperimentConfig
from tasks.data import task
from tasks.data.partitions.partition_config import PartitionConfig
from tasks.running.run_privacy import find_caveats
from tests.tasks.small_runs import DP_FED_AVG

_TAKE_TURNS = dict(mechanism='blt', sampling='min_separation', min_separation=5)
_GROUPS = _TAKE_TURNS | dict(mechanism='banded', sampling='grouped_poisson')


def _task(test_is_of_clients=False, partition_name='iid'):
  return task.Task(
    name='numbers',
    train=collections.OrderedDict(
      x=np.zeros([4, 1], np.uint8), y=np.zeros(4, np.int32)
    ),
    partition=PartitionConfig(partition_name, num_clients=2).split(
      np.zeros(4, np.int32)
    ),
    test=collections.OrderedDict(
      x=np.zeros([1, 1], np.uint8), y=np.zeros(1, np.int32)
    ),
    num_classes=1,
    source='made for a test',
    test_is_of_clients=test_is_of_clients,
  )


def _find(
  changes,
  test_is_of_clients=False,
  clipping_norm_source=None,
  is_checked=True,
):
  asked = ExperimentConfig(**{**DP_FED_AVG, **changes})
  return find_caveats(
    asked,
    _task(test_is_of_clients),
    clipping_norm_source,
    is_checked=is_checked,
  )


@pytest.mark.parametrize(
  'changes', [{}, _TAKE_TURNS, dict(model_seed=1), dict(seed=1)]
)
def test_a_run_that_keeps_its_secrets_has_none(changes):
  assert _find(changes) == ()


@pytest.mark.parametrize(
  ('changes', 'words'),
  [
    (dict(noise_seed=1), 'the seed of the noise was given'),
    (dict(sampling_seed=0), 'the seed of the cohorts was given'),
    (_GROUPS | dict(sampling_seed=1), 'the seed of the cohorts was given'),
    (dict(simulation_diagnostics=True), 'exact figures of the clients'),
    (dict(audit_canaries=100), 'the run was audited'),
  ],
)
def test_what_a_setting_takes_away_is_said(changes, words):
  (found,) = _find(changes)
  assert words in found


def test_a_known_order_of_turns_takes_nothing_away():
  assert _find(_TAKE_TURNS | dict(sampling_seed=1)) == ()


def test_exact_figures_that_the_run_rests_on_are_said():
  found = _find({}, test_is_of_clients=True, clipping_norm_source='a run')
  assert [clause.split(' is ')[0] for clause in found] == [
    'the clipping norm',
    'the test set has examples of the clients, and what the model does on it',
  ]


def test_an_aggregator_that_nobody_has_checked_is_said():
  (found,) = _find(dict(aggregator='own:create'), is_checked=False)
  assert 'nobody has checked' in found
  assert _find(dict(aggregator='own:create')) == ()


def test_made_up_clients_are_said():
  asked = ExperimentConfig(**DP_FED_AVG)
  (found,) = find_caveats(asked, _task(partition_name='class_balanced'), None)
  assert 'made up by a split' in found


def test_a_run_without_a_plan_has_none():
  public = dict(
    algorithm='ce_fed_avg',
    sampling='fixed_size',
    target_epsilon=None,
    target_delta=None,
  )
  assert _find(public, test_is_of_clients=True, clipping_norm_source='a') == ()
