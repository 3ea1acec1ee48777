"""Private means: the whole `pipeline` in one call, with its `Mechanism`."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tff_clipping import argument_checks
from tff_clipping.aggregators import (
  clipping,
  factories,
  local_gaussian_noise,
  secure_sum,
  server_noise,
)
from tff_clipping.aggregators.factories import SumFactory
from tff_clipping.aggregators.noise import gaussian, keys
from tff_clipping.mechanism import MECHANISM, Mechanism
from tff_clipping.privacy.correlated_noise import NoiseStrategy


def dp_mean_factory(
  *,
  clipping_norm: float | Sequence[float],
  noise_multiplier: float,
  clients_per_round: float,
  sum_factory: SumFactory | None = None,
  noise_key: keys.NoiseKey = None,
) -> SumFactory:
  """Clips, sums, adds noise to the sum at the server, and divides by P.

  At CLIENTS, clip(x_i, c). At SERVER, (sum of them + N(0, (z c)^2 I)) / P. P is
  the public `clients_per_round`, whatever the realised cohort: dividing by that
  would reveal it. An empty cohort gives 0 + noise.

  Guarantee: a round is the Gaussian mechanism with noise multiplier z under
  adding or removing one client, and z / 2 under replacing one, on the cohort
  that was sampled; the accountant takes the sampling into account. It holds for
  the numbers that are released; `aggregators.noise` has the theorem. An update
  that is not finite, or whose sum of squares is above the largest `float32`,
  becomes zero.

  Measurements:
    mechanism: A `Mechanism` of the kind 'gaussian' as JSON; absent if
      `sum_factory` is one of your own, of which nobody knows what it does, or
      if P is above 2^22 z: sums may round then, and a client move them by more.
    clipping_norm: c, `float32`; `clipping_norms` where each tensor has one.
    noise_stddev: z c, on the sum, `float32`.

  Nothing that is computed from clients' data is reported without noise.

  Args:
    clipping_norm: c, from 1e-12 to 1e19, in the unit of the updates; or a
      sequence c_1, ..., c_K, to which the K tensors of an update are clipped
      one by one. Then c is sqrt(sum_k c_k^2); see `per_layer_clipping_factory`.
    noise_multiplier: z, the standard deviation of the noise on the sum over c.
    clients_per_round: P, the size of a cohort, or its expectation if clients
      are sampled independently; at least 1.
    sum_factory: Sums the clipped updates, and neither divides nor lengthens
      them. `None` is `tff.aggregators.SumFactory()`; see also
      `secure_sum_factory`.
    noise_key: As for `gaussian_noise_factory`.

  Source: Alg. DP-FedAvg, with its P independent shares of noise drawn as one,
    which has the same distribution. Departs from it in dividing by P in every
    round. McMahan et al. 2018, Sec. 2, for norms of tensors.
  """
  return _mean_factory(
    server_noise.noised_sum_factory,
    dict(kind='gaussian'),
    clipping_norm,
    noise_multiplier,
    clients_per_round,
    sum_factory,
    noise_key=noise_key,
  )


def correlated_dp_mean_factory(
  *,
  clipping_norm: float | Sequence[float],
  noise_multiplier: float,
  clients_per_round: float,
  strategy: NoiseStrategy,
  sum_factory: SumFactory | None = None,
  noise_key: keys.NoiseKey = None,
) -> SumFactory:
  """Clips, sums, adds noise that is correlated between rounds, divides by P.

  At CLIENTS, clip(x_i, c). At SERVER, (sum of them + the round's row of C^{-1}
  Z) / P, where Z has independent elements of standard deviation z c; see
  `correlated_noise_factory`.

  Guarantee: all rounds together are one Gaussian mechanism with noise
  multiplier z / `strategy.compute_sensitivity(participation)`, under zeroing
  out one client, as `privacy.CorrelatedNoisePlan` charges it.

  Arguments, errors and measurements are those of `dp_mean_factory`, where
  `noise_multiplier` is the standard deviation of a draw over c. `strategy` says
  how the noise of a round depends on the rounds before. The record is of the
  kind 'correlated', and has the digest of the strategy.
  """
  recurrence = server_noise.check_strategy(strategy)
  digest = server_noise.strategy_digest(recurrence)
  return _mean_factory(
    server_noise.noised_sum_factory,
    dict(kind='correlated', strategy=digest),
    clipping_norm,
    noise_multiplier,
    clients_per_round,
    sum_factory,
    noise_key=noise_key,
    recurrence=recurrence,
  )


def local_gaussian_mean_factory(
  *,
  clipping_norm: float | Sequence[float],
  noise_multiplier: float,
  clients_per_round: int,
  sum_factory: SumFactory | None = None,
) -> SumFactory:
  """Clips, adds a share of the noise at each client, sums, divides by P.

  At CLIENTS, clip(x_i, c) + N(0, (z c)^2 / P I). At SERVER, their sum / P. See
  `local_gaussian_noise_factory` for who sees what.

  Guarantee: that of `dp_mean_factory`, for cohorts of exactly P clients. A
  round of others fails and releases nothing.

  Arguments, errors and measurements are those of `dp_mean_factory`, where
  `clients_per_round` is an integer, the size of every cohort. With
  `secure_sum_factory(c, local_noise_stddev=z * c / sqrt(P))` the server sees
  the sum alone; a `secure_sum_factory` without room for the noise is refused.
  The record is of the kind 'shares'.

  Source: Alg. DP-FedAvg.
  """
  size = argument_checks.check_integer(
    'clients_per_round', clients_per_round, at_least=1
  )
  return _mean_factory(
    local_gaussian_noise.noised_sum_factory,
    dict(kind='shares', min_clients=size, max_clients=size),
    clipping_norm,
    noise_multiplier,
    clients_per_round,
    sum_factory,
    clients_per_round=size,
  )


def check_clients_per_round(clients_per_round: Any) -> float:
  """Returns P, by which a sum is divided, as a float of at least 1."""
  number = argument_checks.check_positive(
    'clients_per_round', clients_per_round
  )
  if number < 1.0:  # A sum that is divided by less is longer than its clip.
    raise ValueError(f'`clients_per_round` must be at least 1, found {number}.')
  return number


def record_of(
  mechanism: Mechanism, sum_factory: SumFactory
) -> Mapping[str, str]:
  """Returns the measurement of a record, by its name, if the record holds."""
  # Nobody knows what a sum of somebody's own does.
  if not secure_sum.is_plain_sum(sum_factory):
    return {}
  p, z = mechanism.clients_per_round, mechanism.noise_multiplier
  # How large sums of clipped values are at most, in steps of their grid: of
  # twice P clients, or of P with their shares of the noise. `float64` may round
  # larger ones.
  if mechanism.kind == 'shares':
    largest = 2.0**26 * p * (math.sqrt(p) / z + gaussian.LARGEST_DRAW)
  else:
    largest = 2.0**31 * p / z
  return {MECHANISM: mechanism.to_json()} if largest <= 2.0**53 else {}


def _mean_factory(
  noised_sum_factory: Callable[..., SumFactory],
  record: Mapping[str, Any],
  clipping_norm: Any,
  noise_multiplier: Any,
  denominator: Any,
  sum_factory: SumFactory | None,
  **noise: Any,
) -> SumFactory:
  """Returns a noised sum over P; `record` has the fields of its kind."""
  clip = clipping.build_clip(clipping_norm)
  z = argument_checks.check_positive('noise_multiplier', noise_multiplier)
  stddev = server_noise.check_noise_stddev(z * clip.norm)
  denominator = check_clients_per_round(denominator)
  sum_factory = factories.check_sum_factory('sum_factory', sum_factory)
  constants = {**clip.measured, 'noise_stddev': np.float32(stddev)}
  mechanism = Mechanism(
    clipping_norm=clip.norm,
    noise_multiplier=z,
    clients_per_round=denominator,
    public=tuple(constants),
    **record,
  )
  return noised_sum_factory(
    stddev,
    sum_factory,
    clip=clip,
    denominator=denominator,
    constants={**record_of(mechanism, sum_factory), **constants},
    **noise,
  )
