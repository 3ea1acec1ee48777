"""Sums clipped values by secure summation, with bounds that hold."""

import collections
import math
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_clipping import argument_checks
from tff_clipping.aggregators import factories, l2_clip, values
from tff_clipping.aggregators.noise import gaussian

# Clients send integers of 32 bits, which are summed in 64: more than 2^31
# clients would be needed for the sum to wrap.
_BITS = 32
_OFFSET = 2 ** (_BITS - 1) - 1
# The largest magnitude that is sent.
_LARGEST = _OFFSET - 2**10


def secure_sum_factory(
  clipping_norm: float,
  *,
  local_noise_stddev: float | None = None,
) -> tff.aggregators.UnweightedAggregationFactory:
  """Sums values by TFF's secure summation, in fixed point.

  At CLIENTS, each element is divided by the step, the least power of 2 that is
  at least B / (2^31 - 2^10 - 1), rounded towards zero to an integer of 32 bits,
  and summed by `tff.federated_secure_sum_bitwidth`; at SERVER, the sum is
  multiplied by the step. B = c, or c + 12.1 `local_noise_stddev` if the clients
  add noise.

  Guarantee: no sum of fewer than 2^31 clients wraps. Rounding towards zero
  never lengthens an update, so that the sensitivity of the sum of clipped
  updates is c. An element loses less than a step, at most B * 1e-9; on a grid
  that is coarser, nothing. An element outside [-B, B] is clamped, and NaN
  becomes 0. Clipped updates have no such element, also with the noise of
  clients, which ends at 12.1 standard deviations.

  `tff.backends.test` and `tff_clipping.runtime` simulate the summation: their
  server adds up in the clear.

  Measurements:
    secure_sum_bound: B, `float32`.
    secure_sum_out_of_bounds_count: `int32`, how many clients had an element
      that was clamped or not a number; exact, and dropped by what adds noise.

  Args:
    clipping_norm: c, the norm that the values are clipped to, from 1e-12 to
      1e19.
    local_noise_stddev: The standard deviation of the noise that each client
      adds before the sum, as `local_gaussian_noise_factory` does. `None` if it
      adds none, as where the server adds noise.
  """
  norm = l2_clip.check_clipping_norm('clipping_norm', clipping_norm)
  noise = 0.0
  if local_noise_stddev is not None:
    noise = argument_checks.check_positive(
      'local_noise_stddev', local_noise_stddev
    )
  return SecureSumFactory(norm, norm + gaussian.LARGEST_DRAW * noise)


class SecureSumFactory(tff.aggregators.UnweightedAggregationFactory):
  """The factory of `secure_sum_factory`; its `bound` is B."""

  def __init__(self, clipping_norm: float, bound: float):
    """Initializes the factory; see `secure_sum_factory`."""
    self.clipping_norm = clipping_norm
    self.bound = bound
    # The least power of 2 that is enough. It is exact: a logarithm has another
    # last bit on another processor.
    mantissa, exponent = math.frexp(bound / _LARGEST)
    self.step = math.ldexp(1.0, exponent - (mantissa == 0.5))

  def create(self, value_type: Any) -> tff.templates.AggregationProcess:
    """Creates the process for values of `value_type`; see the base class."""
    values.check_float_leaves(value_type)
    bound, step = self.bound, self.step
    specs = values.specs_of(value_type)

    @tff.tensorflow.computation(value_type)
    def encode(value):
      encoded = tf.nest.map_structure(lambda t: _encode(t, bound, step), value)
      is_out = [_is_out_of_bounds(t, bound) for t in tf.nest.flatten(value)]
      return encoded, tf.cast(tf.reduce_any(tf.stack(is_out)), tf.int32)

    @tff.tensorflow.computation(encode.type_signature.result[0], np.int32)
    def decode(total, num_clients):
      return tf.nest.map_structure(
        lambda t, spec: _decode(t, num_clients, step, spec.dtype), total, specs
      )

    @tff.federated_computation
    def initialize():
      return tff.federated_value((), tff.SERVER)

    def trace(state, value):
      encoded, is_out = tff.federated_map(encode, value)
      total = tff.federated_secure_sum_bitwidth(encoded, _BITS)
      count = tff.federated_secure_sum_bitwidth(is_out, 1)
      num_clients = tff.federated_secure_sum_bitwidth(
        tff.federated_value(1, tff.CLIENTS), 1
      )
      measurements = collections.OrderedDict(
        secure_sum_bound=tff.federated_value(np.float32(bound), tff.SERVER),
        secure_sum_out_of_bounds_count=count,
      )
      return tff.templates.MeasuredProcessOutput(
        state,
        tff.federated_map(decode, (total, num_clients)),
        tff.federated_zip(measurements),
      )

    return factories.build_process(initialize, trace, value_type)


def is_plain_sum(factory: Any, bound: float = 0.0) -> bool:
  """Returns whether a factory does nothing but add up values up to a bound.

  A secure sum clamps what is beyond its own bound, to a number off the grid.
  """
  if type(factory) is SecureSumFactory:
    return bound <= factory.bound
  return type(factory) is tff.aggregators.SumFactory


def _is_out_of_bounds(tensor, bound):
  """Returns whether an element is outside [-bound, bound], or is NaN."""
  return ~tf.reduce_all(tf.abs(tf.cast(tensor, tf.float64)) <= bound)


def _encode(tensor, bound, step):
  """Returns a tensor in `int64`, each element in [0, 2^32 - 1)."""
  wide = tf.cast(tensor, tf.float64)
  inside = tf.cond(
    _is_out_of_bounds(tensor, bound),
    lambda: tf.clip_by_value(
      tf.where(tf.math.is_nan(wide), tf.zeros_like(wide), wide), -bound, bound
    ),
    lambda: tf.identity(wide),
  )
  # A quotient by a power of 2 is exact. Casting rounds towards zero.
  return tf.cast(inside / step, tf.int64) + _OFFSET


def _decode(total, num_clients, step, dtype):
  """Returns the sum that a sum of encoded values stands for."""
  offset = tf.cast(num_clients, tf.int64) * _OFFSET
  return tf.cast(tf.cast(total - offset, tf.float64) * step, dtype)
