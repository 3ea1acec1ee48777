"""Distributed differential privacy in integers, for secure summation."""

import collections
import math
from typing import Any

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
  norm = l2_clip.check_clipping_norm('clipping_norm', clipping_norm)
  z = argument_checks.check_positive('noise_multiplier', noise_multiplier)
  denominator = private_mean.check_clients_per_round(clients_per_round)
  cohort = _check_cohort(
    denominator, min_clients_per_round, max_clients_per_round
  )
  if bits is not None:
    bits = argument_checks.check_integer('bits', bits, at_least=1, at_most=62)

  def build(value_type):
    dim = rotation.padded_size(values.size_of(value_type))
    grid = integers.choose_grid(
      dim=dim,
      clipping_norm=norm,
      noise_multiplier=z,
      # An empty cohort has nothing to hide: one client has all the noise.
      min_clients=max(cohort.least, 1),
      max_clients=cohort.largest,
      bits=bits,
    )
    measured = _measure(grid, dim, cohort)
    mechanism = Mechanism(
      kind='distributed',
      clipping_norm=norm,
      noise_multiplier=z,
      clients_per_round=denominator,
      min_clients=cohort.least,
      max_clients=cohort.largest,
      public=tuple(measured),
    )
    constants = {MECHANISM: mechanism.to_json(), **measured}
    return _build_steps(value_type, dim, grid, norm, cohort, constants)

  return pipeline.NoisedSumFactory(build, denominator, cohort)


def _build_steps(value_type, dim, grid, norm, cohort, constants):
  """Returns the steps of a sum in integers."""
  specs = values.specs_of(value_type)
  sizes = [spec.shape.num_elements() for spec in tf.nest.flatten(specs)]
  padding = dim - sum(sizes)

  def initial():
    # Of the rotation, whose signs are public: the start, and the round.
    start = tf.cast(tf.timestamp() * 1e6, tf.int64)
    return collections.OrderedDict(
      [(_SEED, tf.stack([start, tf.constant(0, tf.int64)]))]
    )

  def send(value, seed):
    clipped = l2_clip.clip_by_l2_norm(value, norm).value
    # One vector, flat: TFF's own aggregator for this nests a dozen factories,
    # too deep for the messages of current versions of Protocol Buffers.
    parts = [
      tf.reshape(tf.cast(leaf, tf.float32), [-1])
      for leaf in tf.nest.flatten(clipped)
    ]
    padded = tf.concat([*parts, tf.zeros([padding])], axis=0)
    return integers.encode(
      rotation.rotate(padded, seed), grid, keys.fresh_key()
    )

  def release(total, kept, num_clients):
    num_missing = cohort.largest - num_clients
    vector = integers.decode(total, grid, num_missing, keys.fresh_key())
    vector = rotation.rotate_back(vector, kept[_SEED])
    *leaves, _ = tf.split(vector, [*sizes, padding])
    summed = tf.nest.map_structure(
      lambda spec, leaf: tf.reshape(leaf, spec.shape),
      specs,
      tf.nest.pack_sequence_as(specs, leaves),
    )
    after = kept[_SEED] + tf.constant([0, 1], tf.int64)
    return summed, collections.OrderedDict([(_SEED, after)])

  return pipeline.Steps(
    # A Python number would be an `int32`, which the sum of `int64` refuses.
    tff.aggregators.SecureModularSumFactory(np.int64(grid.modulus)),
    initial,
    send,
    release,
    lambda _: constants,
    lambda kept: kept[_SEED],
  )


def _measure(grid, dim, cohort):
  """Returns what is measured beside the record."""
  share = grid.share_stddev / grid.scale
  return dict(
    clipping_norm=np.float32(grid.sensitivity / grid.scale),
    noise_stddev=np.float32(math.sqrt(cohort.largest) * share),
    share_noise_stddev=np.float32(share),
    min_clients_per_round=np.int32(cohort.least),
    max_clients_per_round=np.int32(cohort.largest),
    bits_per_client=np.int64((grid.modulus.bit_length() - 1) * dim),
  )


def _check_cohort(
  clients_per_round: float, least: Any, largest: Any
) -> pipeline.Cohort:
  """Returns the bounds of a cohort, each of which is P if it is not given."""
  bounds = []
  for name, bound, at_least in (
    ('min_clients_per_round', least, 0),
    ('max_clients_per_round', largest, 1),
  ):
    if bound is None and not clients_per_round.is_integer():
      raise ValueError(
        f'`{name}` must be given where `clients_per_round` is not an integer, '
        f'found None and {clients_per_round}.'
      )
    bound = int(clients_per_round) if bound is None else bound
    bounds.append(argument_checks.check_integer(name, bound, at_least=at_least))
  cohort = pipeline.Cohort(*bounds)
  if cohort.least > cohort.largest:
    raise ValueError(
      '`min_clients_per_round` (P if it is not given) must be at most '
      f'`max_clients_per_round`, found {cohort.least} and {cohort.largest}.'
    )
  return cohort
