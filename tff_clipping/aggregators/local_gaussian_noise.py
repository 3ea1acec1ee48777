"""Adds a share of Gaussian noise at each client, as in Alg. DP-FedAvg."""

import collections
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

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
  they were. So cohorts have a fixed size, as the sampling 'fixed_size' of a
  plan draws them; those of a secret size need `gaussian_noise_factory`.

  The server behind a secure summation sees no more than what is released. But
  it knows who is in each cohort, so that no sampling hides a client from it: a
  client that takes part in k rounds has the epsilon of k Gaussian releases. A
  plan's epsilon, which counts on secret cohorts, is for who sees what is
  released. A secure summation that hides the single values must also refuse
  other cohorts.

  What is released lies on a grid that depends on s and P alone, to which
  clients' values are rounded towards zero. It does not clip; put it inside a
  clip. What becomes zero is as for `gaussian_noise_factory`. The noise comes
  from the random numbers of the Linux kernel where the client runs, without
  which it fails: no secret is in what is sent to clients. There is no seed,
  since an aggregator cannot tell its clients apart.

  Measurements (those of `inner_agg_factory`, which have no noise, are dropped):
    noise_stddev: s, that on the sum, `float32`.
    share_noise_stddev: s / sqrt(P), that of one client's share, `float32`.

  State: `privacy_noise` (empty), `inner_agg`.

  Args:
    noise_stddev: s, from 1e-37 to 1e37, in the unit of the sum: z c for a noise
      multiplier z and values that are clipped to c.
    inner_agg_factory: Sums the noised values, and does not clip, which would
      cut the noise. `None` is `tff.aggregators.SumFactory()`. With
      `secure_sum_factory(c, local_noise_stddev=s / sqrt(P))` the server sees
      the sum alone; one for less noise is refused.
    clients_per_round: P, the size of every cohort, positive.

  Source: Alg. DP-FedAvg, line "Clip and perturb".
  """
  noise_stddev = server_noise.check_noise_stddev(noise_stddev)
  clients_per_round = argument_checks.check_integer(
    'clients_per_round', clients_per_round, at_least=1
  )
  share = noise_stddev / math.sqrt(clients_per_round)
  return noised_sum_factory(
    noise_stddev,
    factories.check_sum_factory('inner_agg_factory', inner_agg_factory),
    clients_per_round=clients_per_round,
    constants={
      'noise_stddev': np.float32(noise_stddev),
      'share_noise_stddev': np.float32(share),
    },
  )


def noised_sum_factory(
  noise_stddev: float,
  sum_factory: SumFactory,
  *,
  clients_per_round: int,
  clip: clipping.Clip = clipping.NO_CLIP,
  denominator: float = 1.0,
  constants: Mapping[str, Any],
) -> SumFactory:
  """Returns the factory of a sum, or mean, of values with shares of the noise.

  The arguments are those of `server_noise.noised_sum_factory`, where
  `noise_stddev` is that of all shares together.
  """
  share = noise_stddev / math.sqrt(clients_per_round)
  _check_room(share, sum_factory, clip.norm)

  def build(value_type):
    clip_value = clip.build(value_type)

    def send(value):
      # What is on the grid of a secure sum is summed as it is.
      step = tf.maximum(
        _STEPS * grid.grid_step(share),
        tf.constant(getattr(sum_factory, 'step', 0.0), tf.float64),
      )
      clipped = clip_value(value).value
      on_grid = grid.round_towards_zero(clipped, step, clip.norm)
      noises = gaussian.draw_gaussian(
        [leaf.shape for leaf in tf.nest.flatten(on_grid)],
        share,
        keys.fresh_key(),
      )
      noises = [grid.round_noise(noise, step) for noise in noises]
      return gaussian.add_noise(on_grid, noises, step), tf.constant(1)

    def initial():
      return collections.OrderedDict(privacy_noise=keys.initial_state(None))

    def release(total, kept, num_clients):
      total = pipeline.check_cohort(
        total, num_clients, clients_per_round, clients_per_round
      )
      return total, kept, constants

    return pipeline.Steps(sum_factory, initial, send, release)

  return pipeline.build_factory(build, denominator)


def _check_room(share_stddev: float, sum_factory: Any, norm: float) -> None:
  """Raises if a secure sum would clamp clients' noise, or round it off."""
  if not isinstance(sum_factory, secure_sum.SecureSumFactory):
    return
  if math.isinf(norm):  # Clipped elsewhere, to the norm that the sum is for.
    norm = sum_factory.clipping_norm
  least = norm + gaussian.LARGEST_DRAW * share_stddev
  coarsest = grid.RELATIVE_STEP_OF_SHARES * share_stddev
  # Both bounds were added up by the same steps.
  is_wide = sum_factory.bound >= least * (1 - 1e-9)
  if not is_wide or sum_factory.step > coarsest:
    raise ValueError(
      f'`secure_sum_factory` must have a bound of at least {least:g} and steps '
      f'of at most {coarsest:g}, found {sum_factory.bound:g} and '
      f'{sum_factory.step:g}: it would clamp or round off the noise of a '
      f'client, whose `local_noise_stddev` is {share_stddev:g}.'
    )
