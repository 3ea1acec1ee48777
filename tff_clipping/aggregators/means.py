"""Means of clients' updates: what most users want, in one call."""

import collections
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_clipping import argument_checks
from tff_clipping.aggregators import (
  correlated_noise,
  difference_clipping,
  gaussian_noise,
  secure_sum,
)
from tff_clipping.aggregators.parts import (
  cohort_bounds,
  float64_values,
  gaussian_draws,
  inspect_process,
  l2_clip,
  private_mean,
  type_checks,
)
from tff_clipping.mechanism import Mechanism

_PUBLIC = ('clipping_norm', 'noise_stddev', 'secure_sum_bound')


def clipped_mean_factory(
  *, clipping_norm: float | tff.templates.EstimationProcess
) -> tff.aggregators.UnweightedAggregationFactory:
  """Clips the updates and takes their mean: CE-FedAvg, without privacy.

  At CLIENTS, clip(x_i, c); at SERVER, their sum over the number of clients that
  took part. No client, no change: the mean of an empty cohort is 0.

  Measurements: those of `difference_clipping_factory` (`clipping`,
  `clipping_norm`, `clipped_count`, `zeroed_count`), all exact.

  Args:
    clipping_norm: c, or a process that estimates it; see
      `difference_clipping_factory`.

  Returns:
    An unweighted aggregation factory.

  Raises:
    TypeError: If `clipping_norm` is of the wrong kind.
    ValueError: If it is not finite or too small.

  Source: Alg. CE-FedAvg, lines "Clip" and "Global averaging".
  """
  return difference_clipping.difference_clipping_factory(
    clipping_norm, realized_mean_factory()
  )


def dp_mean_factory(
  *,
  clipping_norm: float,
  noise_multiplier: float,
  clients_per_round: float,
  sum_factory: tff.aggregators.UnweightedAggregationFactory | None = None,
  noise_key: gaussian_draws.NoiseKey = None,
) -> tff.aggregators.UnweightedAggregationFactory:
  """Clips, sums, adds noise to the sum at the server, and divides by P.

  At CLIENTS, clip(x_i, c). At SERVER, (sum of them + N(0, (z c)^2 I)) / P. P is
  the public `clients_per_round`, whatever the realised cohort: dividing by that
  would reveal it. An empty cohort gives 0 + noise.

  Guarantee: a round is the Gaussian mechanism with noise multiplier z under
  adding or removing one client, and z / 2 under replacing one, on the cohort
  that was sampled; the accountant takes the sampling into account. The weights
  are uniform, and there is no weighted form.

  Measurements:
    clipping: `mean_value`, and in it `noise_stddev` = z c, and the measurements
      of `sum_factory` that are safe to report.
    clipping_norm: c.

  Nothing that is computed from clients' data is reported without noise.

  Args:
    clipping_norm: c, from 1e-12 to 1e19, in the unit of the updates.
    noise_multiplier: z, the standard deviation of the noise on the sum over c.
    clients_per_round: P, the size of a cohort, or its expectation if clients
      are sampled independently; at least 1.
    sum_factory: Sums the clipped updates, and neither divides nor lengthens
      them. `None` is `tff.aggregators.SumFactory()`; see also
      `secure_sum_factory`.
    noise_key: `None` for fresh noise, or a pair of integers for tests; see
      `gaussian_noise_factory`.

  Returns:
    An unweighted aggregation factory.

  Raises:
    TypeError: If an argument is of the wrong kind.
    ValueError: If a number is out of range. By
      `create`, if `sum_factory` is a mean, compresses, or adapts a bound.

  Source: Alg. DP-FedAvg, with its P independent shares of noise drawn as one,
    which has the same distribution. Departs from it in dividing by P in every
    round.
  """
  clipping_norm = l2_clip.check_clipping_norm('clipping_norm', clipping_norm)
  noise_multiplier = argument_checks.check_positive(
    'noise_multiplier', noise_multiplier
  )
  if sum_factory is not None:
    type_checks.check_unweighted_factory('sum_factory', sum_factory)
  noised_sum = gaussian_noise.gaussian_noise_factory(
    noise_multiplier * clipping_norm, sum_factory, noise_key=noise_key
  )
  factory = difference_clipping.difference_clipping_factory(
    clipping_norm,
    fixed_denominator_mean_factory(
      clients_per_round, noised_sum.behind_clip(clipping_norm)
    ),
  )
  if not secure_sum.is_plain_sum(sum_factory):
    # Nobody knows what it does.
    return factory
  return private_mean.PrivateMean(
    factory,
    Mechanism(
      kind='gaussian',
      clipping_norm=clipping_norm,
      noise_multiplier=noise_multiplier,
      clients_per_round=clients_per_round,
      public=_PUBLIC,
    ),
  )


