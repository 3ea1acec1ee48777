"""A training program whose process is small and real."""

import collections
import functools

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_clipping import privacy
from tff_clipping.programs.clients.client_sampling import (
  FixedSizeSampler,
)
from tff_clipping.programs.training.checkpoints import Checkpoints
from tff_clipping.programs.training.metrics_files import MetricsFiles
from tff_clipping.programs.training.training_program import TrainingProgram
from tff_clipping.programs.training.watchers import AfterRounds

IDS = ('1', '2', '3')


def learn_scalar(aggregator, scale=1.0, fail_at=None):
  """Returns a process that adds what an aggregator makes of scalars.

  Its state has names of a clip and of noise, which prove nothing.
  """
  weights_type = tff.to_type(tff.learning.models.ModelWeights([np.float32], []))
  state_type = tff.to_type(
    collections.OrderedDict(
      weights=weights_type,
      aggregator=aggregator.state_type.member,
      clipping_norm=(),
      privacy_noise=(),
    )
  )

  @tff.tensorflow.computation(aggregator.state_type.member)
  def initial(aggregator_state):
    weights = tff.learning.models.ModelWeights([tf.constant(0.0)], [])
    return collections.OrderedDict(
      weights=weights,
      aggregator=aggregator_state,
      clipping_norm=(),
      privacy_noise=(),
    )

  @tff.tensorflow.computation(
    state_type, aggregator.state_type.member, np.float32
  )
  def add(state, aggregator_state, change):
    value = state['weights'].trainable[0] + change * scale
    if fail_at is not None:
      with tf.control_dependencies([tf.debugging.assert_less(value, fail_at)]):
        value = tf.identity(value)
    weights = tff.learning.models.ModelWeights([value], [])
    return collections.OrderedDict(
      state, weights=weights, aggregator=aggregator_state
    )

  @tff.federated_computation
  def initialize():
    return tff.federated_map(initial, aggregator.initialize())

  @tff.federated_computation(
    tff.FederatedType(state_type, tff.SERVER),
    tff.FederatedType(np.float32, tff.CLIENTS),
  )
  def next_fn(state, values):
    output = aggregator.next(state['aggregator'], values)
    return tff.learning.templates.LearningProcessOutput(
      tff.federated_map(add, (state, output.state, output.result)),
      tff.federated_zip(
        collections.OrderedDict(aggregator=output.measurements)
      ),
    )

  @tff.tensorflow.computation(state_type)
  def get_model_weights(state):
    return state['weights']

  @tff.tensorflow.computation(state_type, weights_type)
  def set_model_weights(state, weights):
    return collections.OrderedDict(state, weights=weights)

  return tff.learning.templates.LearningProcess(
    initialize, next_fn, get_model_weights, set_model_weights
  )


@functools.cache
def build_process(scale=1.0, fail_at=None):
  """Returns a process that adds, and measures, the exact sum of scalars."""
  factory = tff.aggregators.add_measurements(
    tff.aggregators.SumFactory(),
    server_measurement_fn=lambda total: collections.OrderedDict(total=total),
  )
  aggregator = factory.create(tff.TensorType(np.float32))
  return learn_scalar(aggregator, scale, fail_at)


@functools.cache
def plan(sampling, num_rounds=6):
  return privacy.PrivacyPlan.from_noise_multiplier(
    num_clients=3,
    clients_per_round=2,
    num_rounds=num_rounds,
    noise_multiplier=1.0,
    target_delta=1e-2,
    sampling=sampling,
  )


def open_ledger(folder, num_rounds=6):
  """Opens a ledger for the cohorts of `program`."""
  folder.mkdir(exist_ok=True)
  return privacy.PrivacyLedger(
    folder / 'ledger.jsonl', plan('fixed_size', num_rounds)
  )


def model_fn():
  """Returns a model of two numbers from one, for processes that learn."""
  return tff.learning.models.from_keras_model(
    tf.keras.Sequential([tf.keras.Input((1,)), tf.keras.layers.Dense(2)]),
    loss=tf.keras.losses.MeanSquaredError(),
    input_spec=(tf.TensorSpec([None, 1]), tf.TensorSpec([None, 2])),
  )


def program(folder, *, process=None, num_rounds=6, after=None, **kwargs):
  """Returns a program; `after` is called with the metrics of each round."""
  sampler = FixedSizeSampler(IDS, clients_per_round=2, seed=0)
  sampler.charged_as = plan('fixed_size').sampler_parameters
  settings = dict(
    process=process or build_process(),
    sampler=sampler,
    client_value=float,
    num_rounds=num_rounds,
    evaluate=lambda w: dict(test_accuracy=float(w.trainable[0]), test_loss=1.0),
    checkpoints=Checkpoints(folder / 'checkpoints'),
    rounds_per_checkpoint=2,
    watchers=[
      MetricsFiles(
        folder / 'metrics.csv', tensorboard_dir=folder / 'tensorboard'
      ),
      *([] if after is None else [AfterRounds(after)]),
    ],
  )
  settings.update(kwargs)
  return TrainingProgram(**settings)


def expected_weight(num_rounds):
  sampler = FixedSizeSampler(IDS, clients_per_round=2, seed=0)
  return sum(
    float(c) for t in range(1, num_rounds + 1) for c in sampler.sample(t)
  )
