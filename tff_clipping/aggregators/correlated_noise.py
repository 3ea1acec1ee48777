"""Adds noise to an aggregate that is correlated between rounds."""

import collections
import hashlib
from typing import Any, Final, Protocol

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_clipping.aggregators.parts import (
  gaussian_draws,
  grid_sums,
  inspect_process,
  noise_keys,
  noised_process,
  type_checks,
)

_KEY, _ROUND, _SLOTS = 'key', 'round_num', 'slots'

# The step of what is released, in steps of the draws, where these are mixed:
# each point is reached.
_STEPS = 2**5


class NoiseRecurrence(Protocol):
  """Noise as a stream; see `privacy.correlated_noise.NoiseRecurrence`."""

  @property
  def phases(self) -> np.ndarray:
    """The row of the tables for each round, of shape [num_rounds]."""

  @property
  def draw_weights(self) -> np.ndarray:
    """What a draw counts for, of shape [num_phases]."""

  @property
  def read_weights(self) -> np.ndarray:
    """What the slots count for, of shape [num_phases, num_slots]."""

  @property
  def release_weights(self) -> np.ndarray:
    """What a round takes back, of the same shape."""

  @property
  def keep_weights(self) -> np.ndarray:
    """The share of each slot that stays, of the same shape."""

  @property
  def write_weights(self) -> np.ndarray:
    """How much of what is new goes to each slot, of the same shape."""


_TABLES: Final = (
  'phases',
  'draw_weights',
  'read_weights',
  'release_weights',
  'keep_weights',
  'write_weights',
)


class NoiseStrategy(Protocol):
  """What says how noise is correlated, as `privacy.blt_strategy` returns."""

  @property
  def recurrence(self) -> NoiseRecurrence:
    """The noise as a stream, for a standard deviation of 1."""


def correlated_noise_factory(
  strategy: NoiseStrategy,
  noise_stddev: float,
  inner_agg_factory: tff.aggregators.UnweightedAggregationFactory | None = None,
  *,
  noise_key: gaussian_draws.NoiseKey = None,
) -> tff.aggregators.UnweightedAggregationFactory:
  """Adds noise that later rounds' noise partly takes back, at the SERVER.

  At SERVER, `inner_agg_factory`'s result + the round's row of C^{-1} Z, where C
  is the matrix of `strategy` and Z has a row of independent N(0,
  `noise_stddev`^2) for each round. The rows come one by one, from one draw a
  round and a few arrays of the size of the result: the bands of a banded
  strategy less one, the buffers of a BLT, log2(T) for a tree.

  Guarantee: if one client moves the result of `inner_agg_factory` by at most
  `s` in L2 in the rounds in which it takes part, all rounds together are one
  Gaussian mechanism with noise multiplier `noise_stddev` / (`s` *
  `strategy.compute_sensitivity(participation)`), under zeroing out one client.
  What holds clients to `participation` is the sampler; what bounds `s` is a
  clip, outside or inside. An empty cohort gives 0 + noise.

  A round that is run again from the same state has the same noise, because the
  key of the noise is in the state: fresh noise would break what C is made for.
  Whoever has a state can subtract the noise of later rounds: keep it secret.
  And a round must not be run again with another cohort, or other updates, once
  its result has been released: the difference of the two results would have no
  noise at all.

  What is released lies on a grid, of at most 2^-24 standard deviations of a
  draw: clients' values are rounded towards zero to it, as by
  `gaussian_noise_factory`, and the noise to the nearest point. The
  draws are exact, on a grid that is finer by 2^5; see `gaussian_draws`. How
  they are mixed is not: what is kept of them is in `float32`, so that the law
  of the noise is off by its rounding, which does not depend on the values. Of
  that no proof is known.

  Measurements:
    noise_stddev: That of one draw, `float32`.
    strategy_digest: A string, by which `strategy` is told from others; see
      `strategy_digest`.

  Of the measurements of `inner_agg_factory`, only those are reported, beside
  these, that do not reveal what the noise hides, as for
  `gaussian_noise_factory`.

  State: `privacy_noise`, with `key` (`int64[2]`, as secret as the noise),
  `round_num` (`int64`), `ledger` (`int64`) if the key was drawn, and `slots`,
  what is kept of the noises before, with a dimension for them before those of
  each tensor; `inner_agg`.

  Args:
    strategy: How the noise of a round depends on those before, for so many
      rounds as the program runs: the round after the last is an error when it
      is run. A `privacy.RestartedStrategy` begins anew instead.
    noise_stddev: The standard deviation of a draw, from 1e-37 to 1e37, in the
      unit of the result.
    inner_agg_factory: Sums the values; unweighted. `None` is
      `tff.aggregators.SumFactory()`.
    noise_key: `None` and 'drawn' draw a key from fresh entropy whenever the
      process is initialized. A pair of 64-bit integers is for tests: whoever
      knows it can subtract the noise, and all that is made with it has the same
      draws.

  Returns:
    An unweighted aggregation factory.

  Raises:
    TypeError: If an argument is of the wrong kind, or the factory is weighted.
    ValueError: If `noise_stddev` is out of range. By `create`, if a clipping
      norm is estimated inside `inner_agg_factory`, or it is no sum: a mean, or
      one that compresses.

  Source: Denisov et al. 2022 (arXiv 2202.08312); for the strategies, see
    `tff_clipping.privacy.correlated_noise`.
  """
  recurrence = getattr(strategy, 'recurrence', None)
  if recurrence is None:
    raise TypeError(
      '`strategy` must be a noise strategy, such as `privacy.blt_strategy` '
      f'returns, found {strategy!r}.'
    )
  noise_stddev = gaussian_draws.check_noise_stddev(noise_stddev)
  noise_key = gaussian_draws.check_noise_key(noise_key)
  if inner_agg_factory is None:
    inner_agg_factory = tff.aggregators.SumFactory()
  type_checks.check_unweighted_factory('inner_agg_factory', inner_agg_factory)
  return CorrelatedNoiseFactory(
    recurrence, noise_stddev, inner_agg_factory, noise_key or 'drawn'
  )


