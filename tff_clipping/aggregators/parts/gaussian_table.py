"""Integer tables of the discrete Gaussian distribution.

No floating-point number is in them: weights are fixed-point numbers, computed
from a decimal exponential of 100 digits.
"""

import decimal
import functools
import math

import numpy as np

# Where the tables end, in standard deviations: 4e-33 is beyond.
NUM_STDDEVS = 12
# Of the fixed-point numbers that the tables are computed in.
_BITS = 256

# An alias table: a power of 2 of columns, which share out 2^126.
COLUMN_BITS = 15
THRESHOLD_BITS = 48
_LOW_BITS = 63


def gaussian_weights(stddev: float, num_weights: int) -> list[int]:
  """Returns exp(-k^2 / (2 `stddev`^2)) for k = 0, 1, ..., times 2^256."""
  # Each weight is the one before times a ratio, which falls by a factor itself.
  # With 256 bits, what the products lose is below the 126 that are wanted.
  with decimal.localcontext() as context:
    context.prec = 100
    variance = decimal.Decimal(stddev) ** 2
    ratio = int((-1 / (2 * variance)).exp() * 2**_BITS)
    factor = int((-1 / variance).exp() * 2**_BITS)
  weight, weights = 1 << _BITS, []
  for _ in range(num_weights):
    weights.append(weight)
    weight = (weight * ratio) >> _BITS
    ratio = (ratio * factor) >> _BITS
  return weights


@functools.cache
def alias_table(stddev: float) -> tuple[np.ndarray, np.ndarray]:
  """Returns a table to draw the magnitude of a discrete Gaussian from.

  Column i, of 2^15 that are equally likely, gives i with the probability
  t_i / 2^111, and another magnitude otherwise. Of a magnitude that has a random
  sign, zero has half of the weight. Each probability is within 2^-126 of the
  exact one, but zero's, which has what is left.

  Args:
    stddev: The parameter, at least 8, for which 12 `stddev` fit into the
      columns.

  Returns:
    Two `int64` arrays of shape [2^15]: the other magnitude times 2^48, plus the
    upper 48 bits of t_i; and its lower 63 bits.

  Source: Walker 1977, "An efficient method for generating discrete random
    variables with general distributions"; Vose 1991 for the table.
  """
  num_columns = 2**COLUMN_BITS
  weights = gaussian_weights(stddev, math.ceil(NUM_STDDEVS * stddev) + 1)
  weights[0] //= 2
  total, whole = sum(weights), 2 ** (THRESHOLD_BITS + _LOW_BITS)
  shares = [weight * num_columns * whole // total for weight in weights]
  shares += [0] * (num_columns - len(shares))
  shares[0] += num_columns * whole - sum(shares)
  # A column that is full gives its own magnitude in both cases.
  others, thresholds = list(range(num_columns)), [0] * num_columns
  small = [i for i, share in enumerate(shares) if share < whole]
  large = [i for i, share in enumerate(shares) if share > whole]
  while small:
    column, giver = small.pop(), large[-1]
    others[column], thresholds[column] = giver, shares[column]
    shares[giver] -= whole - shares[column]
    if shares[giver] <= whole:
      large.pop()
      if shares[giver] < whole:
        small.append(giver)
  high, low = np.array(
    [divmod(each, 2**_LOW_BITS) for each in thresholds], np.int64
  ).T
  return (np.array(others, np.int64) << THRESHOLD_BITS) + high, low.copy()
