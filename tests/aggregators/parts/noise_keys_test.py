"""Tests of noise from a seed, which repeats, and of fresh noise."""

import functools

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_clipping import aggregators
from tff_clipping.aggregators.parts import gaussian_draws, noise_keys

_VECTOR = tff.TensorType(np.float32, [4000])


def _zeros():
  return [np.zeros(4000, np.float32)]


@functools.cache
def _process(**kwargs):
  return aggregators.dp_mean_factory(
    clipping_norm=1.0, noise_multiplier=1.0, clients_per_round=1, **kwargs
  ).create(_VECTOR)


def _correlations(draws):
  return np.abs(np.corrcoef(draws) - np.eye(len(draws)))


def test_fresh_noise_is_another_whenever_a_round_runs():
  process = _process()
  state = process.initialize()
  draws = [process.next(state, _zeros()).result for _ in range(3)]
  # Five standard errors, for each of 3 pairs.
  assert np.max(_correlations(draws)) < 5 / np.sqrt(4000)


def test_a_seed_gives_each_round_noise_of_its_own_that_repeats():
  process = _process(noise_key=(1, 2))
  state, draws = process.initialize(), []
  for _ in range(3):
    first, second = (process.next(state, _zeros()) for _ in range(2))
    np.testing.assert_array_equal(first.result, second.result)
    draws.append(first.result)
    state = first.state
  assert np.max(_correlations(draws)) < 5 / np.sqrt(4000)


def test_the_seed_comes_from_the_state_and_not_from_the_process():
  first, second = _process(noise_key=(1, 2)), _process(noise_key=(3, 4))
  state = first.initialize()
  np.testing.assert_array_equal(
    first.next(state, _zeros()).result, second.next(state, _zeros()).result
  )


def test_a_state_tells_whether_a_seed_was_given():
  fresh, given = _process(), _process(noise_key=(1, 2))
  assert not noise_keys.is_given({'aggregator': [fresh.initialize()]})
  assert noise_keys.is_given({'aggregator': [given.initialize()]})


def test_the_state_of_another_round_is_told_where_its_noise_repeats():
  given = _process(noise_key=(1, 2))
  first = given.initialize()
  second = given.next(first, _zeros()).state
  noise_keys.check_next_round(first, 1)
  noise_keys.check_next_round(second, 2)
  for state, round_num in ((first, 2), (second, 1), (second, 3)):
    with pytest.raises(
      ValueError, match=f'`state` must be that before round {round_num}'
    ):
      noise_keys.check_next_round(state, round_num)
  noise_keys.check_next_round(_process().initialize(), 7)


@pytest.mark.parametrize('noise_key', ['drawn', (1,), (1.0, 2), 3])
def test_a_seed_of_another_kind_is_refused(noise_key):
  with pytest.raises(TypeError, match='`noise_key` must be a pair of integers'):
    aggregators.gaussian_noise_factory(1.0, noise_key=noise_key)


def test_derived_keys_differ_in_both_halves():
  key = tf.constant([5, 6], tf.int64)
  derived = np.array(
    [
      gaussian_draws.derive_key(key, tf.constant([t, d], tf.int64)).numpy()
      for t in range(20)
      for d in range(5)
    ]
  )
  assert all(len(set(half)) == 100 for half in derived.T)
