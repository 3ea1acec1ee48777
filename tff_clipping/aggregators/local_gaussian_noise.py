"""Adds a share of Gaussian noise at each client, as in Alg. DP-FedAvg."""

import collections
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_clipping.aggregators import (
  argument_checks,
  gaussian_draws,
  private_reports,
  wide_values,
)


def local_gaussian_noise_factory(
  noise_stddev: float,
  inner_agg_factory: tff.aggregators.UnweightedAggregationFactory | None = None,
  *,
  min_clients_per_round: int = 1,
) -> tff.aggregators.UnweightedAggregationFactory:
  """Adds z_i ~ N(0, `noise_stddev`^2) at each client, before the aggregation.

  At CLIENTS, x_i + z_i, then `inner_agg_factory`, a sum, on these. At SERVER,
  the shares that are missing: if n clients took part and n < m, for m =
  `min_clients_per_round`, noise of variance (m - n) `noise_stddev`^2 is added
  to the sum.

  Guarantee: the noise on the sum of n clients has a standard deviation of
  `noise_stddev` * sqrt(max(n, m)), and so at least `noise_stddev` * sqrt(m),
  which is what a plan may charge, also in a round that lost clients or had
  none. For a noise multiplier z with clips to c, use `noise_stddev` = z * c /
  sqrt(m); then m = P is Alg. DP-FedAvg in a round of P clients, and more
  clients than that add more noise than needed.

  The missing shares protect what the server publishes. Against the server
  itself only noise of the clients counts: a secure summation that hides the
  single values must then also refuse cohorts below m.

  It does not clip; put it inside a clip. Noise of its own for each client,
  tensor and round comes from fresh entropy; there is no key for repeatable
  runs, since an aggregator cannot tell its clients apart. Noise at the server,
  by `gaussian_noise_factory`, has the same distribution and takes a key.

  Measurements:
    noise_stddev: That of one client's share, `float32`.

  Of the measurements of `inner_agg_factory`, only those are reported, beside
  this one, that do not reveal what the noise hides; see
  `gaussian_noise_factory`.

  State: `privacy_noise` (empty), `inner_agg`.

  Args:
    noise_stddev: The standard deviation of one client's share, positive and
      finite, in the unit of the values.
    inner_agg_factory: Sums the noised values; unweighted. `None` is
      `tff.aggregators.SumFactory()`. With
      `secure_sum_factory(c, local_noise_stddev=noise_stddev)` the server sees
      the sum alone.
    min_clients_per_round: m, a positive integer.

  Returns:
    An unweighted aggregation factory.

  Raises:
    TypeError: If an argument is of the wrong kind, or the factory is weighted.
    ValueError: If a number is not positive and finite. By `create`, if
      `inner_agg_factory` clips: it would clip the noise.

  Source: Alg. DP-FedAvg, line "Clip and perturb".
  """
  noise_stddev = argument_checks.check_positive(noise_stddev, 'noise_stddev')
  min_clients_per_round = argument_checks.check_positive_int(
    min_clients_per_round, 'min_clients_per_round'
  )
  if inner_agg_factory is None:
    inner_agg_factory = tff.aggregators.SumFactory()
  argument_checks.check_unweighted_factory(
    inner_agg_factory, 'inner_agg_factory'
  )
  return LocalNoiseNeedsUniformWeights(
    noise_stddev, inner_agg_factory, min_clients_per_round
  )


class LocalNoiseNeedsUniformWeights(private_reports.NeedsUniformWeights):
  """The factory that `local_gaussian_noise_factory` returns."""

  def __init__(self, noise_stddev, inner_agg_factory, min_clients_per_round):
    """Initializes the factory; see `local_gaussian_noise_factory`."""
    self._noise_stddev = noise_stddev
    self._inner_agg_factory = inner_agg_factory
    self._min_clients_per_round = min_clients_per_round

  def create(self, value_type: Any) -> tff.templates.AggregationProcess:
    """Creates the process for values of `value_type`; see the base class."""
    argument_checks.check_float_leaves(value_type)
    wide = wide_values.WideValues(value_type)
    inner = self._inner_agg_factory.create(wide.type)
    private_reports.check_does_not_clip(inner, 'inner_agg_factory')

    @tff.tensorflow.computation(wide.type)
    def add_share(value):
      return gaussian_draws.add_gaussian_noise(
        value,
        self._noise_stddev,
        gaussian_draws.fresh_key(),
        # The clients' draws add up: their sum has the tails that one lacks.
        num_draws=1,
      )

    @tff.tensorflow.computation(
      inner.next.type_signature.result.result.member, np.int32
    )
    def add_missing_shares(value, num_clients):
      num_missing = tf.maximum(self._min_clients_per_round - num_clients, 0)
      stddev = self._noise_stddev * tf.sqrt(tf.cast(num_missing, tf.float64))
      noised = tf.cond(
        num_missing > 0,
        lambda: gaussian_draws.add_gaussian_noise(
          value, stddev, gaussian_draws.fresh_key()
        ),
        lambda: tf.nest.map_structure(tf.identity, value),
      )
      return wide.narrow(noised)

    @tff.federated_computation
    def initialize():
      return tff.federated_zip(
        collections.OrderedDict(
          [
            (private_reports.NOISE_STATE, tff.federated_value((), tff.SERVER)),
            ('inner_agg', inner.initialize()),
          ]
        )
      )

    @tff.federated_computation(
      initialize.type_signature.result,
      tff.FederatedType(value_type, tff.CLIENTS),
    )
    def next_fn(state, value):
      noised = tff.federated_map(add_share, wide.widen(value))
      output = inner.next(state['inner_agg'], noised)
      num_clients = tff.federated_sum(tff.federated_value(1, tff.CLIENTS))
      new_state = collections.OrderedDict(
        [
          (
            private_reports.NOISE_STATE,
            state[private_reports.NOISE_STATE],
          ),
          ('inner_agg', output.state),
        ]
      )
      return tff.templates.MeasuredProcessOutput(
        state=tff.federated_zip(new_state),
        result=tff.federated_map(
          add_missing_shares, (output.result, num_clients)
        ),
        measurements=private_reports.with_public(
          output.measurements, noise_stddev=np.float32(self._noise_stddev)
        ),
      )

    return tff.templates.AggregationProcess(initialize, next_fn)
