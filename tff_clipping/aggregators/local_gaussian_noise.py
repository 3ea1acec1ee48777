"""Adds a share of Gaussian noise at each client, as in Alg. DP-FedAvg."""

import math
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_clipping import argument_checks
from tff_clipping.aggregators import secure_sum
from tff_clipping.aggregators.parts import (
  cohort_bounds,
  float64_values,
  gaussian_draws,
  noised_sum,
  type_checks,
)

# The step of a share, in steps of its draws: a secure sum with room for it and
# for no long updates has none that is coarser.
_STEPS = 2**4


def local_gaussian_noise_factory(
  noise_stddev: float,
  inner_agg_factory: tff.aggregators.UnweightedAggregationFactory | None = None,
  *,
  clients_per_round: int,
) -> tff.aggregators.UnweightedAggregationFactory:
  """Adds the noise of a sum in equal shares, one at each client.

  At CLIENTS, x_i + N(0, s^2 / P), for s = `noise_stddev` and P =
  `clients_per_round`; then `inner_agg_factory`, a sum, on these.

  Guarantee: what is released has noise of standard deviation s. A round of
  other than P clients fails and releases nothing: its noise would tell how many
  they were. So it is for cohorts of a fixed size, as the sampling 'fixed_size'
  of a plan draws them. Cohorts whose size is secret need noise at the server,
  by `gaussian_noise_factory`.

  The server behind a secure summation sees no more than what is released. But
  it knows who is in each cohort, so that no sampling hides a client from it: a
  client that takes part in k rounds has the epsilon of k Gaussian releases. A
  plan's epsilon, which counts on secret cohorts, is for who sees what is
  released. A secure summation that hides the single values must also refuse
  other cohorts.

  What is released lies on a grid that depends on s and P alone: clients' values
  are rounded towards zero to it, shares are drawn on it, and sums are exact, as
  for `gaussian_noise_factory`.

  It does not clip; put it inside a clip. Noise of its own for each client,
  tensor and round comes from the random numbers of the kernel where the client
  runs: no secret is in what is sent to clients. Where there is no Linux kernel,
  a client fails; there is no key for repeatable runs, since an aggregator
  cannot tell its clients apart. Noise at the server, by
  `gaussian_noise_factory`, has the same distribution and takes a key.

  Measurements:
    noise_stddev: s, that on the sum, `float32`.
    share_noise_stddev: s / sqrt(P), that of one client's share, `float32`.

  What `inner_agg_factory` measures is dropped: it has no noise.

  State: `privacy_noise` (empty), `inner_agg`.

  Args:
    noise_stddev: s, from 1e-37 to 1e37, in the unit of the sum: z c for a noise
      multiplier z and values that are clipped to c.
    inner_agg_factory: Sums the noised values, and does not clip, which would
      cut the noise; unweighted. `None` is `tff.aggregators.SumFactory()`. With
      `secure_sum_factory(c, local_noise_stddev=s / sqrt(P))` the server sees
      the sum alone.
    clients_per_round: P, the size of every cohort, positive.

  Returns:
    An unweighted aggregation factory.

  Raises:
    TypeError: If an argument is of the wrong kind, or the factory is weighted.
    ValueError: If a number is out of range, or `inner_agg_factory` is a
      `secure_sum_factory` for less noise.

  Source: Alg. DP-FedAvg, line "Clip and perturb".
  """
  noise_stddev = gaussian_draws.check_noise_stddev(noise_stddev)
  clients_per_round = argument_checks.check_integer(
    'clients_per_round', clients_per_round, at_least=1
  )
  if inner_agg_factory is None:
    inner_agg_factory = tff.aggregators.SumFactory()
  type_checks.check_unweighted_factory('inner_agg_factory', inner_agg_factory)
  factory = LocalGaussianNoiseFactory(
    noise_stddev, inner_agg_factory, clients_per_round
  )
  _check_room(factory.share_stddev, inner_agg_factory)
  return factory


def _check_room(share_stddev: float, inner_agg_factory: Any) -> None:
  """Raises if a secure sum was made for less noise than there is."""
  if not isinstance(inner_agg_factory, secure_sum.SecureSumFactory):
    return
  room = inner_agg_factory.local_noise_stddev
  if room is None or room < share_stddev:
    raise ValueError(
      '`inner_agg_factory` must leave room for the noise, found a '
      f'`secure_sum_factory` with `local_noise_stddev` {room}, where each '
      f'client adds {share_stddev:g}, `noise_stddev` over the root of '
      '`clients_per_round`: it would clamp the noise.'
    )


class LocalGaussianNoiseFactory(tff.aggregators.UnweightedAggregationFactory):
  """The factory that `local_gaussian_noise_factory` returns.

  Attributes:
    share_stddev: The standard deviation of what one client adds.
  """

  def __init__(self, noise_stddev, inner_agg_factory, clients_per_round):
    """Initializes the factory; see `local_gaussian_noise_factory`."""
    self._noise_stddev = noise_stddev
    self._inner_agg_factory = inner_agg_factory
    self._clients_per_round = clients_per_round
    self.share_stddev = noise_stddev / math.sqrt(clients_per_round)

  def create(self, value_type: Any) -> tff.templates.AggregationProcess:
    """Creates the process for values of `value_type`; see the base class."""
    type_checks.check_float_leaves(value_type)
    dtypes = float64_values.dtypes_of(value_type)
    # What is on the grid of a secure sum is summed as it is.
    sum_step = getattr(self._inner_agg_factory, 'step', 0.0)

    @tff.tensorflow.computation(value_type)
    def add_share(value):
      step = _STEPS * gaussian_draws.grid_step(self.share_stddev)
      step = tf.maximum(step, tf.constant(sum_step, step.dtype))
      leaves = tf.nest.flatten(noised_sum.to_grid(value, step))
      noises = gaussian_draws.draw_gaussian(
        [leaf.shape for leaf in leaves],
        self.share_stddev,
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
    def release(total, num_clients):
      checks = cohort_bounds.check_cohort(
        num_clients, self._clients_per_round, self._clients_per_round
      )
      with tf.control_dependencies(checks):
        total = tf.nest.map_structure(tf.identity, total)
      return float64_values.narrow(total, dtypes)

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
        result=tff.federated_map(release, (output.result, num_clients)),
        measurements=noised_sum.at_server(
          dict(
            noise_stddev=np.float32(self._noise_stddev),
            share_noise_stddev=np.float32(self.share_stddev),
          )
        ),
      )

    return tff.templates.AggregationProcess(initialize, next_fn)
