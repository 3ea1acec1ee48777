"""Where the key of a round's noise comes from: fresh, or kept in the state.

A key in the state makes a round repeatable: run again from the same state with
the same updates, it has the same noise, and so gives the same result. That is
for programs in which one key never noises two different results,
such as `tff_clipping.programs.training.training_program`: the difference of the
two would have no noise. Without a program of that kind, fresh noise is the safe
choice.

A key that was drawn has other noise under each ledger, whose number is in the
state: two runs that begin from one state, or go on from it, share none. One
that was given has the same in all runs, and is for those that have to repeat.
"""

import collections
import hashlib
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff
import tree

from tff_clipping.aggregators.parts import gaussian_draws, inspect_process

_KEY, _ROUND, _DRAW = 'key', 'round_num', 'draw'
LEDGER = 'ledger'


def takes_draws(state: Any) -> bool:
  """Returns whether noise in a state that repeats can be drawn anew.

  Args:
    state: As for `with_noise_draw`.

  Returns:
    False if what a process keeps of its noise has no number of the draw.
  """
  return all(_DRAW in fields for fields in _kept(state))


def keeps_round(state: Any) -> bool:
  """Returns whether a state keeps the number of the round with its noise.

  Args:
    state: As for `with_noise_draw`.
  """
  return any(
    inspect_process.NOISE_STATE in path and path[-1] == _ROUND
    for path, _ in tree.flatten_with_path(state)
  )


def is_given(state: Any) -> bool:
  """Returns whether noise in a state comes from a key that is no run's own.

  Args:
    state: As for `with_noise_draw`.

  Returns:
    Whether somewhere there is a `key`, and beside it no `ledger`.
  """
  kept = _kept(state)
  return any(_KEY in fields and LEDGER not in fields for fields in kept)


def check_ledger(state: Any, ledger_id: str | None) -> None:
  """Raises if a state is of another ledger, which some of its noise is of.

  Args:
    state: As for `with_noise_draw`.
    ledger_id: The `run_id` of the ledger that is charged.

  Raises:
    ValueError: If it is.
  """
  expected = {0, _number(ledger_id)}
  for path, leaf in tree.flatten_with_path(state):
    in_noise = inspect_process.NOISE_STATE in path
    if in_noise and path[-1] == LEDGER and int(leaf) not in expected:
      raise ValueError(
        '`state` must be of a run that began with this ledger, found one of '
        'another ledger. Another run begins with a new state, with its '
        '`initialize`, and the weights of this one.'
      )


def check_next_round(state: Any, round_num: int) -> None:
  """Raises if a state would noise a round as another one was noised.

  Args:
    state: As for `with_noise_draw`.
    round_num: The round that is to be run from it, from 1.

  Raises:
    ValueError: If noise in the state, where it repeats, is that of another
      round. Noise that is fresh in each round is of none.
  """
  for path, leaf in tree.flatten_with_path(state):
    if inspect_process.NOISE_STATE in path and path[-1] == _ROUND:
      if int(leaf) != round_num - 1:
        raise ValueError(
          f'`state` must be that before round {round_num}, found one with the '
          f'noise of round {int(leaf) + 1}: the same noise on two results does '
          'not hide their difference. Another plan begins with a new state, '
          'with its `initialize`, and the weights of this one.'
        )


def with_noise_draw(
  state: Any, draw: int, *, ledger_id: str | None = None
) -> Any:
  """Returns `state` with another draw of the next round's noise.

  Each draw has noise that is independent of the others'. The number counts for
  the next round alone: the state after it has draw 0 again.

  Args:
    state: The state of a process, or of one that holds it, as its `initialize`
      or `next` returned it.
    draw: The number of the draw, from 0, which is what a state has.
    ledger_id: The `run_id` of the ledger that is charged: under another one,
      a key that was drawn has other noise. `None` leaves what the state has.

  Returns:
    The state. Where noise is fresh in each round, it is as it was.
  """
  numbers = {_DRAW: np.int64(draw)}
  if ledger_id is not None:
    numbers[LEDGER] = np.int64(_number(ledger_id))

  def replace(path: tuple, leaf: Any) -> Any:
    in_noise = inspect_process.NOISE_STATE in path
    return numbers.get(path[-1], leaf) if in_noise else leaf

  return tree.map_structure_with_path(replace, state)


