"""Means of clients' updates without noise, and what divides a sum by P."""

import collections
from collections.abc import Callable

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_clipping.aggregators import clipping, factories, private_mean, values
from tff_clipping.aggregators.factories import SumFactory


def clipped_mean_factory(
  *, clipping_norm: float | tff.templates.EstimationProcess
) -> SumFactory:
  """Clips the updates and takes their mean: CE-FedAvg, without privacy.

  At CLIENTS, clip(x_i, c); at SERVER, their sum over the number of clients that
  took part. The mean of an empty cohort is 0.

  Measurements and errors: those of `difference_clipping_factory`, with its
  exact counts.

  Args:
    clipping_norm: c, or a process that estimates it; see
      `difference_clipping_factory`.

  Source: Alg. CE-FedAvg, lines "Clip" and "Global averaging".
  """
  return clipping.difference_clipping_factory(
    clipping_norm,
    realized_mean_factory(),
    count_sum_factory=tff.aggregators.SumFactory(),
  )


def fixed_denominator_mean_factory(
  clients_per_round: float,
  sum_factory: SumFactory | None = None,
) -> SumFactory:
  """Divides a sum by a public number, whatever the number of clients.

  At SERVER, the result of `sum_factory` / `clients_per_round`.

  Measurements:
    mean_value: Those of `sum_factory`.

  Args:
    clients_per_round: P, finite and at least 1: a sum that is divided by less
      is longer than its clip.
    sum_factory: Sums the values. `None` is `tff.aggregators.SumFactory()`.
  """
  clients_per_round = private_mean.check_clients_per_round(clients_per_round)
  return _mean_factory(
    sum_factory,
    lambda: tff.federated_value(np.float64(clients_per_round), tff.SERVER),
  )


def realized_mean_factory(
  sum_factory: SumFactory | None = None,
) -> SumFactory:
  """Divides a sum by the number of clients that took part; without privacy.

  At SERVER, the result of `sum_factory` over the number of clients; 0 for an
  empty cohort, of which `tff.aggregators.UnweightedMeanFactory` makes a NaN.

  Around noise it would reveal the number of clients, which is exact: there
  divides `fixed_denominator_mean_factory`.

  Measurements:
    mean_value: Those of `sum_factory`.

  Args:
    sum_factory: Sums the values. `None` is `tff.aggregators.SumFactory()`.
  """
  return _mean_factory(
    sum_factory,
    lambda: tff.federated_sum(tff.federated_value(1, tff.CLIENTS)),
  )


def _mean_factory(
  sum_factory: SumFactory | None, count: Callable[[], tff.Value]
) -> SumFactory:
  """Divides a sum by a number, which `count` returns at the server."""

  def build(value_type, create_inner):
    specs = values.specs_of(value_type)

    # In 16 bits a sum of some hundred values stays where it is, and a count has
    # no room.
    @tff.tensorflow.computation(value_type)
    def widen(value):
      return tf.nest.map_structure(
        lambda t: tf.cast(t, tf.float32) if t.dtype.size < 4 else t, value
      )

    wide_type = widen.type_signature.result
    inner = create_inner(wide_type)

    def divide(total, number):
      # A sum over no clients is 0, and so is its mean.
      mean = tf.nest.map_structure(
        lambda t: t / tf.cast(tf.maximum(number, 1), t.dtype), total
      )
      return values.narrow(mean, specs)

    def trace(state, value):
      if wide_type != value_type:
        value = tff.federated_map(widen, value)
      output = inner.next(state, value)
      given = output.result, count()
      types = [each.type_signature.member for each in given]
      return tff.templates.MeasuredProcessOutput(
        output.state,
        tff.federated_map(tff.tensorflow.computation(divide, *types), given),
        tff.federated_zip(
          collections.OrderedDict(mean_value=output.measurements)
        ),
      )

    return inner.initialize, trace

  return factories.wrap_factory(
    factories.check_sum_factory('sum_factory', sum_factory), build
  )
