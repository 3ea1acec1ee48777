"""Distributed differential privacy in integers, for secure summation."""

import collections
import math

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_clipping import argument_checks
from tff_clipping.aggregators import l2_clip, pipeline, private_mean, values
from tff_clipping.aggregators.factories import SumFactory
from tff_clipping.aggregators.noise import integers, keys, rotation
from tff_clipping.mechanism import MECHANISM, Mechanism

_SEED = 'rotation_seed'


def distributed_gaussian_mean_factory(
  *,
  clipping_norm: float,
  noise_multiplier: float,
  clients_per_round: float,
  min_clients_per_round: int | None = None,
  max_clients_per_round: int | None = None,
  bits: int | None = None,
) -> SumFactory:
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
  is; the sum of the clients' integers alone has s * sqrt(n). Both are at least
  z * Delta. By Theorem 3 of `aggregators.noise`, which rests on integers alone,
  the Renyi divergences are at most those of the Gaussian mechanism with noise
  multiplier z under adding or removing one client, and z / 2 under replacing
  one. So a plan with `accountant='rdp'` and the sampling 'fixed_size'
  (`tff_clipping.privacy.accounting.renyi`) or 'none' holds for the integers; of
  `accountant='pld'` nobody has proved it. A round of fewer than m
  or more than M clients fails and releases nothing. Whoever sees the failure
  learns of the size: it must be public, or always within the bounds. Against a
  real server, which counts its clients, the secure summation must refuse
  cohorts below m. `local_gaussian_noise_factory` says who sees what.

  Without `bits` nothing wraps, and there is up to 1 % more noise, for the
  rounding. With them the modulus is 2^`bits`, 4 standard deviations of an
  element of the sum on either side. An element beyond wraps, which costs
  accuracy and never privacy: the remainder is a function of the sum. The
  coarser the grid that the modulus allows, the larger are Delta and the noise,
  up to 1.5 times. More than 5 elements are padded by a third at most.

  Measurements:
    mechanism: A `Mechanism` of the kind 'distributed' as JSON, with c.
    clipping_norm: Delta in the unit of the updates, `float32`.
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
      P, then an integer, as for cohorts of a fixed size; a plan's
      `share_parameters` has both bounds for other cohorts.
    max_clients_per_round: M, the largest cohort, positive and at least m.
      `None` is P.
    bits: The bits of an element of the sum, from 1 to 62; `None` for so many
      that nothing wraps.

  Raises:
    ValueError: By `create`, if the updates have so many elements that one
      client's noise would be too large, or needs more `bits`.

  Source: Kairouz et al. 2021, "The distributed discrete Gaussian mechanism for
    federated learning with secure aggregation", Algs. 1 and 2; Wang et
    al. 2020, "D2P-Fed" (arXiv 2006.13039).
  """
  norm = l2_clip.check_clipping_norm('clipping_norm', clipping_norm)
  z = argument_checks.check_positive('noise_multiplier', noise_multiplier)
  denominator = private_mean.check_clients_per_round(clients_per_round)
  # P that is not an integer leaves `None`, which is refused as no integer.
  bounds = [min_clients_per_round, max_clients_per_round]
  if denominator.is_integer():
    bounds = [int(denominator) if n is None else n for n in bounds]
  least = argument_checks.check_integer(
    'min_clients_per_round', bounds[0], at_least=0
  )
  largest = argument_checks.check_integer(
    'max_clients_per_round', bounds[1], at_least=max(least, 1)
  )
  if bits is not None:
    bits = argument_checks.check_integer('bits', bits, at_least=1, at_most=62)

  def build(value_type):
    size = values.size_of(value_type)
    dim = rotation.padded_size(size)
    grid = integers.choose_grid(
      dim=dim,
      clipping_norm=norm,
      noise_multiplier=z,
      # An empty cohort has nothing to hide: one client has all the noise.
      min_clients=max(least, 1),
      max_clients=largest,
      bits=bits,
    )
    share = grid.share_stddev / grid.scale
    measured = dict(
      clipping_norm=np.float32(grid.sensitivity / grid.scale),
      noise_stddev=np.float32(math.sqrt(largest) * share),
      share_noise_stddev=np.float32(share),
      min_clients_per_round=np.int32(least),
      max_clients_per_round=np.int32(largest),
      bits_per_client=np.int64((grid.modulus.bit_length() - 1) * dim),
    )
    mechanism = Mechanism(
      kind='distributed',
      clipping_norm=norm,
      noise_multiplier=z,
      clients_per_round=denominator,
      min_clients=least,
      max_clients=largest,
      public=tuple(measured),
    )
    constants = {MECHANISM: mechanism.to_json(), **measured}
    specs = values.specs_of(value_type)
    shapes = [spec.shape for spec in tf.nest.flatten(specs)]

    def initial():
      # Of the rotation, whose signs are public: the start, and the round.
      start = tf.cast(tf.timestamp() * 1e6, tf.int64)
      seed = tf.stack([start, tf.constant(0, tf.int64)])
      return collections.OrderedDict({_SEED: seed})

    def send(value, seed):
      clipped = l2_clip.clip_by_l2_norm(value, norm).value
      parts = [
        tf.reshape(tf.cast(leaf, tf.float32), [-1])
        for leaf in tf.nest.flatten(clipped)
      ]
      padded = tf.concat([*parts, tf.zeros([dim - size])], axis=0)
      rotated = rotation.rotate(padded, seed)
      return integers.encode(rotated, grid, keys.fresh_key()), tf.constant(1)

    def release(total, kept, num_clients):
      total = pipeline.check_cohort(total, num_clients, least, largest)
      num_missing = largest - num_clients
      vector = integers.decode(total, grid, num_missing, keys.fresh_key())
      vector = rotation.rotate_back(vector, kept[_SEED])
      sizes = [shape.num_elements() for shape in shapes]
      *parts, _ = tf.split(vector, [*sizes, dim - size])
      leaves = [
        tf.reshape(part, shape)
        for part, shape in zip(parts, shapes, strict=True)
      ]
      after = kept[_SEED] + tf.constant([0, 1], tf.int64)
      return (
        tf.nest.pack_sequence_as(specs, leaves),
        collections.OrderedDict({_SEED: after}),
        constants,
      )

    return pipeline.Steps(
      # A Python number would be an `int32`, which the sum of `int64` refuses.
      tff.aggregators.SecureModularSumFactory(np.int64(grid.modulus)),
      initial,
      send,
      release,
      told=_SEED,
    )

  return pipeline.build_factory(build, denominator)
