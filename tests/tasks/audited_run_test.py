"""Tests of runs with canaries among their clients."""

import dataclasses
import json

import pytest

from tasks import (
  experiment,
  plans,
  run_aggregators,
  run_folder,
  run_parts,
  runner,
)
from tff_clipping import aggregators
from tff_clipping.privacy import Relation
from tff_clipping.programs.run_audit import RunAudit

# Canaries and clients, 240 of them, half of which are in each cohort.
_CONFIG = dict(
  task='embedded_digits',
  partition='label_skew',
  num_clients=40,
  examples_per_client=10,
  model='mlp',
  algorithm='dp_fed_avg',
  clients_per_round=20,
  num_rounds=2,
  local_steps=2,
  batch_size=5,
  client_learning_rate=0.1,
  clipping_norm=1.0,
  noise_multiplier=20.0,
  target_delta=1e-3,
  sampling='poisson',
  audit_canaries=100,
)


@pytest.fixture(name='cache_dir', scope='module')
def _cache_dir(tmp_path_factory):
  return tmp_path_factory.mktemp('cache')


def _config(**changes):
  return experiment.ExperimentConfig(**{**_CONFIG, **changes})


def _run(folder, cache_dir, **changes):
  return runner.run(
    _config(**changes), run_folder.RunFolder(folder), cache_dir=str(cache_dir)
  )


def _json(path):
  return json.loads(path.read_text())


def _without_noise(config, plan, model_fn):
  del model_fn
  parameters = plan.aggregator_parameters._asdict() | {'noise_multiplier': 1e-6}
  return aggregators.dp_mean_factory(
    clipping_norm=config.clipping_norm,
    **parameters,
    noise_key=aggregators.draw_noise_key(),
  )


def _without_clip(config, plan, model_fn):
  del model_fn
  parameters = plan.aggregator_parameters._asdict()
  parameters['noise_multiplier'] *= 1e-4
  return aggregators.dp_mean_factory(
    clipping_norm=1e4 * config.clipping_norm,
    **parameters,
    noise_key=aggregators.draw_noise_key(),
  )


def test_an_audited_run_says_what_it_shows_and_that_it_is_not_private(
  tmp_path, cache_dir
):
  folder = tmp_path / 'run'
  # With coins of its own, one in twenty sound runs would be refuted.
  message = _run(
    folder, cache_dir, audit_seed=1, sampling_seed=2, noise_seed=3
  ).message
  assert 'The audit does not refute the plan: with 95% confidence' in message
  words = 'canaries are among its clients'
  for text in (
    message,
    _json(folder / 'privacy.json')['description'],
    (folder / 'ledger.jsonl').read_text().splitlines()[0],
    _json(folder / 'result.json')['message'],
  ):
    assert 'Not private as it was run: ' in text
    assert words in text
  plan = _json(folder / 'privacy.json')
  # The chance of a client to be in a round is that without canaries.
  assert (plan['num_clients'], plan['clients_per_round']) == (240, 120)
  found = _json(folder / 'audit' / 'audit.json')
  assert found['num_canaries_in'] + found['num_canaries_out'] == 200
  assert found['num_releases'] == 2
  assert set(found['attacks']) == {
    'all_releases',
    'successive_releases',
    'final_model',
  }
  assert found['claimed_epsilon'] == pytest.approx(plan['epsilon'])
  assert not found['is_refuted']


@pytest.mark.slow
@pytest.mark.parametrize('broken', [_without_noise, _without_clip])
def test_a_broken_pipeline_is_refuted(tmp_path, cache_dir, monkeypatch, broken):
  monkeypatch.setattr(run_aggregators, 'create_aggregator', broken)
  message = _run(tmp_path / 'run', cache_dir).message
  assert 'The audit refutes the plan' in message
  found = _json(tmp_path / 'run' / 'audit' / 'audit.json')
  assert found['attacks']['all_releases']['is_refuted']
  assert found['gaussian_epsilon_lower_bound'] > found['claimed_epsilon']


@pytest.mark.slow
def test_a_resumed_run_ends_like_one_that_never_stopped(
  tmp_path, cache_dir, monkeypatch
):
  settings = dict(
    num_rounds=3,
    rounds_per_checkpoint=2,
    audit_seed=1,
    sampling_seed=2,
    noise_seed=3,
  )
  _run(tmp_path / 'whole', cache_dir, **settings)
  record = RunAudit.record_release

  def killed(self, round_num, products):
    record(self, round_num, products)
    if round_num == 3:
      raise RuntimeError('killed')

  with monkeypatch.context() as patch:
    patch.setattr(RunAudit, 'record_release', killed)
    with pytest.raises(RuntimeError, match='killed'):
      _run(tmp_path / 'stopped', cache_dir, **settings)
  assert not (tmp_path / 'stopped' / 'audit' / 'audit.json').exists()
  # And once more, when there is nothing left to do.
  for _ in range(2):
    _run(tmp_path / 'stopped', cache_dir, **settings)
    assert _json(tmp_path / 'stopped' / 'audit' / 'audit.json') == _json(
      tmp_path / 'whole' / 'audit' / 'audit.json'
    )


def test_the_canaries_of_a_run_are_its_own(tmp_path):
  folder = run_folder.RunFolder(tmp_path / 'run')
  drawn = folder.with_drawn_seeds(_config())
  assert drawn.audit_seed != folder.with_drawn_seeds(_config()).audit_seed
  folder.path.mkdir()
  folder.write_json(folder.config, dict(experiment=drawn.to_json()))
  assert folder.with_drawn_seeds(_config()) == drawn
  with folder.open(_config(), resume=True):
    pass
  # A run that is not audited has none.
  plain = dataclasses.replace(_config(), audit_canaries=None)
  assert folder.with_drawn_seeds(plain).audit_seed is None


def test_the_papers_cohorts_are_audited_as_cohorts_of_a_fixed_size(tmp_path):
  config = _config(sampling='paper', audit_seed=0)
  plan = plans.create_plan(config, 40)
  task = run_parts.create_task(
    config, data_dir=None, cache_dir=str(tmp_path / 'cache')
  )
  audit = run_parts.create_audit(
    config,
    plan,
    run_folder.RunFolder(tmp_path),
    run_parts.create_model_fn(config, task),
  )
  assert audit.canaries.relation is Relation.REPLACE_ONE
  assert audit.canaries.num_canaries == 200
  assert plan.actual_epsilon > plan.epsilon
