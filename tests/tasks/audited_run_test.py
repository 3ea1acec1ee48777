"""Tests of runs with canaries among their clients."""

import dataclasses

import pytest
import tensorflow_federated as tff

from tasks.algorithms import experiment
from tasks.algorithms.gaussian import GaussianFedAvg
from tasks.running import run_folder, run_parts
from tasks.settings.data_folders import DataFolders
from tests.tasks.small_runs import DP_FED_AVG, read_json, run_small
from tff_clipping import aggregators
from tff_clipping.privacy import Relation
from tff_clipping.programs.audit.run_audit import RunAudit

# Canaries and clients, 240 of them, half of which are in each cohort.
_CONFIG = DP_FED_AVG | dict(
  clients_per_round=20,
  local_steps=2,
  target_epsilon=None,
  noise_multiplier=20.0,
  audit_canaries=100,
)


def _config(**changes):
  return experiment.ExperimentConfig(**{**_CONFIG, **changes})


def _run(folder, cache_dir, **changes):
  return run_small({**_CONFIG, **changes}, folder, cache_dir)


class _Unmeasured(tff.aggregators.UnweightedAggregationFactory):
  """Aggregates as another factory does, and measures nothing.

  A ledger refuses noise that is measured to be less than the plan's. This is
  an aggregator of one's own, of which nothing but an audit tells that.
  """

  def __init__(self, inner):
    self._inner = inner

  def create(self, value_type):
    inner = self._inner.create(value_type)

    @tff.federated_computation(
      inner.initialize.type_signature.result,
      tff.FederatedType(value_type, tff.CLIENTS),
    )
    def next_fn(state, value):
      output = inner.next(state, value)
      return tff.templates.MeasuredProcessOutput(
        state=output.state,
        result=output.result,
        measurements=tff.federated_value((), tff.SERVER),
      )

    return tff.templates.AggregationProcess(inner.initialize, next_fn)


def _without_noise(builder, plan, model_fn, user_aggregator):
  del model_fn, user_aggregator
  parameters = plan.aggregator_parameters._asdict() | {'noise_multiplier': 1e-6}
  return _Unmeasured(
    aggregators.dp_mean_factory(
      clipping_norm=builder.config.clipping_norm,
      **parameters,
    )
  )


def _without_clip(builder, plan, model_fn, user_aggregator):
  del model_fn, user_aggregator
  parameters = plan.aggregator_parameters._asdict()
  parameters['noise_multiplier'] *= 1e-4
  return _Unmeasured(
    aggregators.dp_mean_factory(
      clipping_norm=1e4 * builder.config.clipping_norm,
      **parameters,
    )
  )


@pytest.mark.slow
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
    read_json(folder / 'privacy.json')['description'],
    (folder / 'ledger.jsonl').read_text().splitlines()[0],
    read_json(folder / 'result.json')['message'],
  ):
    assert 'No guarantee as it was run: ' in text
    assert words in text
  plan = read_json(folder / 'privacy.json')
  # The chance of a client to be in a round is that without canaries.
  assert (plan['num_clients'], plan['clients_per_round']) == (240, 120)
  found = read_json(folder / 'audit' / 'audit.json')
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
  monkeypatch.setattr(GaussianFedAvg, 'create_aggregator', broken)
  message = _run(tmp_path / 'run', cache_dir).message
  assert 'The audit refutes the plan' in message
  found = read_json(tmp_path / 'run' / 'audit' / 'audit.json')
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
    assert read_json(
      tmp_path / 'stopped' / 'audit' / 'audit.json'
    ) == read_json(tmp_path / 'whole' / 'audit' / 'audit.json')


def test_the_canaries_of_a_run_are_its_own(tmp_path):
  folder = run_folder.RunFolder(tmp_path / 'run')
  drawn = folder.draw_seeds(_config())
  assert drawn['audit_seed'] != folder.draw_seeds(_config())['audit_seed']
  folder.path.mkdir()
  folder.write_json(
    folder.config, dict(experiment=_config().to_json(), drawn_seeds=drawn)
  )
  folder.ledger.touch()
  assert folder.draw_seeds(_config()) == drawn
  with folder.open(_config(), resume=True):
    pass
  # A run that is not audited has none.
  plain = dataclasses.replace(_config(), audit_canaries=None)
  assert 'audit_seed' not in folder.draw_seeds(plain)


def test_the_papers_cohorts_are_audited_as_cohorts_of_a_fixed_size(tmp_path):
  config = _config(sampling='paper', audit_seed=0)
  plan = config.builder.find_plan(40)
  parts = run_parts.create_run_parts(config, DataFolders())
  audit = parts.create_audit(plan, tmp_path, parts.create_model_fn())
  assert audit.canaries.relation is Relation.REPLACE_ONE
  assert audit.canaries.num_canaries == 200
  assert plan.actual_epsilon > plan.epsilon
