"""Adds a share of Gaussian noise at each client, as in Alg. DP-FedAvg."""

import math
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_clipping.aggregators import secure_sum
from tff_clipping.aggregators.parts import (
  cohort_bounds,
  float64_values,
  gaussian_draws,
  noised_sum,
  type_checks,
)

# What the server adds to every sum beside the missing shares, as a part of one
# share's variance. Fixed-point sums lie on a grid, which would tell that a full
# cohort got no noise at the server.
_LEAST_SHARES = 2.0**-10

# The step of a share, in steps of its draws: a secure sum with room for it and
# for no long updates has none that is coarser.
_STEPS = 2**4


def local_gaussian_noise_factory(
  noise_stddev: float,
  inner_agg_factory: tff.aggregators.UnweightedAggregationFactory | None = None,
  *,
  min_clients_per_round: int,
  max_clients_per_round: int,
) -> tff.aggregators.UnweightedAggregationFactory:
  """Adds noise in shares: one at each client, the missing ones at the server.

  At CLIENTS, x_i + N(0, s^2), for s = `noise_stddev`; then `inner_agg_factory`,
  a sum, on these. At SERVER, + N(0, (M - n) s^2), if n clients took part, for
  M = `max_clients_per_round`.

  Guarantee: what is released has noise of standard deviation s * sqrt(M) in
  every round, so that it does not tell n. (It is more by a factor of less than
  1.0005, the same in every round: see `_LEAST_SHARES`.) A round of fewer than
  m = `min_clients_per_round` or more than M clients fails and releases
  nothing. That a round fails is seen, so who takes part must be drawn within
  the bounds: in cohorts of exactly m = M = P clients, or by a plan's
  'truncated_poisson'.

  Somebody who sees the sum of the clients' shares alone, the server behind a
  secure summation, finds noise of s * sqrt(n), and so of s * sqrt(m) at least.
  For a noise multiplier z with clips to c, use s = z * c / sqrt(m): then both
  have at least the noise of a plan with z, and m = M = P is Alg. DP-FedAvg. The
  plan's epsilon is for who sees what is released. The server knows who is in
  each cohort, so that no sampling hides a client from it: towards it, a client
  that takes part in k rounds has the epsilon of k Gaussian releases of
  multiplier z. A secure summation that hides the single values must also refuse
  cohorts below m.

  What is released lies on a grid that depends on s and M alone: clients' values
  are rounded towards zero to it, shares are drawn on it, and sums are exact, as
  for `gaussian_noise_factory`.

  It does not clip; put it inside a clip. Noise of its own for each client,
  tensor and round comes from the random numbers of the kernel where the client
  runs: no secret is in what is sent to clients. Where there is no Linux kernel,
  a client fails; there is no key for repeatable
  runs, since an aggregator cannot tell its clients apart. Noise at the server,
  by `gaussian_noise_factory`, has the same distribution and takes a key.

  Measurements:
    share_noise_stddev: s, that of one client's share, `float32`.
    min_clients_per_round: m, `int32`.
    max_clients_per_round: M, `int32`.

  Of the measurements of `inner_agg_factory`, only those are reported, beside
  these, that do not reveal what the noise hides; see
  `gaussian_noise_factory`.

  State: `privacy_noise` (empty), `inner_agg`.

  Args:
    noise_stddev: s, from 1e-37 to 1e37, in the unit of the values.
    inner_agg_factory: Sums the noised values; unweighted. `None` is
      `tff.aggregators.SumFactory()`. With
      `secure_sum_factory(c, local_noise_stddev=noise_stddev)` the server sees
      the sum alone.
    min_clients_per_round: m, the least cohort, not negative. 0 allows a round
      without clients, and is as 1 for s.
    max_clients_per_round: M, the largest cohort, positive and at least m.

  Returns:
    An unweighted aggregation factory.

  Raises:
    TypeError: If an argument is of the wrong kind, or the factory is weighted.
    ValueError: If a number is out of range, or `inner_agg_factory` is a
      `secure_sum_factory` for less noise. By `create`, if `inner_agg_factory`
      clips or clamps, since it would cut the noise, or is no sum: a mean,
      or one that compresses.

  Source: Alg. DP-FedAvg, line "Clip and perturb".
  """
  noise_stddev = gaussian_draws.check_noise_stddev(noise_stddev)
  bounds = cohort_bounds.check_cohort_bounds(
    min_clients_per_round, max_clients_per_round
  )
  if inner_agg_factory is None:
    inner_agg_factory = tff.aggregators.SumFactory()
  type_checks.check_unweighted_factory('inner_agg_factory', inner_agg_factory)
  _check_room(noise_stddev, inner_agg_factory)
  return LocalGaussianNoiseFactory(noise_stddev, inner_agg_factory, *bounds)


