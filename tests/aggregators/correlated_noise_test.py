"""Tests of `correlated_noise_factory` and the mean with it."""

import collections
import functools
import math

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests import noise_strategies
from tests.aggregators.one_round import (
  KS_LIMIT,
  first_round,
  ks_statistic,
  rounds,
)
from tff_clipping import aggregators, privacy
from tff_clipping.aggregators.noise import stream
from tff_clipping.aggregators.server_noise import strategy_digest
from tff_clipping.privacy import correlated_noise

_SIZE = 20_000
_VECTOR = tff.TensorType(np.float32, [_SIZE])
_STDDEV = 0.5

_STRATEGIES = {
  'identity': privacy.identity_strategy(num_rounds=6),
  'banded': noise_strategies.banded(6),
  'blt': noise_strategies.two_buffers(6),
}


# The identity has the bits of independent noise, as a test here tells.
@pytest.fixture(name='strategy', params=['banded', 'blt'])
def _strategy(request):
  return _STRATEGIES[request.param]


@functools.cache
def _process(strategy, noise_key=None):
  """Returns a process that adds the noise to a sum of vectors."""
  return aggregators.correlated_noise_factory(
    strategy, _STDDEV, noise_key=noise_key
  ).create(_VECTOR)


def test_type_signature():
  process = aggregators.correlated_noise_factory(
    _STRATEGIES['banded'], 1.0
  ).create(tff.TensorType(np.float32, [3]))
  state = (
    '<privacy_noise=<round_num=int64,slots=<float64[2,3]>>,inner_agg=<>>@SERVER'
  )
  assert process.next.type_signature.compact_representation() == (
    f'(<state={state},value={{float32[3]}}@CLIENTS> -> '
    f'<state={state},result=float32[3]@SERVER,'
    'measurements=<noise_stddev=float32,strategy_digest=str>@SERVER>)'
  )


@pytest.mark.parametrize('num_clients', [0, 3])
def test_noise_is_gaussian_with_covariance_as_intended(strategy, num_clients):
  process = _process(strategy)
  zeros = [np.zeros(_SIZE, np.float32)] * num_clients
  outputs = rounds(process, [zeros] * 6)
  noise = np.array([output.result for output in outputs], np.float64)
  # C noise / stddev is white: its sample covariance is that of independent
  # draws, each element of which is Gaussian around 0, or 1 on the diagonal.
  white = (
    np.linalg.solve(noise_strategies.inverse_matrix(strategy.recurrence), noise)
    / _STDDEV
  )
  assert ks_statistic(white, 1.0) < KS_LIMIT
  assert ks_statistic(white, 0.9) > KS_LIMIT
  errors = (white @ white.T / _SIZE - np.eye(6)) * math.sqrt(_SIZE)
  errors[np.diag_indices(6)] /= math.sqrt(2)
  # Over 21 Gaussians, exceeded once in a million runs.
  assert np.max(np.abs(errors)) < 5.5
  # What would be there with the noise of another strategy.
  other = noise / _STDDEV
  errors = (other @ other.T / _SIZE - np.eye(6)) * math.sqrt(_SIZE)
  assert np.max(np.abs(errors)) > 5.5


@pytest.mark.slow
def test_identity_is_gaussian_noise_bit_for_bit():
  key = (7, -8)
  value_type = tff.to_type(
    collections.OrderedDict(b=(np.float32, [50]), a=(np.float64, [2, 3]))
  )
  runs = [
    rounds(factory.create(value_type), [[]] * 3)
    for factory in (
      aggregators.gaussian_noise_factory(0.3, noise_key=key),
      aggregators.correlated_noise_factory(
        _STRATEGIES['identity'], 0.3, noise_key=key
      ),
    )
  ]
  for expected, found in zip(*runs, strict=True):
    for name in 'ab':
      np.testing.assert_array_equal(found.result[name], expected.result[name])


def test_a_run_goes_on_from_a_state_that_was_kept():
  strategy = _STRATEGIES['blt']
  process = _process(strategy, (1, 2))
  *_, third, fourth = rounds(process, [[]] * 4)
  # As a checkpoint does: plain arrays, and a process that is built anew.
  state = tf.nest.map_structure(np.array, third.state)
  rebuilt = _process.__wrapped__(strategy, (1, 2))
  np.testing.assert_array_equal(rebuilt.next(state, []).result, fourth.result)


def test_one_round_more_than_planned_is_refused(strategy):
  process = _process(strategy)
  *_, last = rounds(process, [[]] * 6)
  with pytest.raises(tf.errors.InvalidArgumentError, match='is for 6 rounds'):
    process.next(last.state, [])


def test_the_rounding_of_earlier_noises_is_paid_for(monkeypatch):
  def measure():
    process = _process.__wrapped__(_STRATEGIES['banded'], (1, 2))
    return np.std(first_round(process, []).result)

  usual = measure()
  # Half of what can be paid for in all.
  half = 1 / (64 * math.sqrt(_SIZE))
  monkeypatch.setattr(stream, 'rounding_shift', lambda _: half)
  assert measure() == pytest.approx(2 * usual, rel=1e-3)


def test_strategies_that_differ_in_a_last_bit_have_other_digests():
  # By decimals, some would be the same and others not.
  coefficients = 0.5, math.nextafter(0.5, 1), math.nextafter(0.5, 0)
  digests = {
    strategy_digest(
      correlated_noise.BandedStrategy(
        num_rounds=3, coefficients=(1.0, each)
      ).recurrence
    )
    for each in coefficients
  }
  assert len(digests) == 3


def test_one_client_changes_the_mechanism_by_at_most_its_sensitivity(strategy):
  # With the same key, the difference of two releases has no noise: that of the
  # neighbours is what C is applied to.
  clipping_norm, rng = 0.7, np.random.default_rng(0)
  process = aggregators.correlated_dp_mean_factory(
    clipping_norm=clipping_norm,
    noise_multiplier=1e-3,
    clients_per_round=1,
    strategy=strategy,
    noise_key=(1, 2),
  ).create(tff.TensorType(np.float32, [3]))
  matrix = np.linalg.inv(noise_strategies.inverse_matrix(strategy.recurrence))
  participation = privacy.Participation(min_separation=2)
  allowed = clipping_norm * strategy.compute_sensitivity(participation)
  others = rng.normal(size=(6, 2, 3)).astype(np.float32)
  updates = [
    *rng.normal(size=(6, 3)) * 10.0 ** rng.integers(-2, 5, (6, 1)),
    [np.nan] * 3,
    [1e30, 0, 0],
    [1, 1, 1],
  ]
  largest = 0.0
  for start, update in [(s, u) for s in (0, 1) for u in updates]:
    released = []
    for sends in (np.array(update, np.float32), np.zeros(3, np.float32)):
      cohorts = [
        [*cohort, sends] if round_num % 2 == start else [*cohort]
        for round_num, cohort in enumerate(others)
      ]
      outputs = rounds(process, cohorts)
      released.append(np.array([output.result for output in outputs], float))
    change = np.linalg.norm(matrix @ (released[0] - released[1]))
    # The sums of float32 are rounded.
    assert change <= allowed * (1 + 1e-5)
    largest = max(largest, change)
  # Some client makes use of all of it.
  assert largest > 0.999 * allowed