class NoiseKeys:
  """The keys of one process that adds noise at the server.

  The state is a structure at SERVER: empty without a `noise_key`; with one,
  `key` (`int64[2]`, as secret as the noise), `round_num` and `draw` (`int64`),
  and `ledger` (`int64`) if the key was drawn; see `with_noise_draw`.

  Attributes:
    initial: A TensorFlow computation: the state before the first round.
  """

  def __init__(self, noise_key: gaussian_draws.NoiseKey):
    """Initializes the keys.

    Args:
      noise_key: `None` for a fresh key whenever a round runs; or what the state
        keeps, from which every round and draw has a key of its own: a pair of
        64-bit integers, or 'drawn' for one that is drawn with each state.

    Raises:
      TypeError: If `noise_key` is none of them.
      ValueError: If one of the integers does not fit.
    """
    self._noise_key = gaussian_draws.check_noise_key(noise_key)
    self.initial = tff.tensorflow.computation(self._build_initial)

  def next_key(self, state: Any) -> tuple[tf.Tensor, Any]:
    """Returns the key of a round and the state after it; in a graph.

    Args:
      state: The state before the round.

    Returns:
      An `int64` tensor of shape [2], which no other round and draw has, and the
      state.
    """
    if self._noise_key is None:
      return gaussian_draws.fresh_key(), state
    key = gaussian_draws.derive_key(
      state[_KEY], tf.stack([state[_ROUND], state[_DRAW] + ledger_of(state)])
    )
    return key, self._state(state[_KEY], state[_ROUND] + 1, ledger_of(state))

  def _build_initial(self) -> Any:
    if self._noise_key is None:
      return ()
    zero = tf.constant(0, tf.int64)
    return self._state(gaussian_draws.initial_key(self._noise_key), zero, zero)

  def _state(
    self, key: tf.Tensor, round_num: tf.Tensor, ledger: tf.Tensor
  ) -> collections.OrderedDict:
    fields = [
      (_KEY, key),
      (_ROUND, round_num),
      (_DRAW, tf.constant(0, tf.int64)),
      *ledger_field(self._noise_key, ledger),
    ]
    return collections.OrderedDict(fields)


def _number(ledger_id: str | None) -> int:
  """Returns the number of a ledger, 0 for one without an id."""
  if ledger_id is None:
    return 0
  digest = hashlib.sha256(ledger_id.encode()).digest()
  return int(np.frombuffer(digest, np.int64)[0])


def _kept(state: Any) -> list[set]:
  """Returns the names of what each process in a state keeps of its noise."""
  kept = collections.defaultdict(set)
  for path, _ in tree.flatten_with_path(state):
    if inspect_process.NOISE_STATE in path:
      place = path.index(inspect_process.NOISE_STATE)
      kept[path[:place]].update(path[place + 1 :])
  return list(kept.values())


def ledger_field(
  noise_key: gaussian_draws.NoiseKey, ledger: tf.Tensor
) -> list[tuple[str, tf.Tensor]]:
  """Returns what a state has for its ledger, with its name, in a list.

  Args:
    noise_key: What the factory was given: if it is a pair of integers, the
      noise is the same under each ledger, and the list is empty.
    ledger: The number of the ledger, `int64`.
  """
  return [(LEDGER, ledger)] if noise_key == 'drawn' else []


def ledger_of(state: Any) -> tf.Tensor:
  """Returns the number of the ledger in a state of noise, 0 if it has none."""
  if LEDGER in state:
    return state[LEDGER]
  return tf.constant(0, tf.int64)
