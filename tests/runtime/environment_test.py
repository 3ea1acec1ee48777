"""Tests of the text that tells one environment from another."""

import re

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_clipping import aggregators, learning, runtime
from tff_clipping.runtime import environment


def _of(run):
  """Returns the environment of what is run, twice."""
  texts = []
  for _ in range(2):
    with environment.recording() as computed:
      run()
    texts.append(environment.describe(computed))
  return texts


def _repeats(run):
  first, second = _of(run)
  return first == second


def test_it_is_one_line_that_stays_as_it_is():
  assert environment.describe({'a'}) == environment.describe({'a'})
  assert environment.describe({'a'}) != environment.describe({'b'})
  assert '\n' not in environment.describe({'a'})


def test_what_is_not_known_to_repeat_is_never_the_same():
  for computed in (set(), {'a', None}):
    assert environment.describe(computed) != environment.describe(computed)


def test_two_recordings_have_what_is_computed_in_both():
  with environment.recording() as first:
    with environment.recording() as second:
      environment.record('a')
    environment.record('b')
  assert (first, second) == ({'a', 'b'}, {'a'})
  assert not environment.is_recording()


@pytest.mark.parametrize(
  ('name', 'is_other'),
  [
    ('TF_ENABLE_ONEDNN_OPTS', True),
    ('XLA_FLAGS', True),
    ('ONEDNN_MAX_CPU_ISA', True),
    # What is written to the log decides about no bits.
    ('TF_CPP_MIN_LOG_LEVEL', False),
    ('HOME', False),
  ],
)
def test_the_settings_of_tensorflow_are_a_part_of_it(
  monkeypatch, name, is_other
):
  before = environment.describe({'a'})
  monkeypatch.setenv(name, 'secret')
  assert (environment.describe({'a'}) != before) == is_other
  assert 'secret' not in environment.describe({'a'})


@pytest.mark.parametrize(
  ('parameters', 'is_other'),
  [
    ({'num_shards': 2}, True),
    ({'threads_per_client': 2}, True),
    # Clients are added up in their order, whatever the threads do.
    ({'num_threads': 3}, False),
  ],
)
def test_what_decides_about_bits_in_a_context_is_a_part_of_it(
  parameters, is_other
):
  before = environment.describe({'a'})
  runtime.set_default_context(**parameters)
  assert (environment.describe({'a'}) != before) == is_other


def test_versions_and_machine_are_a_part_of_it(monkeypatch):
  text = environment.describe({'a'})
  for each in (*environment.versions().values(), environment.machine()):
    assert each in text
  monkeypatch.setattr(environment.os, 'sched_getaffinity', lambda _: {0, 1, 2})
  assert 'CPUs 3,' in environment.describe({'a'})


def test_gpus_are_not_known_to_repeat(monkeypatch):
  monkeypatch.setattr(environment, '_num_gpus', lambda: 1)
  assert environment.describe({'a'}) != environment.describe({'a'})
  here = environment.of_process()
  texts = [environment.describe_workers([here]) for _ in range(2)]
  assert texts[0] != texts[1]


def test_workers_are_named_where_they_are_others():
  here = environment.of_process()
  assert environment.describe_workers([here, here]) == ''
  other = 'another processor, GPUs 0'
  assert environment.describe_workers([other]) == f', clients on {other}'
  # Nobody knows which client comes to which, so no round is the same again.
  texts = [environment.describe_workers([here, other]) for _ in range(2)]
  assert texts[0] != texts[1]
  assert all(re.match(', clients on 2 kinds of work', text) for text in texts)


def _model_fn(*layers):
  inputs = x = tf.keras.Input([2])
  for layer in layers:
    x = layer()(x)
  return tff.learning.models.from_keras_model(
    tf.keras.Model(inputs, tf.keras.layers.Dense(1)(x)),
    loss=tf.keras.losses.MeanSquaredError(),
    input_spec=(tf.TensorSpec([None, 2]), tf.TensorSpec([None, 1])),
  )


def _round(*layers, noise_key='drawn', rate=0.1):
  """Returns what runs a round of a model with some layers."""
  process = learning.build_fed_avg(
    lambda: _model_fn(*layers),
    local_steps=1,
    batch_size=1,
    client_learning_rate=rate,
    model_aggregator=aggregators.dp_mean_factory(
      clipping_norm=1.0,
      noise_multiplier=1.0,
      clients_per_round=1,
      noise_key=noise_key,
    ),
  )
  data = tf.data.Dataset.from_tensors((tf.ones([2]), tf.ones([1])))
  state = process.initialize()
  return lambda: process.next(state, [data])


def test_a_round_of_a_model_is_told_from_one_of_another():
  texts = [
    _of(_round(*layers, rate=rate))[0]
    for layers, rate in (
      ((), 0.1),
      # Another process of the same kind.
      ((), 0.1),
      ((tf.keras.layers.ReLU,), 0.1),
      ((), 0.2),
    )
  ]
  assert texts[0] == texts[1]
  assert len({*texts}) == 3


def test_a_round_that_draws_random_numbers_is_not_known_to_repeat():
  assert _repeats(_round())
  assert not _repeats(_round(lambda: tf.keras.layers.Dropout(0.5)))
  # Fresh noise.
  assert not _repeats(_round(noise_key=None))


@pytest.mark.parametrize('is_drawn', [True, False])
def test_a_generator_of_random_numbers_is_known_to_repeat_by_its_seed(is_drawn):
  @tff.tensorflow.computation
  def draw():
    generator = (
      tf.random.Generator.from_non_deterministic_state()
      if is_drawn
      else tf.random.Generator.from_seed(1)
    )
    return generator.normal([])

  assert _repeats(draw) != is_drawn


@pytest.mark.parametrize('is_shuffled', [True, False])
def test_clients_that_shuffle_are_not_known_to_repeat(is_shuffled):
  @tff.tensorflow.computation(tff.SequenceType(np.int64))
  def first(data):
    return data.reduce(np.int64(0), lambda total, x: 2 * total + x)

  @tff.federated_computation(
    tff.FederatedType(tff.SequenceType(np.int64), tff.CLIENTS)
  )
  def run(data):
    return tff.federated_sum(tff.federated_map(first, data))

  data = tf.data.Dataset.range(9)
  if is_shuffled:
    data = data.shuffle(9)
  assert _repeats(lambda: run([data])) != is_shuffled
