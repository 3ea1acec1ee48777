"""Distributed differential privacy in integers, for secure summation."""

import collections
import dataclasses
import math
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_clipping import argument_checks
from tff_clipping.aggregators.parts import (
  cohort_bounds,
  discrete_gaussian,
  gaussian_draws,
  hadamard,
  l2_clip,
  noised_sum,
  type_checks,
)
from tff_clipping.mechanism import MECHANISM, Mechanism

# Of the rotation, whose signs are public: the time of the start, and the round.
_SEED_TYPE = tff.TensorType(np.int64, [2])


def distributed_gaussian_mean_factory(
  *,
  clipping_norm: float,
  noise_multiplier: float,
  clients_per_round: float,
  min_clients_per_round: int | None = None,
  max_clients_per_round: int | None = None,
  bits: int | None = None,
) -> tff.aggregators.UnweightedAggregationFactory:
  """A mean whose privacy is proven for the integers that are really summed.

  At CLIENTS: clip to c; rotate by a random Hadamard matrix, which spreads the
  update over all elements; multiply by a scale; round at random to integers,
  again until the norm is below a bound Delta; add a share of discrete Gaussian
  noise of standard deviation s = z * Delta / sqrt(m); reduce by the modulus. By
  `tff.aggregators.SecureModularSumFactory`, the sum. At SERVER: the M - n
  shares that are missing if n clients took part; reduce by the modulus, to what
  is nearest to 0; divide by the scale; rotate back; divide by P.

  Guarantee: the sum of the integers that is released is a discrete Gaussian
  mechanism of sensitivity Delta and standard deviation s * sqrt(M), whatever n
  is, so that it does not tell n; the sum of the clients' integers alone has s *
  sqrt(n). Both are at least z * Delta. The Renyi divergences are at most those
  of the Gaussian mechanism with noise multiplier z (under adding or removing
  one client; z / 2 under replacing one), and the bound for cohorts of a fixed
  size is so too; see `tff_clipping.privacy.accounting.renyi`. So a plan with
  `accountant='rdp'` and the sampling 'fixed_size' or 'none' holds for the
  integers; of `accountant='pld'` nobody has proved it. A round of fewer than m
  or more than M clients fails and releases nothing. That it fails is seen, so
  that the size of a cohort must be public, or always within the bounds.
  Nothing rests on floating-point numbers: the norms are checked in integers and
  the noise is drawn from integer tables, to within 2^-126 * 24 * sigma in total
  variation for each element and draw.

  Without `bits` nothing wraps. With them the modulus is 2^`bits`, 4 standard
  deviations of an element of the sum on either side, and the grid is as fine as
  that allows. An element of the sum that is beyond wraps, which costs accuracy
  and never privacy: what is released is the remainder of the sum of integers,
  which is a function of that sum. A coarser grid has a larger Delta, and so
  more noise, up to 1.5 times as much where it is coarsest: `clipping_norm` of
  the measurements is Delta.

  The epsilon of a plan that samples is for who sees what is released, and not
  for the server, which knows each cohort; see `local_gaussian_noise_factory`.
  The server of simulations (`tff_clipping.runtime`, `tff.backends.test`) adds
  in the clear. Against a real server, which counts its clients, the secure
  summation must refuse cohorts below `min_clients_per_round`.

  It is slower than `dp_mean_factory`, and adds 1 % more noise for the rounding,
  without `bits`. Elements are padded by a third
  at most.

  Measurements:
    mechanism: A `Mechanism` of the kind 'distributed' as JSON, with c.
    clipping_norm: Delta in the unit of the updates, `float32`: what rounding to
      integers leaves of c, without `bits` up to 1 % above it.
    noise_stddev: That of the sum, M shares, in the unit of the updates.
    share_noise_stddev: That of one share.
    min_clients_per_round: m, `int32`.
    max_clients_per_round: M, `int32`.
    bits_per_client: What one client sends to the secure sum, in bits, `int64`:
      those of an element, for all elements with the padding.

  Args:
    clipping_norm: c, from 1e-12 to 1e19, in the unit of the updates.
    noise_multiplier: z, the standard deviation over the sensitivity; positive.
    clients_per_round: P, the size of a cohort or its expectation; at least 1.
    min_clients_per_round: m, the least cohort, whose own noise suffices; not
      negative. 0 allows a round without clients, and is as 1 for s. `None` is
      P, which must be an integer then.
    max_clients_per_round: M, the largest cohort, positive and at least m.
      `None` is P, which must be an integer then. Both are P for cohorts of a
      fixed size; a plan's `share_parameters` has them for the others.
    bits: The bits of an element of the sum, from 1 to 62, as D2P-Fed and
      Kairouz et al. choose them; `None` for so many that nothing wraps.

  Returns:
    An unweighted aggregation factory.

  Raises:
    TypeError: If an argument is of the wrong kind.
    ValueError: If a number is out of its range. By `create`, if the updates
      have so many elements that one client's noise would be too large, or needs
      more `bits`.

  Source: Kairouz et al. 2021, "The distributed discrete Gaussian mechanism for
    federated learning with secure aggregation", Algs. 1 and 2; Wang et
    al. 2020, "D2P-Fed" (arXiv 2006.13039). The paper of this package adds
    continuous noise.
  """
  clipping_norm = l2_clip.check_clipping_norm('clipping_norm', clipping_norm)
  noise_multiplier = argument_checks.check_positive(
    'noise_multiplier', noise_multiplier
  )
  clients_per_round = cohort_bounds.check_clients_per_round(clients_per_round)
  if (
    min_clients_per_round is None
    and isinstance(max_clients_per_round, (int, np.integer))
    and max_clients_per_round < clients_per_round
  ):
    raise ValueError(
      '`max_clients_per_round` must be at least `clients_per_round` where '
      '`min_clients_per_round`, which is P then, is not given, found '
      f'{max_clients_per_round} and {clients_per_round:g}.'
    )
  bounds = cohort_bounds.check_cohort_bounds(
    _default_to_cohort(
      min_clients_per_round, 'min_clients_per_round', clients_per_round
    ),
    _default_to_cohort(
      max_clients_per_round, 'max_clients_per_round', clients_per_round
    ),
  )
  if bits is not None:
    bits = argument_checks.check_integer('bits', bits, at_least=1, at_most=62)
  return DistributedGaussianMeanFactory(
    clipping_norm, noise_multiplier, clients_per_round, *bounds, bits
  )


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class DistributedGaussianMeanFactory(
  tff.aggregators.UnweightedAggregationFactory
):
  """What `distributed_gaussian_mean_factory` returns; see its arguments."""

  clipping_norm: float
  noise_multiplier: float
  clients_per_round: float
  min_clients: int
  max_clients: int
  bits: int | None

  def create(self, value_type: Any) -> tff.templates.AggregationProcess:
    """Creates the process for values of `value_type`; see the base class."""
    type_checks.check_float_leaves(value_type)
    structures = []
    leaves = tff.structure.flatten(value_type)
    size = sum(math.prod(leaf.shape) for leaf in leaves)
    dim = hadamard.padded_size(size)
    grid = discrete_gaussian.choose_grid(
      dim=dim,
      clipping_norm=self.clipping_norm,
      noise_multiplier=self.noise_multiplier,
      # An empty cohort has nothing to hide: one client has all the noise.
      min_clients=max(self.min_clients, 1),
      max_clients=self.max_clients,
      bits=self.bits,
    )

    @tff.tensorflow.computation(value_type, _SEED_TYPE)
    def send(value, seed):
      # The Python containers, for the way back.
      structures.append(
        tf.nest.map_structure(lambda t: tf.TensorSpec(t.shape, t.dtype), value)
      )
      clipped = l2_clip.clip_by_l2_norm(value, self.clipping_norm).value
      # One vector, flat: TFF's own aggregator for this nests a dozen factories,
      # too deep for the messages of current versions of Protocol Buffers.
      parts = [
        tf.reshape(tf.cast(leaf, tf.float32), [-1])
        for leaf in tf.nest.flatten(clipped)
      ]
      padded = tf.concat([*parts, tf.zeros([dim - size])], axis=0)
      return _encode(hadamard.rotate(padded, seed), grid)

    # A Python number would be an `int32`, which the sum of `int64` refuses.
    inner = tff.aggregators.SecureModularSumFactory(
      np.int64(grid.modulus)
    ).create(send.type_signature.result)

    @tff.tensorflow.computation(
      send.type_signature.result, np.int32, _SEED_TYPE
    )
    def release(total, num_clients, seed):
      vector = _decode(
        total, num_clients, grid, self.min_clients, self.max_clients
      )
      mean = hadamard.rotate_back(vector, seed)[:size] / tf.cast(
        self.clients_per_round, tf.float32
      )
      specs = tf.nest.flatten(structures[0])
      leaves = tf.split(mean, [s.shape.num_elements() for s in specs])
      return tf.nest.pack_sequence_as(
        structures[0],
        [
          tf.cast(tf.reshape(leaf, s.shape), s.dtype)
          for leaf, s in zip(leaves, specs, strict=True)
        ],
      )

    @tff.tensorflow.computation
    def first_seed():
      return tf.stack(
        [tf.cast(tf.timestamp() * 1e6, tf.int64), tf.constant(0, tf.int64)]
      )

    @tff.tensorflow.computation(_SEED_TYPE)
    def next_seed(seed):
      return seed + tf.constant([0, 1], tf.int64)

    @tff.federated_computation
    def initialize():
      return tff.federated_zip(
        collections.OrderedDict(
          rotation_seed=tff.federated_eval(first_seed, tff.SERVER),
          inner_agg=inner.initialize(),
        )
      )

    stddev = math.sqrt(self.max_clients) * grid.share_stddev / grid.scale
    measured = collections.OrderedDict(
      clipping_norm=np.float32(grid.sensitivity / grid.scale),
      noise_stddev=np.float32(stddev),
      share_noise_stddev=np.float32(grid.share_stddev / grid.scale),
      min_clients_per_round=np.int32(self.min_clients),
      max_clients_per_round=np.int32(self.max_clients),
      bits_per_client=np.int64(grid.bits * dim),
    )
    mechanism = Mechanism(
      kind='distributed',
      clipping_norm=self.clipping_norm,
      noise_multiplier=self.noise_multiplier,
      clients_per_round=self.clients_per_round,
      min_clients=self.min_clients,
      max_clients=self.max_clients,
      public=tuple(measured),
    )

    @tff.federated_computation(
      initialize.type_signature.result,
      tff.FederatedType(value_type, tff.CLIENTS),
    )
    def next_fn(state, value):
      seed = state['rotation_seed']
      sent = tff.federated_map(send, (value, tff.federated_broadcast(seed)))
      output = inner.next(state['inner_agg'], sent)
      num_clients = tff.federated_secure_sum_bitwidth(
        tff.federated_value(1, tff.CLIENTS), 1
      )
      new_state = collections.OrderedDict(
        rotation_seed=tff.federated_map(next_seed, seed),
        inner_agg=output.state,
      )
      return tff.templates.MeasuredProcessOutput(
        state=tff.federated_zip(new_state),
        result=tff.federated_map(release, (output.result, num_clients, seed)),
        measurements=noised_sum.at_server(
          {MECHANISM: mechanism.to_json(), **measured}
        ),
      )

    return tff.templates.AggregationProcess(initialize, next_fn)


