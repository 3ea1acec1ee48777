"""Tree aggregation, with the optimal estimate of each running sum."""

import dataclasses
import functools
import math
from typing import ClassVar

import numpy as np

from tff_clipping.privacy.correlated_noise.noise_recurrence import (
  NoiseRecurrence,
)
from tff_clipping.privacy.correlated_noise.noise_strategy import NoiseStrategy
from tff_clipping.privacy.correlated_noise.participation import Participation


@dataclasses.dataclass(frozen=True, kw_only=True)
class TreeStrategy(NoiseStrategy):
  """Noise on every node of a binary tree over the rounds.

  Here C has a row for each complete subtree of the rounds, which adds them up,
  and `noise_stddev` is that of the noise on each row. A running sum is the sum
  of the subtrees that make it up, each estimated from all rows inside of it
  with the least variance. These estimates need one draw a round and an array of
  the size of the model for each level: what is added has the same distribution
  as if all rows had been drawn.

  Attributes:
    num_rounds: T.

  Source: Kairouz et al. 2021 (arXiv 2103.00039), with the estimate "from below"
  of Honaker 2015, which is the best that needs no later round.
  """

  kind: ClassVar[str] = 'tree'

  @property
  def recurrence(self) -> NoiseRecurrence:
    """The noise as a stream; see the base class."""
    # A slot for each level: the subtree that waits for its right neighbour.
    # The phase of a round is the level of the largest subtree that it ends.
    rounds = np.arange(1, self.num_rounds + 1)
    phases = np.round(np.log2(rounds & -rounds)).astype(np.int64)
    num_levels = self.num_rounds.bit_length()
    variances = _subtree_variances(num_levels)
    # The weight of an estimate of level 0 in that of each level above it.
    shares = np.cumprod(np.append(1.0, 1 - variances[1:]))
    level = np.arange(num_levels)
    is_below = level[np.newaxis] < level[:, np.newaxis]
    is_level = np.eye(num_levels)
    return NoiseRecurrence(
      phases=phases,
      draw_weights=_draw_weights(variances),
      read_weights=np.where(
        is_below, shares[:, np.newaxis] / shares[np.newaxis], 0
      ),
      release_weights=-(is_below + is_level),
      keep_weights=1 - (is_below + is_level),
      write_weights=is_level,
    )

  def compute_sensitivity(
    self, participation: Participation, num_rounds: int | None = None
  ) -> float:
    """Returns the sensitivity; see `NoiseStrategy.compute_sensitivity`.

    It is exact but for `rounds_per_epoch`, as for a `ToeplitzStrategy`. The
    square is computed, in integers, by going through the tree once.

    Source: Kairouz et al. 2021, Appendix D.2.
    """
    num_rounds = self._check_released(num_rounds)
    return math.sqrt(
      _squared_sensitivity(
        num_rounds,
        participation.min_separation,
        participation.count(num_rounds),
      )
    )

  def compute_prefix_variances(self) -> np.ndarray:
    """Returns the variances; see the base class."""
    num_levels = self.num_rounds.bit_length()
    rounds = np.arange(1, self.num_rounds + 1)[:, np.newaxis]
    is_part = rounds >> np.arange(num_levels) & 1
    return is_part @ _subtree_variances(num_levels)

  def describe(self) -> str:
    """Returns what the noise is, as a part of a sentence."""
    return 'the noise of tree aggregation'


def _subtree_variances(num_levels: int) -> np.ndarray:
  """Returns the variance of the best estimate of a subtree of each level.

  Returns:
    Of shape [num_levels]. It is also the weight that the row of the subtree
    itself has in the estimate; the sum of the two halves has the rest.
  """
  variances = [1.0]
  while len(variances) < num_levels:
    variances.append(1 / (1 + 1 / (2 * variances[-1])))
  return np.array(variances)


def _draw_weights(variances: np.ndarray) -> np.ndarray:
  """Returns the noise, of the rows that end in a round, in its estimate.

  Args:
    variances: What `_subtree_variances` returns.
  """
  squares = [1.0]
  for weight in variances[1:]:
    rest = 1 - weight
    # Products, unlike powers, have the same bits on each processor.
    squares.append(weight * weight + rest * rest * squares[-1])
  return np.sqrt(squares)


@functools.lru_cache(maxsize=64)  # A plan asks more than once, and it is slow.
def _squared_sensitivity(num_rounds: int, separation: int, count: int) -> int:
  """Returns the largest sum over complete subtrees of participations squared.

  A client that comes as early as its last participation allows is as free
  afterwards as it can be. So all that the rounds after a subtree need to know
  is how many rounds they have to wait, and a subtree is summed up by the best
  (participations, sum, rounds to wait after it), for each wait before it.

  Args:
    num_rounds: The rounds.
    separation: The least number of rounds between participations.
    count: The most participations.
  """
  if count == num_rounds:  # Every round: also the slowest to go through.
    levels = np.arange(num_rounds.bit_length())
    return int(np.sum((num_rounds >> levels & 1) * _every_round(levels)))
  # Within a subtree of at most so many rounds a client comes at most once.
  base_level = min(separation, num_rounds).bit_length() - 1

  @functools.cache
  def best_of(level: int, wait: int) -> np.ndarray:
    size = 2**level
    skipped = [0, 0, max(wait - size, 0)]
    if wait >= size:
      return np.array([skipped])
    if level <= base_level:
      return np.array(
        [skipped, [1, level + 1, max(wait + separation - size, 0)]]
      )
    both = append(best_of(level - 1, wait), level - 1)
    both[:, 1] += both[:, 0] ** 2
    return _best(both, count)

  def append(done: np.ndarray, level: int) -> np.ndarray:
    options = []
    for wait in np.unique(done[:, 2]):
      before = done[done[:, 2] == wait]
      after = best_of(level, int(wait))
      options.append(
        np.stack(
          [
            np.add.outer(before[:, 0], after[:, 0]).ravel(),
            np.add.outer(before[:, 1], after[:, 1]).ravel(),
            np.broadcast_to(after[:, 2], [len(before), len(after)]).ravel(),
          ],
          axis=-1,
        )
      )
    return np.concatenate(options)

  done = np.array([[0, 0, 0]])
  for level in reversed(range(num_rounds.bit_length())):
    if num_rounds >> level & 1:
      done = _best(append(done, level), count)
  return int(np.max(done[:, 1]))


def _every_round(levels: np.ndarray) -> np.ndarray:
  """Returns the sum of squares where a client comes in every round.

  Args:
    levels: Those of whole subtrees: 2^l rows of 1, ..., 1 of 2^l.
  """
  return 2**levels * (2 ** (levels + 1) - 1)


def _best(options: np.ndarray, count: int) -> np.ndarray:
  """Returns the options that are possible, and no worse than another.

  Args:
    options: `int64` of shape [num_options, 3]: participations, sum, wait.
    count: The most participations.
  """
  options = options[options[:, 0] <= count]
  # By participations, then wait, then the largest sum; longer waits are kept
  # for larger sums alone.
  options = options[np.lexsort((-options[:, 1], options[:, 2], options[:, 0]))]
  above = 1 + np.max(options[:, 1])
  ranks = np.maximum.accumulate(options[:, 0] * above + options[:, 1])
  return options[np.append(True, ranks[1:] > ranks[:-1])]
