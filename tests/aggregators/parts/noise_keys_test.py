"""Tests of keys in the state: what repeats, and what never does."""

import collections
import functools

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_clipping import aggregators, privacy
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


def test_a_round_that_is_run_again_has_the_same_bits():
  process = _process(noise_key='drawn')
  state = process.next(process.initialize(), _zeros()).state
  first, second = (process.next(state, _zeros()) for _ in range(2))
  np.testing.assert_array_equal(first.result, second.result)
  tf.nest.map_structure(
    np.testing.assert_array_equal, first.state, second.state
  )


def test_every_round_and_draw_has_noise_of_its_own():
  process = _process(noise_key=(1, 2))
  state, draws = process.initialize(), []
  for _ in range(3):
    for draw in range(3):
      output = process.next(aggregators.with_noise_draw(state, draw), _zeros())
      draws.append(output.result)
    state = output.state
  # Five standard errors, for each of 36 pairs.
  assert np.max(_correlations(draws)) < 5 / np.sqrt(4000)


def test_a_draw_counts_for_one_round():
  process = _process(noise_key=(1, 2))
  state = process.initialize()
  after = [
    process.next(aggregators.with_noise_draw(state, d), _zeros()).state
    for d in (0, 3)
  ]
  tf.nest.map_structure(np.testing.assert_array_equal, *after)


def test_the_key_comes_from_the_state_and_not_from_the_process():
  first, second = _process(noise_key=(1, 2)), _process(noise_key=(3, 4))
  state = first.initialize()
  np.testing.assert_array_equal(
    first.next(state, _zeros()).result, second.next(state, _zeros()).result
  )


def test_adaptive_clipping_takes_a_draw_for_both_of_its_noises():
  process = aggregators.adaptive_dp_mean_factory(
    initial_clipping_norm=1.0,
    noise_multiplier=1.0,
    clients_per_round=20,
    noise_key=(1, 2),
  ).create(_VECTOR)
  state = process.initialize()
  outputs = [
    process.next(aggregators.with_noise_draw(state, d), _zeros())
    for d in (0, 0, 1)
  ]
  np.testing.assert_array_equal(outputs[0].result, outputs[1].result)
  norms = [
    process.next(o.state, _zeros()).measurements['clipping_norm']
    for o in outputs
  ]
  assert norms[0] == norms[1]
  assert norms[0] != norms[2]
  results = [outputs[0].result, outputs[2].result]
  assert np.max(_correlations(results)) < 0.1


def test_a_draw_leaves_other_parts_of_a_state_alone():
  state = collections.OrderedDict(
    draw=np.int64(7),
    aggregator=(
      collections.OrderedDict(
        privacy_noise=collections.OrderedDict(
          key=np.array([1, 2]), round_num=np.int64(3), draw=np.int64(0)
        ),
        inner_agg=(),
      ),
    ),
  )
  changed = aggregators.with_noise_draw(state, 5)
  assert changed['aggregator'][0]['privacy_noise']['draw'] == 5
  assert changed['aggregator'][0]['privacy_noise']['round_num'] == 3
  assert changed['draw'] == 7
  assert state['aggregator'][0]['privacy_noise']['draw'] == 0


def test_a_drawn_key_is_another_in_each_state():
  process = aggregators.gaussian_noise_factory(1.0, noise_key='drawn').create(
    _VECTOR
  )
  states = [process.initialize() for _ in range(20)]
  keys = np.array([state['privacy_noise']['key'] for state in states])
  assert all(len(set(half)) == 20 for half in keys.T)
  draws = [process.next(state, _zeros()).result for state in states[:2]]
  assert np.max(_correlations(draws)) < 0.1


def test_what_has_a_draw_is_told_from_what_repeats_without_one():
  fresh, kept = _process(), _process(noise_key='drawn')
  assert noise_keys.takes_draws(fresh.initialize())
  assert noise_keys.takes_draws({'aggregator': [kept.initialize()]})
  correlated = aggregators.correlated_noise_factory(
    privacy.TreeStrategy(num_rounds=4), 1.0
  ).create(_VECTOR)
  assert not noise_keys.takes_draws(correlated.initialize())
  both = {'one': kept.initialize(), 'two': correlated.initialize()}
  assert not noise_keys.takes_draws(both)


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