def correlated_dp_mean_factory(
  *,
  clipping_norm: float,
  noise_multiplier: float,
  clients_per_round: float,
  strategy: correlated_noise.NoiseStrategy,
  sum_factory: tff.aggregators.UnweightedAggregationFactory | None = None,
  noise_key: gaussian_draws.NoiseKey = None,
) -> tff.aggregators.UnweightedAggregationFactory:
  """Clips, sums, adds noise that is correlated between rounds, divides by P.

  At CLIENTS, clip(x_i, c). At SERVER, (sum of them + the round's row of C^{-1}
  Z) / P, where Z has independent elements of standard deviation z c; see
  `correlated_noise_factory`, and `dp_mean_factory` for what both have alike.

  Guarantee: all rounds together are one Gaussian mechanism with noise
  multiplier z / `strategy.compute_sensitivity(participation)`, under zeroing
  out one client, as `privacy.CorrelatedNoisePlan` charges it.

  Measurements: those of `dp_mean_factory`.

  Args:
    clipping_norm: c, from 1e-12 to 1e19, in the unit of the updates.
    noise_multiplier: z, the standard deviation of a draw over c.
    clients_per_round: P, the size of a cohort; at least 1.
    strategy: How the noise of a round depends on those before.
    sum_factory: Sums the clipped updates, and neither divides nor lengthens
      them. `None` is `tff.aggregators.SumFactory()`; see also
      `secure_sum_factory`.
    noise_key: `None` for fresh draws, or a pair of integers for tests; see
      `correlated_noise_factory`.

  Returns:
    An unweighted aggregation factory.

  Raises:
    TypeError: If an argument is of the wrong kind.
    ValueError: If a number is out of range.
  """
  clipping_norm = l2_clip.check_clipping_norm('clipping_norm', clipping_norm)
  noise_multiplier = argument_checks.check_positive(
    'noise_multiplier', noise_multiplier
  )
  if sum_factory is not None:
    type_checks.check_unweighted_factory('sum_factory', sum_factory)
  noised_sum = correlated_noise.correlated_noise_factory(
    strategy,
    noise_multiplier * clipping_norm,
    sum_factory,
    noise_key=noise_key,
  )
  factory = difference_clipping.difference_clipping_factory(
    clipping_norm,
    fixed_denominator_mean_factory(
      clients_per_round, noised_sum.behind_clip(clipping_norm)
    ),
  )
  if not secure_sum.is_plain_sum(sum_factory):
    return factory
  return private_mean.PrivateMean(
    factory,
    Mechanism(
      kind='correlated',
      clipping_norm=clipping_norm,
      noise_multiplier=noise_multiplier,
      clients_per_round=clients_per_round,
      strategy=correlated_noise.strategy_digest(strategy.recurrence),
      public=_PUBLIC,
    ),
  )


def fixed_denominator_mean_factory(
  clients_per_round: float,
  sum_factory: tff.aggregators.UnweightedAggregationFactory | None = None,
) -> tff.aggregators.UnweightedAggregationFactory:
  """Divides a sum by a public number, whatever the number of clients.

  At SERVER, the result of `sum_factory` / `clients_per_round`.

  Measurements:
    mean_value: Those of `sum_factory`.

  Args:
    clients_per_round: P, finite and at least 1: a sum that is divided by less
      is longer than its clip.
    sum_factory: Sums the values. `None` is `tff.aggregators.SumFactory()`.

  Returns:
    An unweighted aggregation factory.

  Raises:
    TypeError: If an argument is of the wrong kind.
    ValueError: If `clients_per_round` is not finite, or less than 1.
  """
  clients_per_round = cohort_bounds.check_clients_per_round(clients_per_round)
  if sum_factory is None:
    sum_factory = tff.aggregators.SumFactory()
  type_checks.check_unweighted_factory('sum_factory', sum_factory)
  return _FixedDenominatorMeanFactory(clients_per_round, sum_factory)