class CorrelatedNoiseFactory(tff.aggregators.UnweightedAggregationFactory):
  """The factory that `correlated_noise_factory` returns."""

  def __init__(self, recurrence, noise_stddev, inner_agg_factory, noise_key):
    """Initializes the factory; see `correlated_noise_factory`."""
    self._recurrence = recurrence
    self._noise_stddev = noise_stddev
    self._inner_agg_factory = inner_agg_factory
    self._noise_key = noise_key
    is_mixed = recurrence.read_weights.shape[1] or np.any(
      recurrence.draw_weights != 1
    )
    self._steps = _STEPS if is_mixed else 1

  def create(self, value_type: Any) -> tff.templates.AggregationProcess:
    """Creates the process for values of `value_type`; see the base class."""
    type_checks.check_float_leaves(value_type)
    stddev = self._noise_stddev * grid_sums.noise_factor(
      self._inner_agg_factory,
      value_type,
      self._steps * gaussian_draws.RELATIVE_STEP,
    )
    return noised_process.build_noised_process(
      value_type,
      self._inner_agg_factory,
      lambda sum_type: self._build_noise(value_type, sum_type, stddev),
      step=lambda: self._steps * gaussian_draws.grid_step(stddev),
      constants={
        'noise_stddev': np.float32(self._noise_stddev),
        inspect_process.STRATEGY: strategy_digest(self._recurrence),
      },
    )

  def _build_noise(
    self, value_type: Any, sum_type: tff.Type, stddev: float
  ) -> noised_process.ServerNoise:
    """Returns the stream of noise for sums of a type."""
    num_slots = self._recurrence.read_weights.shape[1]
    shapes = [spec.shape for spec in _leaf_specs(sum_type)]
    # Sums are wide, but what is kept of noise need not be.
    kept_dtypes = [
      spec.dtype if spec.dtype == tf.float64 else tf.float32
      for spec in _leaf_specs(value_type)
    ]

    @tff.tensorflow.computation
    def initial():
      key = gaussian_draws.initial_key(self._noise_key)
      slots = [
        tf.zeros([num_slots, *shape], dtype)
        for shape, dtype in zip(shapes, kept_dtypes, strict=True)
      ]
      zero = tf.constant(0, tf.int64)
      return self._noise_state(key, zero, zero, slots)

    def add(value, state):
      noises, slots = next_noise(
        self._recurrence,
        self._draw(state, shapes, stddev),
        list(state[_SLOTS]),
        state[_ROUND],
      )
      step = self._steps * gaussian_draws.grid_step(stddev)
      # The sum is on the grid, where its inner factory leaves it there.
      total = gaussian_draws.round_to_nearest(value, step)
      noised = [
        leaf + gaussian_draws.round_noise(noise, step)
        for leaf, noise in zip(tf.nest.flatten(total), noises, strict=True)
      ]
      return (
        tf.nest.pack_sequence_as(value, noised),
        self._noise_state(
          state[_KEY], state[_ROUND] + 1, noise_keys.ledger_of(state), slots
        ),
      )

    return noised_process.ServerNoise(initial, add)

  def _draw(self, state, shapes, stddev):
    """Returns a round's draws, a function of key, round and ledger."""
    round_key = gaussian_draws.derive_key(
      state[_KEY], tf.stack([state[_ROUND], noise_keys.ledger_of(state)])
    )
    return gaussian_draws.draw_gaussian(shapes, stddev, round_key)

  def _noise_state(self, key, round_num, ledger, slots):
    """Returns the state of the noise."""
    fields = [
      (_KEY, key),
      (_ROUND, round_num),
      *noise_keys.ledger_field(self._noise_key, ledger),
      (_SLOTS, slots),
    ]
    return collections.OrderedDict(fields)


