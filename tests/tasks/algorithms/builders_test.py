"""Tests of the algorithms: what they aggregate by, refuse and say."""

import collections
import math

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tasks.algorithms import builders, experiment
from tasks.algorithms.algorithm import names_of
from tasks.models import tff_model
from tff_clipping import adaptive_noise

_PUBLIC = dict(
  task='mine.npz',
  model='mlp',
  algorithm='ce_fed_avg',
  num_clients=40,
  clients_per_round=20,
  num_rounds=2,
  local_steps=1,
  batch_size=5,
  client_learning_rate=0.1,
  clipping_norm=0.5,
)
_PRIVATE = dict(
  _PUBLIC,
  algorithm='dp_fed_avg',
  noise_multiplier=1.5,
  target_delta=1e-3,
  sampling='fixed_size',
)


def _model_fn():
  spec = collections.OrderedDict(
    x=tf.TensorSpec([3], tf.float32), y=tf.TensorSpec([], tf.int32)
  )
  inputs = tf.keras.Input((3,))
  return tff_model.build_model_fn(
    lambda: tf.keras.Model(inputs, tf.keras.layers.Dense(2)(inputs)), spec
  )()


def _process(settings):
  config = experiment.ExperimentConfig(**settings)
  plan = config.builder.find_plan(config.num_clients)
  weights_type = tff.learning.models.weights_type_from_model(_model_fn)
  factory = config.builder.create_aggregator(plan, _model_fn)
  return factory.create(weights_type.trainable)


def _update(kernel, bias):
  # Of norms |kernel| and |bias|.
  kernel, bias = (
    np.full(shape, norm / math.sqrt(np.prod(shape)), np.float32)
    for shape, norm in (([3, 2], kernel), ([2], bias))
  )
  return [kernel, bias]


def _aggregate(settings, updates):
  process = _process(settings)
  return process.next(process.initialize(), updates)


def _norms(result):
  return [float(np.linalg.norm(leaf)) for leaf in result]


@pytest.mark.parametrize(
  'aggregation', ['plain', pytest.param('secure', marks=pytest.mark.slow)]
)
@pytest.mark.parametrize(
  ('changes', 'norms'),
  [
    # (3, 4) is cut to a tenth, as a whole.
    (dict(), [0.3, 0.4]),
    # Each to 0.5 / sqrt(2).
    (dict(clipping='per_layer'), [0.5 / math.sqrt(2)] * 2),
  ],
)
def test_the_mean_of_bounded_updates(changes, norms, aggregation):
  settings = {**_PUBLIC, **changes, 'aggregation': aggregation}
  process = _process(settings)
  state = process.initialize()
  output = process.next(state, [_update(3, 4), _update(3, 4)])
  np.testing.assert_allclose(_norms(output.result), norms, rtol=1e-5)
  # An empty cohort changes nothing.
  assert _norms(process.next(state, []).result) == [0, 0]
  assert ('secure_sum_bound' in str(output.measurements)) == (
    aggregation == 'secure'
  )


def test_an_adaptive_norm_goes_to_the_quantile():
  process = _process(
    {**_PUBLIC, 'clipping': 'adaptive', 'target_quantile': 0.75}
  )
  output = process.next(process.initialize(), [_update(3, 4)] * 2)
  np.testing.assert_allclose(_norms(output.result), [0.3, 0.4], rtol=1e-5)
  output = process.next(output.state, [_update(3, 4)] * 2)
  assert output.measurements['clipping_norm'] == pytest.approx(
    0.5 * math.exp(0.2 * 0.75)
  )


@pytest.mark.parametrize(
  ('changes', 'stddev'),
  [
    (dict(), 1.5 * 0.5),
    pytest.param(dict(aggregation='secure'), 1.5 * 0.5, marks=pytest.mark.slow),
    pytest.param(dict(clipping='per_layer'), 1.5 * 0.5, marks=pytest.mark.slow),
    pytest.param(
      dict(clipping='per_layer', aggregation='secure'),
      1.5 * 0.5,
      marks=pytest.mark.slow,
    ),
    (
      dict(clipping='adaptive', noise_multiplier=0.5),
      0.5
      * adaptive_noise.split_noise_multiplier(
        noise_multiplier=0.5, below_count_stddev=1.0
      ),
    ),
  ],
)
def test_the_noise_is_that_of_the_plan(changes, stddev):
  output = _aggregate({**_PRIVATE, **changes}, [_update(3, 4)])
  measurements = output.measurements
  assert measurements['noise_stddev'] == pytest.approx(stddev, rel=1e-6)
  assert not any('count' in name for name in measurements)
  assert all(np.isfinite(_norms(output.result)))


@pytest.mark.parametrize(
  'bits', [None, pytest.param(20, marks=pytest.mark.slow)]
)
def test_the_noise_of_the_clients_is_that_of_the_plan(bits):
  settings = {**_PRIVATE, 'aggregation': 'distributed', 'sum_bits': bits}
  output = _aggregate(settings, [_update(3, 4)] * 20)
  measurements = output.measurements
  # In integers, with at most 1 % more for the rounding.
  assert measurements['noise_stddev'] == pytest.approx(0.75, rel=0.011)
  assert measurements['noise_stddev'] >= 0.75


