"""Tests of what the factories refuse: the argument, the rule and the value."""

import collections
import functools
import math

import numpy as np
import pytest
import tensorflow_federated as tff

from tests import noise_strategies
from tff_clipping import aggregators
from tff_clipping.privacy.audit import Canaries

_VECTOR = tff.TensorType(np.float32, [2])
_SUM = tff.aggregators.SumFactory()
_WEIGHTED = tff.aggregators.MeanFactory()
_CANARIES = Canaries(num_canaries=4, num_parameters=268, seed=0)
_BLT = noise_strategies.blt(2)


_USUAL = dict(clipping_norm=1.0, noise_multiplier=1.0, clients_per_round=4)
_dp = functools.partial(aggregators.dp_mean_factory, **_USUAL)
_correlated = functools.partial(
  aggregators.correlated_dp_mean_factory, **_USUAL, strategy=_BLT
)
_local_mean = functools.partial(
  aggregators.local_gaussian_mean_factory,
  **_USUAL | dict(clipping_norm=2.0, noise_multiplier=0.5),
)
_distributed = functools.partial(
  aggregators.distributed_gaussian_mean_factory, **_USUAL
)
_adaptive = functools.partial(
  aggregators.adaptive_dp_mean_factory,
  initial_clipping_norm=1.0,
  noise_multiplier=1.0,
  clients_per_round=100,
)


def _local(stddev=1.0, clients_per_round=4, inner=None):
  return aggregators.local_gaussian_noise_factory(
    stddev, inner, clients_per_round=clients_per_round
  )


def _secure(norm, noise=None):
  return aggregators.secure_sum_factory(norm, local_noise_stddev=noise)


_DIFFERENCE = aggregators.difference_clipping_factory
_LAYERS = aggregators.per_layer_clipping_factory
_NOISE = aggregators.gaussian_noise_factory

# A function, what it is called with, and what the error says.
_OUT_OF_RANGE = [
  *((_DIFFERENCE, [norm], '`clipping_norm` must be')
    for norm in (0.0, -1.0, math.nan, math.inf, 1e-13, np.float32(-2))),
  *((_LAYERS, [norms], 'clipping_norms')
    for norms in ([], [1.0, 0.0], [math.nan])),
  *((_NOISE, [stddev], '`noise_stddev` must be positive')
    for stddev in (0.0, -1.0, math.nan, math.inf)),
  (_NOISE, [1e38], '`noise_stddev` must be .* to 1e[+]37, found'),
  (_local, [0.0], '`noise_stddev` must be positive'),
  (_local, [1e38], '`noise_stddev` must be .* to 1e[+]37, found'),
  *((_local, [1.0, clients], '`clients_per_round` must be at least')
    for clients in (0, -1)),
  *((_secure, [norm], '`clipping_norm` must be')
    for norm in (0, -1.0, math.nan, math.inf)),
  *((_secure, [1.0, stddev], '`local_noise_stddev` must be')
    for stddev in (0.0, -1.0, math.nan)),
  *((aggregators.fixed_denominator_mean_factory, [clients],
     '`clients_per_round` must be')
    for clients in (0.0, 0.99, math.nan, math.inf)),
  *((_dp, {name: value}, f'`{name}` must be positive')
    for name in ('noise_multiplier', 'clients_per_round')
    for value in (0.0, -1, math.nan, math.inf)),
  (_dp, dict(clients_per_round=0.99), '`clients_per_round` must be at least 1'),
  (_dp, dict(noise_key=(2**63, 0)), '`noise_key` must be at most'),
  (_correlated, dict(noise_multiplier=0.0), '`noise_multiplier` must be'),
  *((_adaptive, {name: value}, f'`{name}` must be')
    for name, value in (
      ('initial_clipping_norm', 0.0),
      ('initial_clipping_norm', 1e20),
      ('noise_multiplier', -1.0),
      ('clients_per_round', math.nan),
      ('clients_per_round', 0.5),
      ('learning_rate', math.inf),
      ('target_quantile', 1.0),
      ('target_quantile', 0.0),
      ('below_count_stddev', 0.0),
    )),
  # Bits with too little noise.
  (_adaptive, dict(below_count_stddev=0.5), 'above half of `noise_multiplier`'),
  *((_distributed, {name: value}, f'`{name}` must')
    for name, value in (
      ('clipping_norm', -1.0),
      ('noise_multiplier', 0.0),
      ('clients_per_round', math.nan),
      ('min_clients_per_round', -1),
      ('max_clients_per_round', -3),
      ('bits', 0),
      ('bits', 63),
    )),
  (_distributed, dict(min_clients_per_round=5), 'must be at least 5, found 4'),
  (_distributed, dict(max_clients_per_round=3), 'must be at least 4, found 3'),
  # A secure sum that would clamp the noise, or the noise on long updates, or
  # whose steps, here of 16, would round it off.
  (_local, [1.0, 4, _secure(1.0)], 'a bound of at least 7.05'),
  (_local, [1.0, 4, _secure(1.0, 0.49)], 'bound of at least 7.05'),
  (_local_mean, dict(sum_factory=_secure(1.9, 0.5)), 'of at least 8.05'),
  (_local, [10.0, 100, _secure(3e10, 1.0)], 'and steps of at most'),
  (_local_mean, dict(clipping_norm=30.0, clients_per_round=100,
                     sum_factory=_secure(3e10, 1.5)), 'steps of at most'),
]  # fmt: skip