def realized_mean_factory(
  sum_factory: tff.aggregators.UnweightedAggregationFactory | None = None,
) -> tff.aggregators.UnweightedAggregationFactory:
  """Divides a sum by the number of clients that took part; without privacy.

  At SERVER, the result of `sum_factory` over the number of clients; 0 for an
  empty cohort, of which `tff.aggregators.UnweightedMeanFactory` makes a NaN.

  Measurements: those of `sum_factory`.

  State: `realized_mean`, that of `sum_factory`.

  Args:
    sum_factory: Sums the values. `None` is `tff.aggregators.SumFactory()`. One
      that adds noise is refused: the number of clients is exact.

  Returns:
    An unweighted aggregation factory.

  Raises:
    TypeError: If `sum_factory` is no unweighted factory.
    ValueError: By `create`, if it adds noise, or something inside it does.
  """
  if sum_factory is None:
    sum_factory = tff.aggregators.SumFactory()
  type_checks.check_unweighted_factory('sum_factory', sum_factory)
  return _RealizedMeanFactory(sum_factory)


class _FixedDenominatorMeanFactory(
  tff.aggregators.UnweightedAggregationFactory
):
  """What `fixed_denominator_mean_factory` returns."""

  def __init__(self, clients_per_round, sum_factory):
    self._clients_per_round = clients_per_round
    self._sum_factory = sum_factory

  def create(self, value_type: Any) -> tff.templates.AggregationProcess:
    """Creates the process for values of `value_type`; see the base class."""
    type_checks.check_float_leaves(value_type)
    wide = float64_values.WideValues(value_type, tf.float32)
    inner = self._sum_factory.create(wide.type)
    sum_type = inner.next.type_signature.result.result.member

    @tff.tensorflow.computation(sum_type)
    def divide(total):
      return wide.narrow(
        tf.nest.map_structure(
          lambda t: _divide(t, self._clients_per_round), total
        )
      )

    @tff.federated_computation(
      inner.initialize.type_signature.result,
      tff.FederatedType(value_type, tff.CLIENTS),
    )
    def next_fn(state, value):
      output = inner.next(state, wide.widen(value))
      measurements = collections.OrderedDict(mean_value=output.measurements)
      return tff.templates.MeasuredProcessOutput(
        state=output.state,
        result=tff.federated_map(divide, output.result),
        measurements=tff.federated_zip(measurements),
      )

    return tff.templates.AggregationProcess(inner.initialize, next_fn)


class _RealizedMeanFactory(tff.aggregators.UnweightedAggregationFactory):
  """What `realized_mean_factory` returns."""

  def __init__(self, sum_factory):
    self._sum_factory = sum_factory

  def create(self, value_type: Any) -> tff.templates.AggregationProcess:
    """Creates the process for values of `value_type`; see the base class."""
    type_checks.check_float_leaves(value_type)
    wide = float64_values.WideValues(value_type, tf.float32)
    inner = self._sum_factory.create(wide.type)
    if inspect_process.adds_noise(inner.state_type):
      raise _noise_is_divided(self._sum_factory)

    @tff.tensorflow.computation(
      inner.next.type_signature.result.result.member, np.int32
    )
    def divide(total, count):
      # A sum over no clients is 0, and so is its mean.
      return wide.narrow(
        tf.nest.map_structure(lambda t: _divide(t, tf.maximum(count, 1)), total)
      )

    def mark(state):
      return tff.federated_zip(
        collections.OrderedDict([(inspect_process.REALIZED_MEAN, state)])
      )

    @tff.federated_computation
    def initialize():
      return mark(inner.initialize())

    @tff.federated_computation(
      initialize.type_signature.result,
      tff.FederatedType(value_type, tff.CLIENTS),
    )
    def next_fn(state, value):
      output = inner.next(
        state[inspect_process.REALIZED_MEAN], wide.widen(value)
      )
      count = tff.federated_sum(tff.federated_value(1, tff.CLIENTS))
      return tff.templates.MeasuredProcessOutput(
        state=mark(output.state),
        result=tff.federated_map(divide, (output.result, count)),
        measurements=output.measurements,
      )

    return tff.templates.AggregationProcess(initialize, next_fn)


def _noise_is_divided(sum_factory: Any) -> ValueError:
  return ValueError(
    '`sum_factory` must not add noise, found '
    f'{type(sum_factory).__name__}: dividing by the number of clients would '
    'reveal it; use `fixed_denominator_mean_factory`.'
  )


def _divide(total: tf.Tensor, count: Any) -> tf.Tensor:
  """Returns `total / count` in the dtype of `total`."""
  return total / tf.cast(count, total.dtype)
