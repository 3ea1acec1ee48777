"""Adds a share of Gaussian noise at each client, as in Alg. DP-FedAvg."""

import collections
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_clipping import argument_checks
from tff_clipping.aggregators import (
  clipping,
  factories,
  pipeline,
  secure_sum,
  server_noise,
)
from tff_clipping.aggregators.factories import SumFactory
from tff_clipping.aggregators.noise import gaussian, grid, keys

# The step of a share, in steps of its draws: a secure sum with room for it and
# for no long updates has none that is coarser.
_STEPS = 2**4


def local_gaussian_noise_factory(
  noise_stddev: float,
  inner_agg_factory: SumFactory | None = None,
  *,
  clients_per_round: int,
) -> SumFactory:
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
  noise_stddev = server_noise.check_noise_stddev(noise_stddev)
  clients_per_round = argument_checks.check_integer(
    'clients_per_round', clients_per_round, at_least=1
  )
  sum_factory = factories.check_sum_factory(
    'inner_agg_factory', inner_agg_factory
  )
  share = noise_stddev / math.sqrt(clients_per_round)
  check_room(share, sum_factory)

  def build(value_type):
    return build_steps(
      value_type,
      share,
      sum_factory,
      constants={
        'noise_stddev': np.float32(noise_stddev),
        'share_noise_stddev': np.float32(share),
      },
    )

  cohort = pipeline.Cohort(clients_per_round, clients_per_round)
  return pipeline.NoisedSumFactory(build, cohort=cohort)


def check_room(
  share_stddev: float, sum_factory: Any, clipping_norm: float = 0.0
) -> None:
  """Raises if a secure sum would clamp the noise of clients, or round it off.

  Args:
    share_stddev: The standard deviation of what one client adds.
    sum_factory: Sums the noised values.
    clipping_norm: What bounds the values; 0 if it is not known.

  Raises:
    ValueError: If it was made for less noise, for shorter values, or for so
      large values that its steps are too coarse for the noise.
  """
  if not isinstance(sum_factory, secure_sum.SecureSumFactory):
    return
  if sum_factory.step > grid.RELATIVE_STEP_OF_SHARES * share_stddev:
    raise ValueError(
      'A sum of shares must be fine enough for the noise, in steps of at most '
      f'{grid.RELATIVE_STEP_OF_SHARES * share_stddev:g}, found a '
      f'`secure_sum_factory` with the bound {sum_factory.bound:g} and steps of '
      f'{sum_factory.step:g}: it would round the noise of a client, '
      f'{share_stddev:g}.'
    )
  room = sum_factory.local_noise_stddev
  if room is None or room < share_stddev:
    raise ValueError(
      'A sum of shares must leave room for the noise, found a '
      f'`secure_sum_factory` with `local_noise_stddev` {room}, where each '
      f'client adds {share_stddev:g}, `noise_stddev` over the root of '
      '`clients_per_round`: it would clamp the noise.'
    )
  least = clipping_norm + secure_sum.NOISE_STDDEVS * share_stddev
  # Both bounds were added up by the same steps.
  if sum_factory.bound < least * (1 - 1e-9):
    raise ValueError(
      'A sum of shares must have room for the noise on clipped values, a bound '
      f'of at least {least:g}, found a `secure_sum_factory` with the bound '
      f'{sum_factory.bound:g}: it would clamp the noise.'
    )


def build_steps(
  value_type: tff.Type,
  share_stddev: float,
  sum_factory: SumFactory,
  *,
  clip: clipping.Clip = clipping.NO_CLIP,
  constants: Mapping[str, Any],
) -> pipeline.Steps:
  """Returns the steps of a sum of values with a share of the noise each.

  Args:
    value_type: The type of the clients' values.
    share_stddev: The standard deviation of what one client adds.
    sum_factory: Sums the noised values.
    clip: Of the clients' values.
    constants: What is measured.
  """
  clip_value = clip.build(value_type)

  def send(value):
    # What is on the grid of a secure sum is summed as it is.
    step = tf.maximum(
      _STEPS * grid.grid_step(share_stddev),
      tf.constant(getattr(sum_factory, 'step', 0.0), tf.float64),
    )
    on_grid = grid.round_towards_zero(clip_value(value).value, step, clip.norm)
    noises = gaussian.draw_gaussian(
      [leaf.shape for leaf in tf.nest.flatten(on_grid)],
      share_stddev,
      keys.fresh_key(),
    )
    noises = [grid.round_noise(noise, step) for noise in noises]
    return gaussian.add_noise(on_grid, noises, step)

  def initial():
    return collections.OrderedDict(privacy_noise=keys.initial_state(None))

  return pipeline.Steps(
    sum_factory,
    initial,
    send,
    lambda total, kept, _: (total, kept),
    lambda _: constants,
  )
