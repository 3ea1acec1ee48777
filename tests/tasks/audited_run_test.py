"""Tests of runs with canaries among their clients."""

import pytest

from tasks import algorithms
from tests.tasks.small_runs import DP_FED_AVG, read_json, run_small
from tff_clipping import aggregators
from tff_clipping.programs.audit.run_audit import RunAudit

# Canaries and clients, 240 of them, half of which are in each cohort.
_CONFIG = DP_FED_AVG | dict(
  clients_per_round=20,
  local_steps=2,
  target_epsilon=None,
  noise_multiplier=20.0,
  audit_canaries=100,
)


def _run(folder, cache_dir, **changes):
  return run_small({**_CONFIG, **changes}, folder, cache_dir)


# A ledger refuses noise that is recorded to be less than the plan's. These have
# no record, as an aggregator of one's own, of which only an audit tells that.
def _without_noise(config, plan, noise, model_fn):
  del plan, model_fn
  mean = aggregators.fixed_denominator_mean_factory(noise.clients_per_round)
  return aggregators.difference_clipping_factory(config.clipping_norm, mean)


def _without_clip(config, plan, noise, model_fn):
  del plan, model_fn
  stddev = noise.noise_multiplier * config.clipping_norm
  return aggregators.fixed_denominator_mean_factory(
    noise.clients_per_round, aggregators.gaussian_noise_factory(stddev)
  )


@pytest.mark.slow
def test_a_killed_run_is_audited_from_its_beginning_and_says_so(
  tmp_path, cache_dir, monkeypatch
):
  record = RunAudit.record_release

  def killed(self, round_num, products):
    record(self, round_num, products)
    if round_num == 2:
      raise RuntimeError('killed')

  folder = tmp_path / 'run'
  with monkeypatch.context() as patch:
    patch.setattr(RunAudit, 'record_release', killed)
    with pytest.raises(RuntimeError, match='killed'):
      _run(folder, cache_dir)
  assert not (folder / 'audit' / 'audit.json').exists()
  drawn = read_json(folder / 'config.json')['drawn_seeds']
  assert set(drawn) == {'sampling_seed', 'audit_seed'}
  # And once more, when there is nothing left to do.
  messages, audits = [], []
  for _ in range(2):
    messages.append(_run(folder, cache_dir).message)
    assert read_json(folder / 'config.json')['drawn_seeds'] == drawn
    audits.append(read_json(folder / 'audit' / 'audit.json'))
  found = audits[0]
  assert found == audits[1]
  # One in twenty sound runs is refuted.
  assert 'refute' in messages[0]
  assert 'the plan: with 95% confidence' in messages[0]
  plan = read_json(folder / 'privacy.json')
  for text in (
    messages[0],
    plan['description'],
    (folder / 'ledger.jsonl').read_text().splitlines()[0],
    read_json(folder / 'result.json')['message'],
  ):
    assert 'No guarantee as it was run: ' in text
    assert 'canaries are among its clients' in text
  # The chance of a client to be in a round is that without canaries.
  assert (plan['num_clients'], plan['clients_per_round']) == (240, 120)
  # A release that is lost takes the audit, and not the run.
  (folder / 'audit' / 'release_00001.npy').unlink()
  ended = _run(folder, cache_dir)
  assert 'There is no audit: The releases of rounds 1, 2' in ended.message
  assert read_json(folder / 'result.json')['message'] in ended.message
  assert found['num_canaries_in'] + found['num_canaries_out'] == 200
  assert found['num_releases'] == 2
  assert set(found['attacks']) == {
    'all_releases',
    'successive_releases',
    'final_model',
  }
  assert found['claimed_epsilon'] == pytest.approx(plan['epsilon'])
  assert isinstance(found['is_refuted'], bool)


@pytest.mark.slow
@pytest.mark.parametrize('broken', [_without_noise, _without_clip])
def test_a_broken_pipeline_is_refuted(tmp_path, cache_dir, monkeypatch, broken):
  monkeypatch.setitem(algorithms.ALGORITHMS, 'dp_fed_avg', broken)
  message = _run(tmp_path / 'run', cache_dir).message
  assert 'The audit refutes the plan' in message
  found = read_json(tmp_path / 'run' / 'audit' / 'audit.json')
  assert found['attacks']['all_releases']['is_refuted']
  assert found['gaussian_epsilon_lower_bound'] > found['claimed_epsilon']