@pytest.mark.parametrize(
  ('changes', 'words'),
  [
    (dict(_PUBLIC, clipping='some'), "`clipping` must be one of 'fixed'"),
    (
      dict(_PUBLIC, target_quantile=0.5),
      'whose `clipping` is not adaptive, found 0.5',
    ),
    (
      dict(_PUBLIC, clipping='adaptive', target_quantile=1.5),
      '`target_quantile` must be between 0 and 1',
    ),
    (
      dict(_PUBLIC, clipping_norm=None),
      '`clipping_norm` must be given .* by `clipping_norm_from`[.]',
    ),
    (
      dict(_PRIVATE, clipping_norm=None),
      'by `clipping_norm_from`: an exact figure, with which nothing is g',
    ),
    (
      dict(_PUBLIC, clipping='adaptive', clipping_norm=None),
      '`clipping_norm` must be given for `clipping` adaptive, whose c begins',
    ),
    (dict(_PUBLIC, aggregation='distributed'), 'must be plain or secure'),
    (
      dict(_PUBLIC, clipping='adaptive', aggregation='secure'),
      '`clipping` must not be adaptive for `aggregation` secure',
    ),
    (
      dict(_PRIVATE, clipping='per_layer', aggregation='distributed'),
      '`clipping` must not be given for `aggregation` distributed',
    ),
    (
      dict(_PRIVATE, sampling='poisson', aggregation='distributed'),
      '`sampling` must be one of fixed_size for `aggregation` distributed',
    ),
    (
      dict(_PRIVATE, accountant='pld', aggregation='distributed'),
      '`accountant` must be rdp for `aggregation` distributed',
    ),
    (
      dict(_PRIVATE, sum_bits=14),
      '`sum_bits` must not be given for dp_fed_avg',
    ),
    (
      dict(_PRIVATE, sum_bits=63, aggregation='distributed'),
      '`sum_bits` must be',
    ),
    (
      dict(_PRIVATE, noise_seed=1, aggregation='distributed'),
      '`noise_seed` must not be given',
    ),
    (
      dict(
        _PRIVATE,
        mechanism='blt',
        sampling='min_separation',
        min_separation=2,
        clipping='per_layer',
      ),
      '`clipping` must not be given for `mechanism` blt',
    ),
    (
      dict(_PUBLIC, algorithm='model_clipping_fed_avg', clipping='adaptive'),
      '`clipping` must not be given for model_clipping_fed_avg',
    ),
    (
      dict(_PUBLIC, algorithm='model_clipping_fed_avg', clipping_norm=None),
      '`clipping_norm` must be given for model_clipping_fed_avg',
    ),
    (
      dict(
        _PUBLIC, algorithm='fed_avg', clipping_norm=None, aggregation='secure'
      ),
      '`aggregation` must not be given for fed_avg.* for ce_fed_avg, dp_fed',
    ),
    (
      dict(_PUBLIC, aggregator='mine:f', clipping='adaptive'),
      '`clipping` must not be given for ce_fed_avg with `aggregator`',
    ),
    (
      dict(_PRIVATE, clipping='adaptive', audit_canaries=10),
      '`audit_canaries` must not be given .* norm is not constant',
    ),
  ],
)
def test_what_does_not_exist_is_refused(changes, words):
  with pytest.raises(ValueError, match=words):
    experiment.ExperimentConfig(**changes)


@pytest.mark.parametrize(
  ('changes', 'words'),
  [
    (dict(), 'The clipping norm is 0.5.'),
    (dict(clipping='adaptive'), 'the sum alone has more'),
    (dict(clipping='per_layer'), 'of all tensors together is 0.5'),
    (dict(aggregation='secure'), 'in fixed point'),
    (dict(aggregation='distributed'), 'in shares of the clients'),
    (dict(aggregator='mine:f'), 'only if mine:f clips each update'),
  ],
)
def test_what_the_plan_speaks_of_is_said(changes, words):
  config = experiment.ExperimentConfig(**{**_PRIVATE, **changes})
  assert words in config.builder.describe()


_TURNS = dict(mechanism='blt', sampling='min_separation', min_separation=2)


@pytest.mark.parametrize(
  ('settings', 'name'),
  [
    (dict(_PUBLIC, algorithm='fed_avg', clipping_norm=None), 'FedAvg'),
    (_PUBLIC, 'ClippedFedAvg'),
    (dict(_PUBLIC, algorithm='model_clipping_fed_avg'), 'ModelClipping'),
    (_PRIVATE, 'GaussianFedAvg'),
    (dict(_PRIVATE, **_TURNS), 'CorrelatedFedAvg'),
    (dict(_PRIVATE, aggregation='distributed'), 'DistributedFedAvg'),
    (
      dict(
        _PUBLIC, algorithm='fed_avg', clipping_norm=None, aggregator='mine:f'
      ),
      'UserFedAvg',
    ),
    (dict(_PUBLIC, aggregator='mine:f'), 'UserClippedFedAvg'),
    (dict(_PRIVATE, aggregator='mine:f'), 'UserGaussianFedAvg'),
  ],
)
def test_settings_choose_the_algorithm(settings, name):
  found = experiment.ExperimentConfig(**settings).builder
  assert type(found).__name__ == name


def test_every_setting_of_algorithms_is_taken_by_one_and_has_a_default():
  taken = frozenset.union(*(b.settings for b in builders.BUILDERS))
  assert taken == names_of(builders.Settings)
  builders.Settings()