def strategy_digest(recurrence: NoiseRecurrence) -> str:
  """Returns a string that tells a stream of noise from others.

  It is a digest of the tables, to the last bit. A strategy that was written
  down and read back has the same. One that is optimised anew may have another,
  on another processor or with another version of SciPy: take that of the plan
  in the ledger, by `privacy.read_plan`.
  """
  digest = hashlib.blake2b(digest_size=8)
  for name in _TABLES:
    # Zero has no sign then.
    table = np.asarray(getattr(recurrence, name), np.float64) + 0.0
    digest.update(f'{name} {table.shape};'.encode())
    digest.update(table.tobytes())
  return digest.hexdigest()


def next_noise(
  recurrence: NoiseRecurrence,
  draws: list[tf.Tensor],
  slots: list[tf.Tensor],
  round_num: tf.Tensor,
) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
  """Returns the noise of a round and what is kept after it.

  Args:
    recurrence: How they follow from the draws.
    draws: A tensor of Gaussian draws for each tensor that is noised.
    slots: For each of them, what is kept, of shape [num_slots, ...], of the
      same dtype or a narrower one.
    round_num: The round, from 0. In a graph, a round that `recurrence` has no
      noise for fails.

  Returns:
    Noises like `draws`, and slots like `slots`.
  """
  num_rounds = len(recurrence.phases)
  check = tf.debugging.assert_less(
    round_num,
    tf.constant(num_rounds, tf.int64),
    message=f'The noise strategy is for {num_rounds} rounds, and all of them '
    'were run: what was released is private as planned, one more round is not. '
    'A RestartedStrategy has more.',
  )
  with tf.control_dependencies([check] if check is not None else []):
    phase = tf.gather(tf.constant(recurrence.phases, tf.int64), round_num)

  def row(table):
    return tf.gather(tf.constant(table, tf.float64), phase)

  draw_weight = row(recurrence.draw_weights)
  if not recurrence.read_weights.shape[1]:
    return [tf.cast(draw_weight, draw.dtype) * draw for draw in draws], slots
  read, release = row(recurrence.read_weights), row(recurrence.release_weights)
  keep, write = row(recurrence.keep_weights), row(recurrence.write_weights)

  def next_of_tensor(draw, slot):

    def column(weights):
      weights = tf.cast(weights, slot.dtype)
      return tf.reshape(weights, [-1] + [1] * draw.shape.rank)

    def taken(weights):
      found = tf.reduce_sum(column(weights) * slot, axis=0)
      return tf.cast(found, draw.dtype)

    new = tf.cast(draw_weight, draw.dtype) * draw + taken(read)
    kept = column(keep) * slot + column(write) * tf.cast(new, slot.dtype)
    return new + taken(release), kept

  pairs = [next_of_tensor(*pair) for pair in zip(draws, slots, strict=True)]
  return [noise for noise, _ in pairs], [slot for _, slot in pairs]


def _leaf_specs(value_type: Any) -> list[tf.TensorSpec]:
  """Returns the shapes and dtypes of a value's tensors, as a graph has them."""
  specs = []

  @tff.tensorflow.computation(value_type)
  def record(value):
    specs.extend(map(tf.TensorSpec.from_tensor, tf.nest.flatten(value)))
    return value

  del record  # It has been traced, which was all.
  return specs
