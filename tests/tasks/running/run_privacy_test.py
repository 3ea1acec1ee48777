"""Tests of what takes a plan's guarantee from a run."""

import dataclasses
import json

import numpy as np
import pytest
import tensorflow_federated as tff

from tasks import algorithms
from tasks import config as config_lib
from tasks.data import own
from tasks.data.partitions import PartitionConfig
from tasks.running.folder import RunFolder
from tasks.running.run_privacy import RunPrivacy, find_caveats
from tests import processes
from tests.privacy.ledgers import charge
from tests.tasks.small_runs import DP_FED_AVG
from tff_clipping import aggregators, privacy
from tff_clipping.privacy.accounting import rounding
from tff_clipping.programs.checks import records

_TAKE_TURNS = dict(mechanism='blt', sampling='min_separation', min_separation=5)
_GROUPS = _TAKE_TURNS | dict(mechanism='banded', sampling='grouped_poisson')


def _task(test_is_of_clients=False, partition_name='iid'):
  created = own.create_task(
    'numbers',
    PartitionConfig(partition_name, num_clients=2),
    **dict(x=np.zeros([4, 1]), y=np.arange(4) % 2),
    **dict(x_test=np.ones([2, 1]), y_test=np.arange(2)),
  )
  return dataclasses.replace(created, test_is_of_clients=test_is_of_clients)


def _process(factory):
  return factory.create(tff.TensorType(np.float32, [2]))


_CHECKED = _process(
  aggregators.dp_mean_factory(
    clipping_norm=1.0, noise_multiplier=4.0, clients_per_round=8
  )
)


def _find(changes, exact_norm=None, process=_CHECKED, **of_task):
  asked = config_lib.Config(**{**DP_FED_AVG, **changes})
  return find_caveats(asked, _task(**of_task), exact_norm, process)


_BY_HAND = aggregators.difference_clipping_factory(
  1.0, aggregators.gaussian_noise_factory(4.0)
)
_WITHOUT_NOISE = dict(
  algorithm='ce_fed_avg',
  sampling='fixed_size',
  target_epsilon=None,
  target_delta=None,
)


@pytest.mark.parametrize(
  ('changes', 'others', 'words'),
  [
    # A run that keeps its secrets.
    ({}, {}, []),
    (_TAKE_TURNS, {}, []),
    (dict(model_seed=1), {}, []),
    (dict(seed=1), {}, []),
    # A known order of turns takes nothing away.
    (_TAKE_TURNS | dict(sampling_seed=1), {}, []),
    (dict(sampling_seed=0), {}, ['the seed of the cohorts was given']),
    (*(_GROUPS | dict(sampling_seed=1), {}), ['the seed of the cohorts']),
    (dict(simulation_diagnostics=True), {}, ['exact figures of the clients']),
    (dict(audit_canaries=100), {}, ['the run was audited']),
    (
      *({}, dict(exact_norm='a run', test_is_of_clients=True)),
      ['the clipping norm is', 'the test set has examples of the clients'],
    ),
    ({}, dict(partition_name='class_balanced'), ['made up by a split']),
    ({}, dict(process=_process(_BY_HAND)), [records.UNCHECKED]),
    # Without a plan there is none to lose.
    (_WITHOUT_NOISE, dict(exact_norm='a run', test_is_of_clients=True), []),
  ],
)
def test_what_takes_the_guarantee_away_is_said(changes, others, words):
  found = _find(changes, **others)
  assert len(found) == len(words)
  for clause, expected in zip(found, words, strict=True):
    assert expected in clause


def test_nothing_takes_the_guarantee_from_the_last_run_of_the_demo():
  ended = processes.run_python(
    *('-m', 'tasks.train', '--print_settings'),
    '--flagfile=tasks/flagfiles/demo/private.flags',
  )
  asked = config_lib.Config(**json.loads(ended.output))
  demo = _task(partition_name=asked.partition)
  assert find_caveats(asked, demo, None, _CHECKED) == ()
  assert asked.target_delta < 1 / asked.num_clients


def test_privacy_json_of_a_run_that_is_killed_promises_no_less(tmp_path):
  settings = DP_FED_AVG | dict(aggregator='mine.py:f', sampling='paper')
  config = config_lib.Config(**settings)
  plan = algorithms.find_plan(config)
  before, folder = RunFolder(tmp_path / 'before'), RunFolder(tmp_path / 'run')
  for each in (before, folder):
    each.path.mkdir()
  charge(before.ledger, [1, 2], plan)
  source = {'exact': None, 'ledger': str(before.ledger)}
  folder.write_json(folder.config, dict(clipping_norm_source=source))
  with RunPrivacy(config, folder, plan, ()).open_ledger():
    written = json.loads(folder.privacy.read_text())
  # All rounds count, though none has been run.
  both = privacy.compose_together([(plan, 2), (plan, 2)])
  assert rounding.format_up(both.epsilon) in written['with_clipping_norm']
  assert written['epsilon'] == plan.epsilon > written['paper_epsilon']
  assert 'This was not checked.' in written['aggregation']
  assert 'does not hold for cohorts of a fixed size' in written['aggregation']


def test_caveats_of_a_run_that_fails_are_in_its_privacy_json(tmp_path):
  config = config_lib.Config(**DP_FED_AVG)
  of_run = RunPrivacy(
    config, RunFolder(tmp_path), algorithms.find_plan(config), ()
  )
  with (
    pytest.raises(RuntimeError, match='It failed'),
    of_run.open_ledger() as ledger,
  ):
    ledger.add_caveats(['the data changed'])
    raise RuntimeError('It failed.')
  written = json.loads((tmp_path / 'privacy.json').read_text())
  assert written['caveats'] == ['the data changed']