_OF_THE_WRONG_KIND = [
  *((_DIFFERENCE, [norm], '`clipping_norm` must be a number')
    for norm in (True, '1', None, 1j, [1.0])),
  (_DIFFERENCE, [1.0, 2.0], '`inner_agg_factory` must be'),
  (_DIFFERENCE, dict(clipping_norm=1.0, count_sum_factory=_WEIGHTED),
   '`count_sum_factory` must be'),
  *((_LAYERS, [norms], 'clipping_norms')
    for norms in (1.0, np.array(1.0), 'ab', ['a'], [True], {1.0})),
  (_NOISE, [True], '`noise_stddev` must be a number'),
  *((_dp, dict(noise_key=key), '`noise_key` must be a')
    for key in ('drawn', 1, (1,), (1, 2, 3), (1.0, 2), (True, 1), 'ab')),
  *((_dp, {name: True}, f'`{name}` must be a number')
    for name in ('clipping_norm', 'noise_multiplier', 'clients_per_round')),
  *((_local, [1.0, clients], '`clients_per_round` must be')
    for clients in (1.0, True, None)),
  (_correlated, dict(strategy='blt'), '`strategy` must be a noise strategy'),
  (_correlated, dict(noise_key=3), '`noise_key` must be a pair'),
  (_adaptive, dict(target_quantile='half'), '`target_quantile` must be a'),
  (_distributed, dict(clients_per_round=4.5),
   '`min_clients_per_round` must be an integer'),
  (aggregators.realized_mean_factory, [_WEIGHTED], 'must be a .*Unweighted'),
  (_NOISE, [1.0, _WEIGHTED], '`inner_agg_factory` must be a .*Unweighted'),
  (_dp, dict(sum_factory=_WEIGHTED), '`sum_factory` must be a .*Unweighted'),
  (aggregators.add_canary_products, [_WEIGHTED, _CANARIES],
   '`inner_agg_factory` must be a .*Unweighted'),
  (aggregators.add_update_norm_measurements, [None],
   '`inner_agg_factory` must be'),
  (aggregators.transformed_factory, dict(inner=_SUM, before=1.0),
   '`before` must be'),
  (aggregators.transformed_factory, dict(inner=_SUM, after='sign'),
   '`after` must be'),
  (aggregators.transformed_factory, [abs], '`inner` must be'),
]  # fmt: skip


def _call(function, arguments):
  if isinstance(arguments, dict):
    return function(**arguments)
  return function(*arguments)


@pytest.mark.parametrize(('function', 'arguments', 'message'), _OUT_OF_RANGE)
def test_a_number_out_of_range_raises(function, arguments, message):
  with pytest.raises(ValueError, match=message):
    _call(function, arguments)


@pytest.mark.parametrize(
  ('function', 'arguments', 'message'), _OF_THE_WRONG_KIND
)
def test_an_argument_of_the_wrong_kind_raises(function, arguments, message):
  with pytest.raises(TypeError, match=message):
    _call(function, arguments)


@pytest.mark.parametrize(
  ('value_type', 'message'),
  [
    (tff.TensorType(np.float32, [None]), 'leaves of defined shape'),
    (tff.TensorType(np.int32, [2]), 'floating-point leaves'),
    (tff.to_type(collections.OrderedDict()), 'must have a tensor'),
    (tff.StructType([('a', np.float32)]), 'Python containers'),
  ],
)
@pytest.mark.parametrize(
  'factory',
  [_DIFFERENCE(1.0), _NOISE(1.0), _dp(), _distributed(), _secure(1.0)],
)
def test_values_of_another_type_raise(factory, value_type, message):
  with pytest.raises(TypeError, match=message):
    factory.create(value_type)


@pytest.mark.parametrize(
  ('factory', 'message'),
  [
    (_LAYERS([1.0, 2.0, 3.0]), 'each of the 1 tensors'),
    (
      aggregators.add_canary_products(_SUM, _CANARIES),
      'have 2 elements, found 268',
    ),
  ],
)
def test_values_of_another_size_raise(factory, message):
  with pytest.raises(ValueError, match=message):
    factory.create(_VECTOR)
