"""A process that adds the noised mean of scalars, for tests of its rounds."""

import collections
import functools

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_clipping import aggregators, privacy
from tff_clipping.mechanism import Mechanism

IDS = tuple(str(i) for i in range(24))
DELTA = 1e-3


@functools.cache
def plan(num_rounds=12, **kwargs):
  """Returns a plan for 8 of 24 clients a round."""
  return privacy.PrivacyPlan.from_target_epsilon(
    num_clients=24,
    clients_per_round=8,
    num_rounds=num_rounds,
    target_epsilon=2.0,
    target_delta=DELTA,
    accountant='pld',
    **kwargs,
  )


def measured(plan, **others):
  """Returns what a private mean of a plan measures, with others beside it."""
  record = Mechanism(
    kind='gaussian',
    clipping_norm=1.0,
    noise_multiplier=plan.noise_multiplier,
    clients_per_round=plan.clients_per_round,
    public=('clipping_norm',),
  )
  return collections.OrderedDict(
    mechanism=record.to_json(), clipping_norm=np.float32(1), **others
  )


@functools.cache
def correlated_plan(name):
  """Returns a plan of 6 rounds whose noise is correlated between them."""
  build = {'banded': privacy.banded_strategy, 'blt': privacy.blt_strategy}[name]
  return privacy.CorrelatedNoisePlan.from_target_epsilon(
    num_clients=24,
    clients_per_round=8,
    strategy=build(
      num_rounds=6, participation=privacy.Participation(min_separation=3)
    ),
    target_epsilon=2.0,
    target_delta=DELTA,
    min_separation=3,
  )


@functools.cache
def build_process(plan, noise_key):
  """Returns a process that adds the noised mean of scalars to its weight."""
  settings = dict(
    clipping_norm=1.0,
    noise_key=noise_key,
    **plan.aggregator_parameters._asdict(),
  )
  if isinstance(plan, privacy.CorrelatedNoisePlan):
    factory = aggregators.correlated_dp_mean_factory(
      strategy=plan.strategy, **settings
    )
  else:
    factory = aggregators.dp_mean_factory(**settings)
  aggregator = factory.create(tff.TensorType(np.float32))
  weights_type = tff.to_type(tff.learning.models.ModelWeights([np.float32], []))
  state_type = tff.to_type(
    collections.OrderedDict(
      weights=weights_type, aggregator=aggregator.state_type.member
    )
  )

  @tff.tensorflow.computation
  def initial():
    return tff.learning.models.ModelWeights([tf.constant(0.0)], [])

  @tff.tensorflow.computation(weights_type, np.float32)
  def add(weights, mean):
    value = weights.trainable[0] + mean
    return tff.learning.models.ModelWeights([value], [])

  @tff.federated_computation
  def initialize():
    return tff.federated_zip(
      collections.OrderedDict(
        weights=tff.federated_eval(initial, tff.SERVER),
        aggregator=aggregator.initialize(),
      )
    )

  @tff.federated_computation(
    tff.FederatedType(state_type, tff.SERVER),
    tff.FederatedType(np.float32, tff.CLIENTS),
  )
  def next_fn(state, values):
    output = aggregator.next(state['aggregator'], values)
    weights = tff.federated_map(add, (state['weights'], output.result))
    return tff.learning.templates.LearningProcessOutput(
      tff.federated_zip(
        collections.OrderedDict(weights=weights, aggregator=output.state)
      ),
      tff.federated_zip(
        collections.OrderedDict(aggregator=output.measurements)
      ),
    )

  @tff.tensorflow.computation(state_type)
  def get_model_weights(state):
    return state['weights']

  @tff.tensorflow.computation(state_type, weights_type)
  def set_model_weights(state, weights):
    return collections.OrderedDict(
      weights=weights, aggregator=state['aggregator']
    )

  return tff.learning.templates.LearningProcess(
    initialize, next_fn, get_model_weights, set_model_weights
  )
