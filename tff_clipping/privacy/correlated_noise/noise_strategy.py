"""The base class of noise strategies, and the rounds that a client may join."""

import abc
import dataclasses
import math
from typing import Any, ClassVar, NamedTuple

import numpy as np

from tff_clipping import argument_checks
from tff_clipping.privacy.accounting import ranges


@dataclasses.dataclass(frozen=True, kw_only=True)
class Participation:
  """The rounds that one client may take part in; nothing is drawn in secret.

  Attributes:
    min_separation: b, the least number of rounds from one participation of a
      client to its next; 1 allows every round.
    max_participations: k. None means as many as `min_separation` allows.

  Raises:
    TypeError: If an attribute is of the wrong kind.
    ValueError: If an attribute is below 1.
  """

  min_separation: int
  max_participations: int | None = None

  def __post_init__(self):
    for field in dataclasses.fields(self):
      value = getattr(self, field.name)
      if value is not None or field.name == 'min_separation':
        value = ranges.check_count(field.name, value)
        object.__setattr__(self, field.name, value)

  def count(self, num_rounds: int) -> int:
    """Returns the most participations of a client in the first rounds.

    Args:
      num_rounds: The rounds from the first, at least 0.
    """
    limits = [-(-num_rounds // self.min_separation)]
    if self.max_participations is not None:
      limits.append(self.max_participations)
    return min(limits)


class NoiseRecurrence(NamedTuple):
  """How a round's noise is computed from a fresh draw and kept arrays.

  `num_slots` arrays of the size of the model are kept, 0 at first. In round t,
  from 0, with row `phases[t]` of each table,

    noise    = draw + sum_s read_weights[s] * slots[s]
    slots[s] = keep_weights[s] * slots[s] + write_weights[s] * noise

  where draw is Gaussian, independent from round to round, and `noise` is what
  the round adds. All weights are `float64`.

  Attributes:
    phases: `int64` of shape [num_rounds].
    read_weights: The weights of the slots in the noise, of shape [num_phases,
      num_slots], as of the other weights.
    keep_weights: The share of each slot that stays.
    write_weights: The share of the noise that is added to each slot.
  """

  phases: np.ndarray
  read_weights: np.ndarray
  keep_weights: np.ndarray
  write_weights: np.ndarray

  @property
  def num_slots(self) -> int:
    """The arrays that are kept between rounds."""
    return self.read_weights.shape[1]


@dataclasses.dataclass(frozen=True, kw_only=True)
class NoiseStrategy(abc.ABC):
  """How the noise of a round depends on the noise of earlier rounds.

  A strategy is a lower triangular Toeplitz matrix C with a column for each
  round: C[i, j] depends on i - j alone, and is 1 on the diagonal. The rounds'
  sums x_1, ..., x_T are released as x + C^{-1} z, where z is Gaussian
  of standard deviation `noise_stddev`, independent from round to round. The
  release is computed from C x + z alone, which is one Gaussian mechanism for
  the whole run, with the sensitivity of C x, also if a sum depends on earlier
  releases (Denisov et al. 2022, Theorem 2.1).

  A model that adds up the releases has the running sums of x, with errors that
  partly cancel.

  Attributes:
    num_rounds: T, the rounds that have noise.

  Raises:
    TypeError: If an attribute is of the wrong kind.
    ValueError: If an attribute is out of range.
  """

  # The name in files.
  kind: ClassVar[str]

  num_rounds: int

  def __post_init__(self):
    object.__setattr__(
      self, 'num_rounds', ranges.check_count('num_rounds', self.num_rounds)
    )

  @property
  @abc.abstractmethod
  def recurrence(self) -> NoiseRecurrence:
    """The noise as a stream, for `noise_stddev` 1."""

  @abc.abstractmethod
  def compute_coefficients(self) -> np.ndarray:
    """Returns the first column of C, `float64` of shape [num_rounds]."""

  @abc.abstractmethod
  def compute_inverse_coefficients(self) -> np.ndarray:
    """Returns the first column of C^{-1}, `float64` of shape [num_rounds]."""

  def compute_sensitivity(
    self, participation: Participation, num_rounds: int | None = None
  ) -> float:
    """Returns the largest change of C x by one client.

    Args:
      participation: The rounds that a client may take part in, with a
        contribution of L2 norm at most 1 in each, and nothing in the others.
      num_rounds: The number of rounds from the first; None means all.

    Returns:
      The largest L2 norm over all such rounds and contributions, exactly.

    Raises:
      TypeError: If `num_rounds` is not an integer.
      ValueError: If it is not from 1 to the strategy's, or the coefficients
        neither end before the least separation nor are all >= 0 and never
        increase. Other rounds than 1, b + 1, ... might then be worse, and only
        heuristics are known.

    Source: arXiv 2306.08153 (coefficients that end: two rounds of a client have
    no element of C x in common); arXiv 2405.13763, Theorem 2 (coefficients that
    do not increase).
    """
    if num_rounds is None:
      num_rounds = self.num_rounds
    num_rounds = argument_checks.check_integer(
      'num_rounds', num_rounds, at_least=1, at_most=self.num_rounds
    )
    column = self.compute_coefficients()[:num_rounds]
    separation = participation.min_separation
    ends = not np.any(column[separation:])
    if not ends and (np.min(column) < 0 or np.any(np.diff(column) > 0)):
      raise ValueError(
        'The sensitivity is not known: the coefficients of a strategy must end '
        f'within `min_separation` = {separation} rounds, or be all >= 0 and '
        'never increase.'
      )
    return math.sqrt(
      np.sum(
        sum_of_columns(column, separation, participation.count(num_rounds)) ** 2
      )
    )

  def compute_prefix_variances(self) -> np.ndarray:
    """Returns the variance of the noise in each running sum.

    Returns:
      `float64` of shape [num_rounds], for `noise_stddev` 1.
    """
    return np.cumsum(np.cumsum(self.compute_inverse_coefficients()) ** 2)

  @abc.abstractmethod
  def describe(self) -> str:
    """Returns what the noise is, as a part of a sentence."""

  def to_json(self) -> dict[str, Any]:
    """Returns the strategy for `json.dump`; see `strategy_from_json`."""
    return {'kind': self.kind, **dataclasses.asdict(self)}


def check_numbers(name: str, values: Any) -> tuple[float, ...]:
  """Returns finite numbers as floats; raises if they are no tuple or list."""
  if not isinstance(values, (tuple, list)):
    raise TypeError(f'`{name}` must be a tuple of numbers, found {values!r}.')
  return tuple(argument_checks.check_number(name, each) for each in values)


def sum_of_columns(
  column: np.ndarray, separation: int, count: int
) -> np.ndarray:
  """Returns the sum of `count` columns of C that are `separation` apart.

  They begin with `column`, the first, and are at most ceil(num_rounds /
  separation).
  """
  num_rows = -(-len(column) // separation)
  padded = np.zeros(num_rows * separation)
  padded[: len(column)] = column
  sums = np.cumsum(padded.reshape(num_rows, separation), axis=0)
  if count < num_rows:
    sums[count:] -= sums[:-count].copy()
  return sums.reshape(-1)[: len(column)]
