"""Tests of runs whose first phase estimates the clipping norm."""

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.privacy.ledgers import read_releases
from tff_clipping import privacy, programs
from tff_clipping.programs.clients import client_sampling

_N, _R, _T = 40, 4, 3


def _model_fn():
  inputs = tf.keras.Input((3,))
  outputs = tf.keras.layers.Dense(1, kernel_initializer='zeros')(inputs)
  return tff.learning.models.from_keras_model(
    tf.keras.Model(inputs, outputs),
    loss=tf.keras.losses.MeanSquaredError(),
    input_spec={
      'x': tf.TensorSpec([None, 3]),
      'y': tf.TensorSpec([None, 1]),
    },
  )


@pytest.fixture(scope='module')
def store(tmp_path_factory):
  rng = np.random.default_rng(0)
  x = rng.normal(size=[8 * _N, 3]).astype(np.float32)
  y = x.sum(axis=1, keepdims=True)
  return programs.write_client_store(
    tmp_path_factory.mktemp('store'),
    'points',
    {'x': x, 'y': y},
    np.split(np.arange(8 * _N), _N),
  )


def _program(folder, store, **settings):
  return programs.build_private_program(
    _model_fn,
    store,
    **dict(
      target_epsilon=20.0,
      target_delta=1e-3,
      num_rounds=_T,
      clients_per_round=10,
      threshold_rounds=_R,
      client_learning_rate=0.1,
      local_steps=2,
      batch_size=4,
      rounds_per_checkpoint=1,
      folder=folder,
    )
    | settings,
  )


def _clipping_norms(folder):
  metrics = pd.read_csv(folder / 'metrics.csv')
  return set(metrics['aggregator/clipping_norm'].dropna())


@pytest.mark.slow
def test_it_estimates_first_and_trains_with_that(tmp_path, store):
  program = _program(tmp_path / 'run', store)
  with pytest.raises(ValueError, match='must be estimated first, by `run`'):
    _ = program.process
  result = program.run()
  assert result.reason is programs.StopReason.FINISHED
  assert result.round_num == _T
  first = pd.read_csv(tmp_path / 'run' / 'threshold' / 'metrics.csv')
  found = first['aggregator/norm_estimate'].iloc[-1]
  assert program.clipping_norm == pytest.approx(found / 4, rel=1e-6)
  (norm,) = _clipping_norms(tmp_path / 'run')
  assert norm == pytest.approx(found / 4, rel=1e-6)
  # One ledger and one epsilon.
  ledger = privacy.read_ledger(tmp_path / 'run')
  assert ledger.num_releases == _R + _T
  assert ledger.epsilon == program.plan.epsilon <= 20.0
  assert not ledger.caveats
  # Nothing is left to do, and nothing is charged.
  again = _program(tmp_path / 'run', store)
  assert again.run().round_num == _T
  assert again.clipping_norm == program.clipping_norm
  assert privacy.read_ledger(tmp_path / 'run').num_releases == _R + _T


class _KilledError(Exception):
  pass


@pytest.mark.slow
@pytest.mark.parametrize('at', [2, _R, _R + 1, _R + 2])
def test_a_run_that_is_stopped_in_a_phase_goes_on(
  tmp_path, store, at, monkeypatch
):
  """Stopped after a charge, and before anything of the round is kept."""
  charge = privacy.PrivacyLedger.charge

  def stop(self, round_num, *args, **kwargs):
    charge(self, round_num, *args, **kwargs)
    if round_num == at:
      raise _KilledError

  folder = tmp_path / 'run'
  with monkeypatch.context() as patched:
    patched.setattr(privacy.PrivacyLedger, 'charge', stop)
    with pytest.raises(_KilledError):
      _program(folder, store).run()
  before = read_releases(folder / 'ledger.jsonl')
  assert len(before) == at
  assert _program(folder, store).run().round_num == _T
  after = read_releases(folder / 'ledger.jsonl')
  # The same bits, which are charged once.
  assert after[:at] == before
  assert len(after) == _R + _T
  assert len(_clipping_norms(folder)) == 1


@pytest.mark.parametrize('num_rounds', [1, _R + _T])
def test_cohorts_of_both_phases_are_on_one_clock(num_rounds, store):
  plan = privacy.PrivacyPlan.from_noise_multiplier(
    num_clients=_N,
    clients_per_round=10,
    num_rounds=_T,
    target_delta=1e-3,
    noise_multiplier=1.0,
  )
  sampler = programs.build_private_sampler(plan, store.client_ids, seed=3)
  later = client_sampling.LaterRounds(sampler, _R)
  assert later.sample(num_rounds) == sampler.sample(_R + num_rounds)
  assert later.sample(num_rounds, 2) == sampler.sample(_R + num_rounds, 2)
  assert later.digest == sampler.digest
  assert later.charged_as == plan.sampler_parameters


@pytest.mark.slow
def test_a_process_with_less_noise_than_the_bits_need_is_refused(
  tmp_path, store
):
  program = _program(tmp_path / 'run', store)
  plan = program.plan
  weak = privacy.PrivacyPlan.from_noise_multiplier(
    num_clients=_N,
    clients_per_round=10,
    num_rounds=_T,
    target_delta=1e-3,
    noise_multiplier=plan.noise_multiplier,
    threshold=privacy.ThresholdPhase(
      num_rounds=_R, noise_multiplier=plan.noise_multiplier
    ),
  )
  bits = program.build_process(programs.build_bits_aggregator(weak))
  with (
    program.open_ledger() as ledger,
    pytest.raises(programs.RoundError, match='must add the noise of the plan'),
  ):
    programs.run_threshold_rounds(
      bits,
      program.sampler,
      ledger,
      programs.Checkpoints(tmp_path / 'checkpoints'),
    )
  assert privacy.read_ledger(tmp_path / 'run').num_releases == 0


def test_one_of_norm_and_rounds_is_given(tmp_path, store):
  for settings in (dict(clipping_norm=1.0), dict(threshold_rounds=None)):
    with pytest.raises(ValueError, match='one of `clipping_norm` and'):
      _program(tmp_path / 'run', store, **settings)