def _check_room(noise_stddev: float, inner_agg_factory: Any) -> None:
  """Raises if a secure sum was made for less noise than there is."""
  if not isinstance(inner_agg_factory, secure_sum.SecureSumFactory):
    return
  room = inner_agg_factory.local_noise_stddev
  if room is None or room < noise_stddev:
    raise ValueError(
      '`inner_agg_factory` must leave room for the noise, found a '
      f'`secure_sum_factory` with `local_noise_stddev` {room}, where '
      f'`noise_stddev` is {noise_stddev:g}: it would clamp the noise.'
    )


class LocalGaussianNoiseFactory(tff.aggregators.UnweightedAggregationFactory):
  """The factory that `local_gaussian_noise_factory` returns."""

  def __init__(self, noise_stddev, inner_agg_factory, min_clients, max_clients):
    """Initializes the factory; see `local_gaussian_noise_factory`."""
    self._noise_stddev = noise_stddev
    self._inner_agg_factory = inner_agg_factory
    self._min_clients = min_clients
    self._max_clients = max_clients

  def create(self, value_type: Any) -> tff.templates.AggregationProcess:
    """Creates the process for values of `value_type`; see the base class."""
    type_checks.check_float_leaves(value_type)
    dtypes = float64_values.dtypes_of(value_type)

    def share_step():
      step = _STEPS * gaussian_draws.grid_step(self._noise_stddev)
      # What is on the grid of a secure sum is summed as it is.
      return tf.maximum(
        step,
        tf.constant(getattr(self._inner_agg_factory, 'step', 0.0), step.dtype),
      )

    @tff.tensorflow.computation(value_type)
    def add_share(value):
      step = share_step()
      leaves = tf.nest.flatten(noised_sum.to_grid(value, step))
      noises = gaussian_draws.draw_gaussian(
        [leaf.shape for leaf in leaves],
        self._noise_stddev,
        gaussian_draws.fresh_key(),
      )
      noised = [
        leaf + gaussian_draws.round_noise(noise, step)
        for leaf, noise in zip(leaves, noises, strict=True)
      ]
      return tf.nest.pack_sequence_as(value, noised)

    inner = self._inner_agg_factory.create(add_share.type_signature.result)

    @tff.tensorflow.computation(
      inner.next.type_signature.result.result.member, np.int32
    )
    def add_missing_shares(value, num_clients):
      num_missing = cohort_bounds.count_missing_shares(
        num_clients, self._min_clients, self._max_clients
      )
      num_shares = tf.cast(num_missing, tf.float64) + _LEAST_SHARES
      leaves = tf.nest.flatten(value)
      noises = gaussian_draws.draw_gaussian(
        [leaf.shape for leaf in leaves],
        self._noise_stddev * tf.sqrt(num_shares),
        gaussian_draws.fresh_key(),
      )
      # One grid for all cohorts: a finer one would tell how many shares there
      # are.
      step = tf.maximum(
        share_step(),
        gaussian_draws.grid_step(
          self._noise_stddev * math.sqrt(self._max_clients + _LEAST_SHARES)
        ),
      )
      noised = [
        gaussian_draws.round_noise(leaf + noise, step)
        for leaf, noise in zip(leaves, noises, strict=True)
      ]
      return float64_values.narrow(
        tf.nest.pack_sequence_as(value, noised), dtypes
      )

    @tff.federated_computation
    def initialize():
      return noised_sum.zip_state(
        tff.federated_value((), tff.SERVER), inner.initialize()
      )

    @tff.federated_computation(
      initialize.type_signature.result,
      tff.FederatedType(value_type, tff.CLIENTS),
    )
    def next_fn(state, value):
      noised = tff.federated_map(add_share, value)
      output = inner.next(state['inner_agg'], noised)
      num_clients = tff.federated_sum(tff.federated_value(1, tff.CLIENTS))
      return tff.templates.MeasuredProcessOutput(
        state=noised_sum.zip_state(state[noised_sum.NOISE_STATE], output.state),
        result=tff.federated_map(
          add_missing_shares, (output.result, num_clients)
        ),
        measurements=noised_sum.at_server(
          dict(
            share_noise_stddev=np.float32(self._noise_stddev),
            min_clients_per_round=np.int32(self._min_clients),
            max_clients_per_round=np.int32(self._max_clients),
          )
        ),
      )

    return tff.templates.AggregationProcess(initialize, next_fn)
