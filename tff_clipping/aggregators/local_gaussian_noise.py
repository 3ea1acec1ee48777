"""Adds a share of Gaussian noise at each client, as in Alg. DP-FedAvg."""

import math
from collections.abc import Callable, Mapping
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

  State: that of `inner_agg_factory`.

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
  check_room(noise_stddev, clients_per_round, inner_agg_factory)
  return LocalGaussianNoiseFactory(
    noise_stddev, inner_agg_factory, clients_per_round
  )


class LocalGaussianNoiseFactory(tff.aggregators.UnweightedAggregationFactory):
  """The factory that `local_gaussian_noise_factory` returns."""

  def __init__(self, noise_stddev, inner_agg_factory, clients_per_round):
    """Initializes the factory; see `local_gaussian_noise_factory`."""
    self._noise_stddev = noise_stddev
    self._inner_agg_factory = inner_agg_factory
    self._clients_per_round = clients_per_round

  def create(self, value_type: Any) -> tff.templates.AggregationProcess:
    """Creates the process for values of `value_type`; see the base class."""
    share = share_stddev(self._noise_stddev, self._clients_per_round)
    return build_shared_noise(
      value_type,
      self._inner_agg_factory,
      self._noise_stddev,
      self._clients_per_round,
      constants={
        'noise_stddev': np.float32(self._noise_stddev),
        'share_noise_stddev': np.float32(share),
      },
    )


def share_stddev(noise_stddev: float, clients_per_round: int) -> float:
  """Returns the standard deviation of what one client adds."""
  return noise_stddev / math.sqrt(clients_per_round)


def check_room(
  noise_stddev: float,
  clients_per_round: int,
  sum_factory: Any,
  clipping_norm: float = 0.0,
) -> None:
  """Raises if a secure sum would clamp the noise of clients.

  Args:
    noise_stddev: The standard deviation of the noise on the sum.
    clients_per_round: The size of every cohort.
    sum_factory: Sums the noised values.
    clipping_norm: What bounds the values; 0 if it is not known.

  Raises:
    ValueError: If it was made for less noise, or for shorter values.
  """
  if not isinstance(sum_factory, secure_sum.SecureSumFactory):
    return
  share = share_stddev(noise_stddev, clients_per_round)
  room = sum_factory.local_noise_stddev
  if room is None or room < share:
    raise ValueError(
      'A sum of shares must leave room for the noise, found a '
      f'`secure_sum_factory` with `local_noise_stddev` {room}, where each '
      f'client adds {share:g}, `noise_stddev` over the root of '
      '`clients_per_round`: it would clamp the noise.'
    )
  least = clipping_norm + secure_sum.NOISE_STDDEVS * share
  # Both bounds were added up by the same steps.
  if sum_factory.bound < least * (1 - 1e-9):
    raise ValueError(
      'A sum of shares must have room for the noise on clipped values, a bound '
      f'of at least {least:g}, found a `secure_sum_factory` with the bound '
      f'{sum_factory.bound:g}: it would clamp the noise.'
    )


def build_shared_noise(
  value_type: Any,
  sum_factory: tff.aggregators.UnweightedAggregationFactory,
  noise_stddev: float,
  clients_per_round: int,
  *,
  clip: Callable[[Any], Any] = lambda value: value,
  bound: float = math.inf,
  denominator: float = 1.0,
  constants: Mapping[str, Any],
) -> tff.templates.AggregationProcess:
  """Returns the process that clips, adds shares of noise, sums and divides.

  Args:
    value_type: The type of the clients' values.
    sum_factory: Sums the noised values.
    noise_stddev: The standard deviation of the noise on the sum.
    clients_per_round: The size of every cohort.
    clip: As for `noised_sum.build_noised_sum`.
    bound: As for `noised_sum.build_noised_sum`.
    denominator: As for `noised_sum.build_noised_sum`.
    constants: What is measured, by name.

  Raises:
    TypeError: If a leaf is not floating-point.
  """
  type_checks.check_float_leaves(value_type)
  dtypes = float64_values.dtypes_of(value_type)
  share = share_stddev(noise_stddev, clients_per_round)

  @tff.tensorflow.computation(value_type)
  def send(value):
    step = _STEPS * gaussian_draws.grid_step(share)
    # What is on the grid of a secure sum is summed as it is.
    step = tf.maximum(
      step, tf.constant(getattr(sum_factory, 'step', 0.0), step.dtype)
    )
    on_grid = noised_sum.to_grid(clip(value), step, bound)
    leaves = tf.nest.flatten(on_grid)
    noises = gaussian_draws.draw_gaussian(
      [leaf.shape for leaf in leaves], share, gaussian_draws.fresh_key()
    )
    noised = [
      leaf + gaussian_draws.round_noise(noise, step)
      for leaf, noise in zip(leaves, noises, strict=True)
    ]
    return tf.nest.pack_sequence_as(value, noised)

  inner = sum_factory.create(send.type_signature.result)

  @tff.tensorflow.computation(
    inner.next.type_signature.result.result.member, np.int32
  )
  def release(total, num_clients):
    checks = cohort_bounds.check_cohort(
      num_clients, clients_per_round, clients_per_round
    )
    with tf.control_dependencies(checks):
      total = tf.nest.map_structure(tf.identity, total)
    return noised_sum.divide(total, denominator, dtypes)

  @tff.federated_computation(
    inner.initialize.type_signature.result,
    tff.FederatedType(value_type, tff.CLIENTS),
  )
  def next_fn(state, value):
    output = inner.next(state, tff.federated_map(send, value))
    num_clients = tff.federated_sum(tff.federated_value(1, tff.CLIENTS))
    return tff.templates.MeasuredProcessOutput(
      output.state,
      tff.federated_map(release, (output.result, num_clients)),
      noised_sum.at_server(constants),
    )

  return tff.templates.AggregationProcess(inner.initialize, next_fn)