def _encode(vector, grid):
  """Returns a vector in integers, with a client's share of the noise."""
  keys = tf.random.stateless_uniform(
    [2, 2],
    gaussian_draws.fresh_key(),
    minval=None,
    maxval=None,
    dtype=tf.int64,
    alg='philox',
  )
  rounded = discrete_gaussian.round_to_norm(
    vector * grid.scale, grid.sensitivity, keys[0]
  )
  noised = rounded + discrete_gaussian.draw_discrete_gaussian(
    vector.shape[0], grid.share_stddev, keys[1]
  )
  return _remainder(noised, grid.modulus)


def _decode(total, num_clients, grid, least, largest):
  """Returns the vector of a sum of integers, with the missing shares."""
  checks = cohort_bounds.check_cohort(num_clients, least, largest)
  with tf.control_dependencies(checks):
    total = tf.identity(total)
  noised = total + discrete_gaussian.draw_shares(
    total.shape[0],
    grid.share_stddev,
    largest - num_clients,
    gaussian_draws.fresh_key(),
    max_shares=largest - least,
  )
  # Once more, to what is in [-modulus / 2, modulus / 2): with the missing
  # shares the remainder is that of the largest cohort's noise.
  half = grid.modulus // 2
  noised = _remainder(noised + half, grid.modulus) - half
  return tf.cast(tf.cast(noised, tf.float64) / grid.scale, tf.float32)


def _remainder(integers, modulus):
  """Returns integers modulo a power of 2, from 0."""
  return tf.bitwise.bitwise_and(integers, tf.constant(modulus - 1, tf.int64))


def _default_to_cohort(bound, name, clients_per_round):
  """Returns a bound of the cohort; P, if it is not given."""
  if bound is not None:
    return bound
  if not clients_per_round.is_integer():
    raise ValueError(
      f'`{name}` must be given where `clients_per_round` is not an integer, '
      f'found None and {clients_per_round}.'
    )
  return int(clients_per_round)
