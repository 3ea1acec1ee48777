"""Private means: what most users want, in one call.

Each is the whole way from a client's update to the mean that is released: clip,
grid, sum, exact noise, public denominator. Nothing of somebody's own is inside,
so that a mean knows what it does, and measures it as a `Mechanism`.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import tensorflow_federated as tff

from tff_clipping import argument_checks
from tff_clipping.aggregators import (
  correlated_noise,
  difference_clipping,
  gaussian_noise,
  local_gaussian_noise,
  per_layer_clipping,
  secure_sum,
)
from tff_clipping.aggregators.parts import (
  cohort_bounds,
  gaussian_draws,
  l2_clip,
  noised_sum,
  type_checks,
)
from tff_clipping.mechanism import MECHANISM, Mechanism

SumFactory: TypeAlias = tff.aggregators.UnweightedAggregationFactory
# Returns the clip of values of a type, in a graph.
ClipBuilder: TypeAlias = Callable[[tff.Type], Callable[[Any], l2_clip.Clipped]]


def dp_mean_factory(
  *,
  clipping_norm: float | Sequence[float],
  noise_multiplier: float,
  clients_per_round: float,
  sum_factory: SumFactory | None = None,
  noise_key: gaussian_draws.NoiseKey = None,
) -> SumFactory:
  """Clips, sums, adds noise to the sum at the server, and divides by P.

  At CLIENTS, clip(x_i, c). At SERVER, (sum of them + N(0, (z c)^2 I)) / P. P is
  the public `clients_per_round`, whatever the realised cohort: dividing by that
  would reveal it. An empty cohort gives 0 + noise.

  Guarantee: a round is the Gaussian mechanism with noise multiplier z under
  adding or removing one client, and z / 2 under replacing one, on the cohort
  that was sampled; the accountant takes the sampling into account. It holds for
  the numbers that are released; `parts.gaussian_draws` has the theorem. The
  weights are uniform, and there is no weighted form. An update that is not
  finite, or whose sum of squares is above the largest `float32`, becomes zero.

  Measurements:
    mechanism: A `Mechanism` of the kind 'gaussian' as JSON; absent if
      `sum_factory` is one of your own, of which nobody knows what it does.
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
    noise_key: `None` for fresh noise, or a pair of integers for tests; see
      `gaussian_noise_factory`.

  Returns:
    An unweighted aggregation factory.

  Raises:
    TypeError: If an argument is of the wrong kind.
    ValueError: If a number is out of range.

  Source: Alg. DP-FedAvg, with its P independent shares of noise drawn as one,
    which has the same distribution. Departs from it in dividing by P in every
    round. McMahan et al. 2018, Sec. 2, for norms of tensors.
  """
  noise_key = gaussian_draws.check_noise_key(noise_key)

  def build(value_type, sum_factory, stddev, **pipeline):
    noise = gaussian_noise.build_noise(
      value_type, stddev, sum_factory, noise_key, multiplier=noise_multiplier
    )
    return noised_sum.build_noised_sum(
      value_type, sum_factory, noise, **pipeline
    )

  return _build_factory(
    clipping_norm, noise_multiplier, clients_per_round, sum_factory, build
  )


def correlated_dp_mean_factory(
  *,
  clipping_norm: float | Sequence[float],
  noise_multiplier: float,
  clients_per_round: float,
  strategy: correlated_noise.NoiseStrategy,
  sum_factory: SumFactory | None = None,
  noise_key: gaussian_draws.NoiseKey = None,
) -> SumFactory:
  """Clips, sums, adds noise that is correlated between rounds, divides by P.

  At CLIENTS, clip(x_i, c). At SERVER, (sum of them + the round's row of C^{-1}
  Z) / P, where Z has independent elements of standard deviation z c; see
  `correlated_noise_factory`, and `dp_mean_factory` for what both have alike.

  Guarantee: all rounds together are one Gaussian mechanism with noise
  multiplier z / `strategy.compute_sensitivity(participation)`, under zeroing
  out one client, as `privacy.CorrelatedNoisePlan` charges it.

  Measurements: those of `dp_mean_factory`; the record is of the kind
  'correlated', and has the digest of the strategy.

  Args:
    clipping_norm: c, or the norms of tensors, as for `dp_mean_factory`.
    noise_multiplier: z, the standard deviation of a draw over c.
    clients_per_round: P, the size of a cohort; at least 1.
    strategy: How the noise of a round depends on those before.
    sum_factory: As for `dp_mean_factory`.
    noise_key: `None` for fresh draws, or a pair of integers for tests; see
      `correlated_noise_factory`.

  Returns:
    An unweighted aggregation factory.

  Raises:
    TypeError: If an argument is of the wrong kind.
    ValueError: If a number is out of range.
  """
  recurrence = correlated_noise.check_strategy(strategy)
  noise_key = gaussian_draws.check_noise_key(noise_key)

  def build(value_type, sum_factory, stddev, **pipeline):
    noise = correlated_noise.build_noise(
      value_type,
      recurrence,
      stddev,
      sum_factory,
      noise_key,
      # A client that takes part moves the draws by c at least.
      multiplier=noise_multiplier,
    )
    return noised_sum.build_noised_sum(
      value_type, sum_factory, noise, **pipeline
    )

  return _build_factory(
    clipping_norm,
    noise_multiplier,
    clients_per_round,
    sum_factory,
    build,
    kind='correlated',
    strategy=correlated_noise.strategy_digest(recurrence),
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
  `local_gaussian_noise_factory` for who sees what, and `dp_mean_factory` for
  what both have alike.

  Guarantee: that of `dp_mean_factory`, for cohorts of exactly P clients. A
  round of others fails and releases nothing.

  Measurements: those of `dp_mean_factory`; the record is of the kind 'shares'.

  Args:
    clipping_norm: c, or the norms of tensors, as for `dp_mean_factory`.
    noise_multiplier: z, the standard deviation of the noise on the sum over c.
    clients_per_round: P, the size of every cohort, positive.
    sum_factory: Sums the noised updates. `None` is
      `tff.aggregators.SumFactory()`. With `secure_sum_factory(c,
      local_noise_stddev=z * c / sqrt(P))` the server sees the sum alone.

  Returns:
    An unweighted aggregation factory.

  Raises:
    TypeError: If an argument is of the wrong kind.
    ValueError: If a number is out of range, or `sum_factory` is a
      `secure_sum_factory` without room for the noise.

  Source: Alg. DP-FedAvg.
  """
  clients_per_round = argument_checks.check_integer(
    'clients_per_round', clients_per_round, at_least=1
  )

  def build(value_type, sum_factory, stddev, **pipeline):
    return local_gaussian_noise.build_shared_noise(
      value_type, sum_factory, stddev, clients_per_round, **pipeline
    )

  factory = _build_factory(
    clipping_norm,
    noise_multiplier,
    clients_per_round,
    sum_factory,
    build,
    kind='shares',
    min_clients=clients_per_round,
    max_clients=clients_per_round,
  )
  local_gaussian_noise.check_room(
    factory.noise_stddev, clients_per_round, sum_factory, factory.clipping_norm
  )
  return factory


