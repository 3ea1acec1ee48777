"""Where the key of a round's noise comes from: fresh, or a seed that was given.

Noise is fresh whenever a round runs. A seed is for tests and simulations: the
noise is then a function of the seed, the round and the tensor, and whoever
knows the seed can subtract the noise.
"""

import collections
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff
import tree

from tff_clipping.aggregators.parts import gaussian_draws, noised_sum

KEY, ROUND = 'key', 'round_num'


def is_given(state: Any) -> bool:
  """Returns whether noise in a state comes from a seed that was given.

  Args:
    state: The state of a process, or of one that holds it.
  """
  return any(
    noised_sum.NOISE_STATE in path and path[-1] == KEY
    for path, _ in tree.flatten_with_path(state)
  )


def check_next_round(state: Any, round_num: int) -> None:
  """Raises if a state would noise a round as another one was noised.

  Args:
    state: The state of a process, or of one that holds it.
    round_num: The round that is to be run from it, from 1.

  Raises:
    ValueError: If noise in the state depends on the round, and is that of
      another round. Noise that is fresh in each round is of none.
  """
  for path, leaf in tree.flatten_with_path(state):
    if noised_sum.NOISE_STATE in path and path[-1] == ROUND:
      if int(leaf) != round_num - 1:
        raise ValueError(
          f'`state` must be that before round {round_num}, found one with the '
          f'noise of round {int(leaf) + 1}: the same noise on two results does '
          'not hide their difference. Another run begins with a new state, '
          'with its `initialize`, and the weights of this one.'
        )


class NoiseKeys:
  """The keys of one process that adds noise at the server.

  The state is a structure at SERVER: empty without a `noise_key`; with one,
  `key` (`int64[2]`, as secret as the noise) and `round_num` (`int64`).

  Attributes:
    initial: A TensorFlow computation: the state before the first round.
  """

  def __init__(self, noise_key: gaussian_draws.NoiseKey):
    """Initializes the keys.

    Args:
      noise_key: `None` for a fresh key whenever a round runs; or a pair of
        64-bit integers, from which every round has a key of its own.

    Raises:
      TypeError: If `noise_key` is neither.
      ValueError: If one of the integers does not fit.
    """
    self._noise_key = gaussian_draws.check_noise_key(noise_key)
    self.initial = tff.tensorflow.computation(self._build_initial)

  def next_key(self, state: Any) -> tuple[tf.Tensor, Any]:
    """Returns the key of a round and the state after it; in a graph.

    Args:
      state: The state before the round.

    Returns:
      An `int64` tensor of shape [2], which no other round has, and the state.
    """
    if self._noise_key is None:
      return gaussian_draws.fresh_key(), state
    key = gaussian_draws.derive_key(
      state[KEY], tf.stack([state[ROUND], tf.constant(0, tf.int64)])
    )
    return key, self._state(state[KEY], state[ROUND] + 1)

  def _build_initial(self) -> Any:
    if self._noise_key is None:
      return ()
    return self._state(
      tf.constant(self._noise_key, tf.int64), tf.constant(0, tf.int64)
    )

  def _state(
    self, key: tf.Tensor, round_num: tf.Tensor
  ) -> collections.OrderedDict:
    return collections.OrderedDict([(KEY, key), (ROUND, round_num)])
