"""Means of clients' updates without noise, and what divides a sum by P."""

import collections
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_clipping.aggregators import difference_clipping
from tff_clipping.aggregators.parts import (
  cohort_bounds,
  float64_values,
  noised_sum,
  type_checks,
)


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
    clipping_norm,
    realized_mean_factory(),
    count_sum_factory=tff.aggregators.SumFactory(),
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
  return _MeanFactory(sum_factory, clients_per_round)


def realized_mean_factory(
  sum_factory: tff.aggregators.UnweightedAggregationFactory | None = None,
) -> tff.aggregators.UnweightedAggregationFactory:
  """Divides a sum by the number of clients that took part; without privacy.

  At SERVER, the result of `sum_factory` over the number of clients; 0 for an
  empty cohort, of which `tff.aggregators.UnweightedMeanFactory` makes a NaN.

  Around noise it would reveal the number of clients, which is exact: there
  divides `fixed_denominator_mean_factory`.

  Measurements:
    mean_value: Those of `sum_factory`.

  Args:
    sum_factory: Sums the values. `None` is `tff.aggregators.SumFactory()`.

  Returns:
    An unweighted aggregation factory.

  Raises:
    TypeError: If `sum_factory` is no unweighted factory.
  """
  if sum_factory is None:
    sum_factory = tff.aggregators.SumFactory()
  type_checks.check_unweighted_factory('sum_factory', sum_factory)
  return _MeanFactory(sum_factory, None)


class _MeanFactory(tff.aggregators.UnweightedAggregationFactory):
  """Divides a sum by a public number, or by that of the clients if `None`."""

  def __init__(self, sum_factory, clients_per_round):
    self._sum_factory = sum_factory
    self._clients_per_round = clients_per_round

  def create(self, value_type: Any) -> tff.templates.AggregationProcess:
    """Creates the process for values of `value_type`; see the base class."""
    type_checks.check_float_leaves(value_type)
    dtypes = float64_values.dtypes_of(value_type)

    @tff.tensorflow.computation(value_type)
    def widen(value):
      return float64_values.widen(value, tf.float32)

    wide_type = widen.type_signature.result
    inner = self._sum_factory.create(wide_type)
    sum_type = inner.next.type_signature.result.result.member

    is_realized = self._clients_per_round is None

    @tff.tensorflow.computation(
      sum_type, np.int32 if is_realized else np.float64
    )
    def divide(total, count):
      # A sum over no clients is 0, and so is its mean.
      return noised_sum.divide(total, tf.maximum(count, 1), dtypes)

    @tff.federated_computation(
      inner.initialize.type_signature.result,
      tff.FederatedType(value_type, tff.CLIENTS),
    )
    def next_fn(state, value):
      if wide_type != value_type:
        value = tff.federated_map(widen, value)
      output = inner.next(state, value)
      if is_realized:
        count = tff.federated_sum(tff.federated_value(1, tff.CLIENTS))
      else:
        count = tff.federated_value(
          np.float64(self._clients_per_round), tff.SERVER
        )
      mean = tff.federated_map(divide, (output.result, count))
      measurements = collections.OrderedDict(mean_value=output.measurements)
      return tff.templates.MeasuredProcessOutput(
        output.state, mean, tff.federated_zip(measurements)
      )

    return tff.templates.AggregationProcess(inner.initialize, next_fn)
