"""The mean of updates that each client clips and noises by itself: local DP."""

import collections
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_clipping import argument_checks
from tff_clipping.aggregators import difference_clipping
from tff_clipping.aggregators.parts import (
  float64_values,
  gaussian_draws,
  inspect_process,
  l2_clip,
  public_measurements,
  type_checks,
)


def local_dp_mean_factory(
  *, clipping_norm: float, noise_multiplier: float
) -> tff.aggregators.UnweightedAggregationFactory:
  """Clips and noises each update at its client, and takes the mean.

  At CLIENTS, y_i = clip(x_i, c) + N(0, (z c)^2 I). At SERVER, the sum of the
  y_i over the number of clients that reported; 0 for none. Noise on the mean of
  n reports has the standard deviation z c / sqrt(n), sqrt(n) times as much as
  behind a trusted server.

  Guarantee: a report protects its client against everybody, the server
  included. Whatever two updates a client has, their clips are at most 2 c
  apart, so that one report is a Gaussian mechanism of multiplier z / 2, and k
  reports of one client are one of z / (2 sqrt(k)), also where later updates
  depend on earlier reports. `privacy.LocalPlan` charges for that, and its
  sampler bounds k. Who reports is not hidden, and neither is how many do.

  No secret cohort makes it cheaper: the server knows whose report it gets. A
  round that is run again asks for reports once more, which costs as a round.

  Reports lie on a grid that depends on the noise alone: clipped updates are
  rounded towards zero to it, which lengthens none, and the noise is drawn on
  it, as `gaussian_draws` describes. Each client draws its noise from the random
  numbers of its kernel; no key repeats it.

  Measurements:
    clipping: `report_noise_stddev` = z c, of one client's noise, `float32`.
    clipping_norm: c.

  State: that of `difference_clipping_factory`, and in it `privacy_noise`
  (empty).

  Args:
    clipping_norm: c, from 1e-12 to 1e19, in the unit of the updates.
    noise_multiplier: z, the standard deviation of a client's noise over c.

  Returns:
    An unweighted aggregation factory. There is no weighted form: the weights
    would have to be reported too.

  Raises:
    TypeError: If an argument is of the wrong kind.
    ValueError: If a number is out of range.

  Source: Truex et al. 2020, "LDP-Fed", for the setting, with the Gaussian
    mechanism in place of its condensed local DP, whose alpha is a constant of a
    metric and no (epsilon, delta).
  """
  clipping_norm = l2_clip.check_clipping_norm('clipping_norm', clipping_norm)
  noise_multiplier = argument_checks.check_positive(
    'noise_multiplier', noise_multiplier
  )
  stddev = gaussian_draws.check_noise_stddev(noise_multiplier * clipping_norm)
  return difference_clipping.difference_clipping_factory(
    clipping_norm, _MeanOfReportsFactory(stddev)
  )


class _MeanOfReportsFactory(tff.aggregators.UnweightedAggregationFactory):
  """Adds noise at each client and takes the mean of who reported."""

  def __init__(self, noise_stddev):
    self._noise_stddev = noise_stddev

  def create(self, value_type: Any) -> tff.templates.AggregationProcess:
    """Creates the process for values of `value_type`; see the base class."""
    type_checks.check_float_leaves(value_type)
    wide = float64_values.WideValues(value_type)
    stddev = self._noise_stddev

    @tff.tensorflow.computation(wide.type)
    def report(value):
      on_grid = gaussian_draws.round_towards_zero(
        value, gaussian_draws.grid_step(stddev)
      )
      return gaussian_draws.add_gaussian_noise(
        on_grid, stddev, gaussian_draws.fresh_key()
      )

    @tff.tensorflow.computation(wide.type, np.int32)
    def divide(total, count):
      # A sum over no reports is 0, and so is its mean.
      count = tf.cast(tf.maximum(count, 1), tf.float64)
      return wide.narrow(tf.nest.map_structure(lambda t: t / count, total))

    @tff.federated_computation
    def initialize():
      return tff.federated_zip(
        collections.OrderedDict(
          [(inspect_process.NOISE_STATE, tff.federated_value((), tff.SERVER))]
        )
      )

    @tff.federated_computation(
      initialize.type_signature.result,
      tff.FederatedType(value_type, tff.CLIENTS),
    )
    def next_fn(state, value):
      reports = tff.federated_map(report, wide.widen(value))
      count = tff.federated_sum(tff.federated_value(1, tff.CLIENTS))
      measurements = collections.OrderedDict(
        [(public_measurements.REPORT_STDDEV, np.float32(stddev))]
      )
      return tff.templates.MeasuredProcessOutput(
        state=state,
        result=tff.federated_map(divide, (tff.federated_sum(reports), count)),
        measurements=tff.federated_value(measurements, tff.SERVER),
      )

    return tff.templates.AggregationProcess(initialize, next_fn)
