"""A process that adds the noised mean of scalars, for tests of its rounds."""

import collections
import functools

import numpy as np
import tensorflow_federated as tff

from tests.programs import small_program
from tff_clipping import aggregators, privacy
from tff_clipping.mechanism import Mechanism

IDS = tuple(str(i) for i in range(24))
DELTA = 1e-3
# Of a plan whose noise has the standard deviation c.
UNIT_NOISE = dict(
  num_clients=24,
  clients_per_round=8,
  num_rounds=8,
  target_delta=DELTA,
  noise_multiplier=1.0,
)


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


def record(plan, clipping_norm=1.0):
  """Returns the record of a private mean of a plan."""
  return Mechanism(
    kind='gaussian',
    clipping_norm=clipping_norm,
    noise_multiplier=plan.noise_multiplier,
    clients_per_round=plan.clients_per_round,
    public=('clipping_norm',),
  )


def measured(plan, **others):
  """Returns what a private mean of a plan measures, with others beside it."""
  return collections.OrderedDict(
    mechanism=record(plan).to_json(), clipping_norm=np.float32(1), **others
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
  return small_program.learn_scalar(factory.create(tff.TensorType(np.float32)))
