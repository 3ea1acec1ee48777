"""Canaries: directions that an audit looks for in the releases.

A canary is a client whose update points into a direction of its own. The signs
of a direction are the product of one random vector of signs, the same for all
canaries, and a row of a Hadamard matrix, repeated along the parameters. So

  * each direction by itself is uniform among the vectors of signs, and
    independent of data, model and noise;
  * all are orthogonal to each other, but for the last few parameters: canaries
    do not stand in each other's way;
  * the products of an update with all of them take one pass over the update and
    a fast Walsh-Hadamard transform, O(d + m log m) in time and memory, where d
    parameters times m canaries would not fit.
"""

import dataclasses
import functools
import math
from collections.abc import Sequence

import numpy as np

from tff_clipping import argument_checks
from tff_clipping.privacy.accounting.sampled_gaussian import Relation

# The largest model, and with it the most canaries.
_MAX_PARAMETERS = 10**12


@dataclasses.dataclass(frozen=True, kw_only=True)
class Canaries:
  """Directions, and a fair coin for each that says whether it is in.

  Attributes:
    num_canaries: m, at least 2; about half of them are in, the others are held
      out.
    num_parameters: d, of the model; at least m, rounded up to a power of two.
    seed: The seed of directions and coins, not negative. It tells which
      canaries are in.
    relation: Under replace-one a canary that is held out sends the opposite
      direction: the sum differs by 2 c. Otherwise it is absent or sends zeros.

  Raises:
    TypeError: If an attribute is of the wrong kind.
    ValueError: If it is out of range.
  """

  num_canaries: int
  num_parameters: int
  seed: int
  relation: Relation = Relation.ADD_OR_REMOVE_ONE

  def __post_init__(self):
    argument_checks.check_integer(
      'num_parameters',
      self.num_parameters,
      at_least=2,
      at_most=_MAX_PARAMETERS,
    )
    argument_checks.check_integer(
      'num_canaries',
      self.num_canaries,
      at_least=2,
      at_most=1 << (int(self.num_parameters).bit_length() - 1),
    )
    argument_checks.check_integer('seed', self.seed, at_least=0, at_most=2**63)
    if not isinstance(self.relation, Relation):
      raise TypeError(
        f'`relation` must be a Relation, found {self.relation!r}.'
      )

  @functools.cached_property
  def is_in(self) -> np.ndarray:
    """Whether each canary is in, by its coin; of shape [m]."""
    rng = np.random.default_rng([self.seed, 0])
    return rng.integers(2, size=self.num_canaries).astype(bool)

  @functools.cached_property
  def packed_signs(self) -> np.ndarray:
    """The random signs, 8 in a byte, 1 for a minus; [d / 8], rounded up."""
    rng = np.random.default_rng([self.seed, 1])
    return rng.integers(256, size=-(-self.num_parameters // 8), dtype=np.uint8)

  @property
  def period(self) -> int:
    """The length of a row before it repeats: m, up to a power of two."""
    return 1 << (self.num_canaries - 1).bit_length()

  @functools.cached_property
  def marks(self) -> np.ndarray:
    """The number from 1 of each canary that is in; of shape [m].

    Of a canary that is held out it is 0, or negated under replace-one.
    """
    numbers = np.arange(1, self.num_canaries + 1)
    sign = -1 if self.relation is Relation.REPLACE_ONE else 0
    return np.where(self.is_in, numbers, sign * numbers)

  def direction(self, mark: int) -> np.ndarray:
    """Returns the unit vector that a canary sends; `float32` of [d].

    Args:
      mark: An entry of `marks`; 0 is the zero vector.

    Raises:
      TypeError: If `mark` is not an integer.
      ValueError: If there is no such canary.
    """
    mark = argument_checks.check_integer(
      'mark', mark, at_least=-self.num_canaries, at_most=self.num_canaries
    )
    if mark == 0:
      return np.zeros(self.num_parameters, np.float32)
    row = np.zeros(self.period)
    row[abs(mark) - 1] = math.copysign(1, mark)
    row = np.resize(_walsh_hadamard(row), self.num_parameters)
    return (row * self._signs / math.sqrt(self.num_parameters)).astype(
      np.float32
    )

  def project(self, update: np.ndarray | Sequence[np.ndarray]) -> np.ndarray:
    """Returns the products of an update with all unit directions.

    Args:
      update: The parameters in one vector of [d], or the model's tensors in
        their order.

    Returns:
      `float64` of [m], in the unit of the update.

    Raises:
      ValueError: If there are not d parameters.
    """
    leaves = [update] if isinstance(update, np.ndarray) else update
    vector = np.concatenate(
      [np.ravel(np.asarray(leaf, np.float64)) for leaf in leaves]
    )
    if len(vector) != self.num_parameters:
      raise ValueError(
        f'`update` must have {self.num_parameters} parameters, found '
        f'{len(vector)}.'
      )
    signed = vector * self._signs
    padded = np.pad(signed, (0, -len(signed) % self.period))
    products = _walsh_hadamard(padded.reshape(-1, self.period).sum(axis=0))
    return products[: self.num_canaries] / math.sqrt(self.num_parameters)

  @property
  def _signs(self) -> np.ndarray:
    """The random signs as 1 and -1, `int8` of [d]."""
    bits = np.unpackbits(self.packed_signs)[: self.num_parameters]
    return 1 - 2 * bits.astype(np.int8)


def _walsh_hadamard(vector: np.ndarray) -> np.ndarray:
  """Returns H vector, for H[i, k] = (-1)^(number of common ones of i and k)."""
  size = 1
  while size < len(vector):
    pairs = vector.reshape(-1, 2, size)
    vector = np.stack(
      [pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1]], axis=1
    ).reshape(-1)
    size *= 2
  return vector
