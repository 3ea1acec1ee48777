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
COLUMN_BITS = 16
# How many bits of a threshold stand beside the other integer of a column; and
# how many are in each of the two numbers that hold the rest of it.
HIGH_BITS = 16
LOW_BITS = 47


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
  """Returns a table to draw a discrete Gaussian from.

  Of 2^16 columns that are equally likely, column i is that of an integer from
  -2^15 to 2^15 - 1, which is i modulo 2^16. It gives this integer with the
  probability t_i / 2^110, and another one otherwise. Each probability is within
  2^-126 of the exact one, but zero's, which has what is left.

  Args:
    stddev: The parameter, at least 8, for which 12 `stddev` fit into the
      columns.

  Returns:
    An `int32` array of shape [2^16]: the other integer times 2^16, plus the
    upper 16 bits of t_i. And an `int64` array of shape [2^16, 2]: the 47 bits
    of t_i that follow, and the last 47.

  Source: Walker 1977, "An efficient method for generating discrete random
    variables with general distributions"; Vose 1991 for the table.
  """
  num_columns = 2**COLUMN_BITS
  whole = 2 ** (HIGH_BITS + 2 * LOW_BITS)
  weights = gaussian_weights(stddev, math.ceil(NUM_STDDEVS * stddev) + 1)
  total = 2 * sum(weights) - weights[0]
  # An index from the end is that of a negative integer.
  shares = [0] * num_columns
  for k, weight in enumerate(weights):
    shares[k] = shares[-k] = weight * num_columns * whole // total
  shares[0] += num_columns * whole - sum(shares)
  # A column that is full gives its own integer in both cases.
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
  words = np.array(
    [
      (
        threshold >> 2 * LOW_BITS,
        threshold >> LOW_BITS & 2**LOW_BITS - 1,
        threshold & 2**LOW_BITS - 1,
      )
      for threshold in thresholds
    ],
    np.int64,
  )
  entries = (np.array(others, np.uint32) << HIGH_BITS) + words[:, 0].astype(
    np.uint32
  )
  return entries.view(np.int32), words[:, 1:].copy()
