"""A strategy that begins anew, with independent noise, after so many rounds."""

import dataclasses
import math
from typing import Any, ClassVar

import numpy as np

from tff_clipping.privacy.correlated_noise.noise_recurrence import (
  NoiseRecurrence,
)
from tff_clipping.privacy.correlated_noise.noise_strategy import NoiseStrategy
from tff_clipping.privacy.correlated_noise.participation import Participation


@dataclasses.dataclass(frozen=True, kw_only=True)
class RestartedStrategy(NoiseStrategy):
  """Independent instances of a strategy, one after the other.

  C has the inner strategy's matrix on its diagonal, once for each instance. The
  noise of the running sums of several instances adds up, so that restarts cost
  accuracy. They pay where a client comes once in each epoch, in no fixed order:
  with an instance for each epoch, two participations of it never meet.

  Attributes:
    num_rounds: T, a multiple of the rounds of `inner`.
    inner: The strategy of one instance.

  Raises:
    TypeError: If an attribute is of the wrong kind.
    ValueError: If `num_rounds` is not a multiple.
  """

  kind: ClassVar[str] = 'restarted'

  inner: NoiseStrategy

  def __post_init__(self):
    super().__post_init__()
    if not isinstance(self.inner, NoiseStrategy):
      raise TypeError(f'`inner` must be a NoiseStrategy, found {self.inner!r}.')
    if self.num_rounds % self.inner.num_rounds:
      raise ValueError(
        f'`num_rounds` must be a multiple of the {self.inner.num_rounds} of '
        f'`inner`, found {self.num_rounds}.'
      )

  @property
  def recurrence(self) -> NoiseRecurrence:
    """The noise as a stream; see the base class."""
    inner = self.inner.recurrence
    # One more phase: as that of an inner first round, but with empty slots.
    first = inner.phases[0]
    empty = np.zeros([1, inner.num_slots])
    phases = np.append(len(inner.draw_weights), inner.phases[1:])

    def extend(table: np.ndarray) -> np.ndarray:
      return np.concatenate([table, table[[first]]])

    return NoiseRecurrence(
      phases=np.tile(phases, self.num_rounds // self.inner.num_rounds),
      draw_weights=extend(inner.draw_weights),
      read_weights=np.concatenate([inner.read_weights, empty]),
      release_weights=np.concatenate([inner.release_weights, empty]),
      keep_weights=np.concatenate([inner.keep_weights, empty]),
      write_weights=extend(inner.write_weights),
    )

  def compute_sensitivity(
    self, participation: Participation, num_rounds: int | None = None
  ) -> float:
    """Returns the sensitivity; see `NoiseStrategy.compute_sensitivity`.

    It is a bound above: a client is taken to come in the rounds of each
    instance that are worst for it, whatever the others are, at most so many
    times altogether. If epochs are whole instances, it comes once in each.

    Source: the squares of independent instances add up.
    """
    num_rounds = self._check_released(num_rounds)
    whole, rest = divmod(num_rounds, self.inner.num_rounds)
    lengths = [self.inner.num_rounds] * whole + [rest] * (rest > 0)
    most = participation.count(num_rounds)
    # best[k]: the largest sum of squares of k participations so far.
    best = np.zeros(most + 1)
    per_length = {
      length: self._squares(participation, length, most)
      for length in sorted(set(lengths))
    }
    for length in lengths:
      squares = per_length[length]
      best = np.max(
        [
          np.append(np.full(k, -np.inf), best[: most + 1 - k] + square)
          for k, square in enumerate(squares)
        ],
        axis=0,
      )
    return math.sqrt(np.max(best))

  def compute_prefix_variances(self) -> np.ndarray:
    """Returns the variances; see the base class."""
    inner = self.inner.compute_prefix_variances()
    instances = np.arange(self.num_rounds // self.inner.num_rounds)
    return np.add.outer(instances * inner[-1], inner).ravel()

  def describe(self) -> str:
    """Returns what the noise is, as a part of a sentence."""
    return (
      f'{self.inner.describe()}, begun anew every {self.inner.num_rounds} '
      'rounds'
    )

  def to_json(self) -> dict[str, Any]:
    """Returns the strategy for `json.dump`; see `strategy_from_json`."""
    return {
      'kind': self.kind,
      'num_rounds': self.num_rounds,
      'inner': self.inner.to_json(),
    }

  def _squares(
    self, participation: Participation, num_rounds: int, most: int
  ) -> list[float]:
    """Returns an instance's squared sensitivity for 0, 1, ... participations.

    Args:
      participation: The rounds that a client may take part in.
      num_rounds: The rounds of the instance that are released.
      most: The most participations in the whole run.
    """
    per_epoch = participation.rounds_per_epoch or 0
    once = per_epoch and per_epoch % self.inner.num_rounds == 0
    in_instance = dataclasses.replace(participation, rounds_per_epoch=None)
    count = 1 if once else min(most, in_instance.count(num_rounds))
    squares = [0.0]
    for k in range(1, count + 1):
      limited = dataclasses.replace(in_instance, max_participations=k)
      squares.append(self.inner.compute_sensitivity(limited, num_rounds) ** 2)
    return squares