def record_of(
  mechanism: Mechanism, sum_factory: SumFactory | None
) -> Mapping[str, str]:
  """Returns the measurement of a record, with its name.

  Args:
    mechanism: What a mean does if its sum is one.
    sum_factory: What sums in it. Of one of somebody's own nobody knows what it
      does, and there is no record.
  """
  if not secure_sum.is_plain_sum(sum_factory):
    return {}
  return {MECHANISM: mechanism.to_json()}


def _build_factory(
  clipping_norm: Any,
  noise_multiplier: Any,
  clients_per_round: Any,
  sum_factory: SumFactory | None,
  build: Callable[..., tff.templates.AggregationProcess],
  **kind: Any,
) -> 'PrivateMeanFactory':
  """Returns the factory of a private mean, which `build` has the noise of."""
  norm, measured, build_clip = _check_clip(clipping_norm)
  z = argument_checks.check_positive('noise_multiplier', noise_multiplier)
  stddev = gaussian_draws.check_noise_stddev(z * norm)
  denominator = cohort_bounds.check_clients_per_round(clients_per_round)
  if sum_factory is None:
    sum_factory = tff.aggregators.SumFactory()
  type_checks.check_unweighted_factory('sum_factory', sum_factory)
  constants = {**measured, 'noise_stddev': np.float32(stddev)}
  mechanism = Mechanism(
    clipping_norm=norm,
    noise_multiplier=z,
    clients_per_round=denominator,
    public=tuple(constants),
    **{'kind': 'gaussian', **kind},
  )
  return PrivateMeanFactory(
    build_clip,
    norm,
    stddev,
    denominator,
    sum_factory,
    build,
    {**record_of(mechanism, sum_factory), **constants},
  )


def _check_clip(
  clipping_norm: Any,
) -> tuple[float, dict[str, Any], ClipBuilder]:
  """Returns c, what is measured of it, and the clip to it."""
  if np.ndim(clipping_norm):
    norms = per_layer_clipping.check_clipping_norms(clipping_norm)
    return (
      per_layer_clipping.combined_clipping_norm(norms),
      {'clipping_norms': np.array(norms, np.float32)},
      functools.partial(per_layer_clipping.build_clip, norms=norms),
    )
  norm = l2_clip.check_clipping_norm('clipping_norm', clipping_norm)
  return (
    norm,
    {'clipping_norm': np.float32(norm)},
    functools.partial(difference_clipping.build_clip, norm=norm),
  )


# No repr: it would show the key of the noise.
@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class PrivateMeanFactory(tff.aggregators.UnweightedAggregationFactory):
  """A private mean; see the functions that return it.

  Attributes:
    build_clip: Returns the clip of values of a type, in a graph, which returns
      an `l2_clip.Clipped`.
    clipping_norm: c, of all tensors together.
    noise_stddev: z c.
    clients_per_round: P.
    sum_factory: Sums the clipped values.
    build: Returns the process for values of a type, with the sum, the standard
      deviation of the noise, and the rest by name, as `build_noised_sum`.
    constants: What is measured.
  """

  build_clip: ClipBuilder
  clipping_norm: float
  noise_stddev: float
  clients_per_round: float
  sum_factory: SumFactory
  build: Callable[..., tff.templates.AggregationProcess]
  constants: Mapping[str, Any]

  def create(self, value_type: Any) -> tff.templates.AggregationProcess:
    """Creates the process for values of `value_type`; see the base class."""
    type_checks.check_float_leaves(value_type)
    clip = self.build_clip(value_type)
    return self.build(
      value_type,
      self.sum_factory,
      self.noise_stddev,
      clip=lambda value: clip(value).value,
      bound=self.clipping_norm,
      denominator=self.clients_per_round,
      constants=self.constants,
    )
