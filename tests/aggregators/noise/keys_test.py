"""Tests of noise from a seed, which repeats, and of fresh noise."""

import functools

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_clipping import aggregators
from tff_clipping.aggregators import pipeline
from tff_clipping.aggregators.noise import keys

_VECTOR = tff.TensorType(np.float32, [4000])


def _zeros():
  return [np.zeros(4000, np.float32)]


@functools.cache
def _process(**kwargs):
  return aggregators.dp_mean_factory(
    clipping_norm=1.0, noise_multiplier=1.0, clients_per_round=1, **kwargs
  ).create(_VECTOR)


def test_a_seed_gives_each_round_noise_of_its_own_that_repeats():
  process = _process(noise_key=(1, 2))
  state, draws = process.initialize(), []
  for _ in range(3):
    first, second = (process.next(state, _zeros()) for _ in range(2))
    np.testing.assert_array_equal(first.result, second.result)
    draws.append(first.result)
    state = first.state
  # Five standard errors, for each of 3 pairs.
  assert np.max(np.abs(np.corrcoef(draws) - np.eye(3))) < 5 / np.sqrt(4000)


def test_the_seed_comes_from_the_state_and_not_from_the_process():
  first, second = _process(noise_key=(1, 2)), _process(noise_key=(3, 4))
  state = first.initialize()
  np.testing.assert_array_equal(
    first.next(state, _zeros()).result, second.next(state, _zeros()).result
  )


def test_a_state_tells_whether_a_seed_was_given():
  fresh, given = _process(), _process(noise_key=(1, 2))
  assert not pipeline.has_seed({'aggregator': [fresh.initialize()]})
  assert pipeline.has_seed({'aggregator': [given.initialize()]})


def test_the_state_of_another_round_is_told_where_its_noise_repeats():
  given = _process(noise_key=(1, 2))
  first = given.initialize()
  second = given.next(first, _zeros()).state
  pipeline.check_next_round(first, 1)
  pipeline.check_next_round(second, 2)
  for state, round_num in ((first, 2), (second, 1), (second, 3)):
    with pytest.raises(
      ValueError, match=f'`state` must be that before round {round_num}'
    ):
      pipeline.check_next_round(state, round_num)
  pipeline.check_next_round(_process().initialize(), 7)


def test_derived_keys_differ_in_both_halves():
  key = tf.constant([5, 6], tf.int64)
  derived = np.array([keys.derive_key(key, t).numpy() for t in range(100)])
  assert all(len(set(half)) == 100 for half in derived.T)


def _draw_keys(count):
  """Returns keys of one graph."""

  @tf.function
  def draw():
    return tf.stack([keys.fresh_key(), keys.fresh_key()])

  return np.reshape([draw().numpy() for _ in range(count)], [-1, 2])


@pytest.fixture
def no_generator(monkeypatch):
  """TensorFlow's generator, whose seed can be searched, gives zeros."""
  monkeypatch.setattr(
    tf.raw_ops,
    'NonDeterministicInts',
    lambda shape, dtype: tf.zeros(shape, dtype),
  )


def test_fresh_keys_differ_whenever_a_graph_runs(no_generator):
  del no_generator
  drawn = _draw_keys(100)
  assert all(len(set(half)) == 200 for half in np.transpose(drawn))
  # Each of the 128 bits is random: it is the same in all with 1e-60.
  bits = np.unpackbits(drawn.view(np.uint8), axis=1)
  assert np.all(bits.any(axis=0) & ~bits.all(axis=0))


def test_fresh_keys_have_all_bits_of_the_systems_entropy(
  no_generator, monkeypatch, tmp_path
):
  del no_generator
  path = tmp_path / 'uuid'
  path.write_text('01234567-89ab-cdef-8000-00000000000a\n')
  monkeypatch.setattr(keys, '_ENTROPY', str(path))
  # The digits of each half, the lowest first; the halves of the other turned.
  word = int('0123456789abcdef'[::-1], 16) ^ int('800000000000000a'[::-1], 16)
  expected = np.array([word] * 2, np.uint64).astype(np.int64)
  np.testing.assert_array_equal(keys.fresh_key(), expected)


def test_without_the_systems_entropy_a_round_fails(monkeypatch, tmp_path):
  monkeypatch.setattr(keys, '_ENTROPY', str(tmp_path / 'none'))
  with pytest.raises(tf.errors.NotFoundError):
    keys.fresh_key()
