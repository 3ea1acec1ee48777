"""How many examples of each class each client gets, as whole numbers.

The partitions describe shares, such as 57.5 examples of a major class. Here
such shares become whole numbers that add up twice: to the client's size along
a row and to what a class has along a column.
"""

from collections.abc import Sequence

import numpy as np

_FITTING_PASSES = 200


def apportion(total: int, weights: Sequence[float]) -> np.ndarray:
  """Splits a whole number in proportion to `weights`.

  Each part is its exact share rounded down or up, and the parts add up to
  `total` (the method of largest remainders). Equal remainders go to the
  earlier part.

  Args:
    total: The number to split, not negative.
    weights: [parts], not negative, with a positive sum.

  Returns:
    int64 [parts] with the sum `total`.
  """
  weights = np.asarray(weights, np.float64)
  exact = total * weights / weights.sum()
  parts = np.floor(exact).astype(np.int64)
  missing = int(total - parts.sum())
  order = np.argsort(-(exact - parts), kind='stable')
  parts[order[:missing]] += 1
  return parts


def fit_to_totals(
  shares: np.ndarray, row_total: int, column_totals: np.ndarray
) -> np.ndarray:
  """Scales the rows and columns of `shares` until they have the given sums.

  Source: iterative proportional fitting (Deming and Stephan, 1940), which
  changes the shares as little as possible, in relative entropy.

  Args:
    shares: [clients, classes], positive.
    row_total: What every row is to add up to.
    column_totals: [classes], with the sum clients × `row_total`.

  Returns:
    float64 [clients, classes] with these sums, up to rounding errors.
  """
  fitted = np.array(shares, np.float64)
  for _ in range(_FITTING_PASSES):
    fitted *= column_totals / np.maximum(fitted.sum(axis=0), 1e-300)
    row_sums = fitted.sum(axis=1, keepdims=True)
    fitted *= row_total / row_sums
    if np.allclose(row_sums, row_total, rtol=0, atol=1e-9):
      break
  return fitted


def round_to_totals(
  shares: np.ndarray, row_total: int, column_totals: np.ndarray
) -> np.ndarray:
  """Rounds `shares` to whole numbers with exact row and column sums.

  Nearly every number is its share rounded down or up: a row's missing units go
  to the classes that have got too little so far, which leaves each column at
  most a few units off at the end, and those are moved within rows that have
  room for it.

  Args:
    shares: [clients, classes], not negative, as `fit_to_totals` gives them.
    row_total: What every row is to add up to.
    column_totals: int [classes], with the sum clients × `row_total`.

  Returns:
    int64 [clients, classes] with exactly these sums.
  """
  floors = np.floor(shares + 1e-9).astype(np.int64)
  counts = floors.copy()
  owed = np.zeros(shares.shape[1])
  for row, share in enumerate(shares):
    owed += share - floors[row]
    missing = row_total - int(floors[row].sum())
    fractional = share - floors[row] > 1e-9
    # Classes with a fraction come first, then those that are owed most.
    order = np.lexsort((-owed, ~fractional))
    chosen = order[np.arange(missing) % len(order)]
    np.add.at(counts[row], chosen, 1)
    np.add.at(owed, chosen, -1)
  return _move_to_columns(counts, shares, np.asarray(column_totals))


def _move_to_columns(
  counts: np.ndarray, shares: np.ndarray, column_totals: np.ndarray
) -> np.ndarray:
  """Moves single units within rows until the column sums are right."""
  difference = counts.sum(axis=0) - column_totals
  while difference.any():
    source, target = int(difference.argmax()), int(difference.argmin())
    # The row where the move changes the rounding errors for the better.
    error = counts - shares
    gain = np.where(
      counts[:, source] > 0, error[:, source] - error[:, target], -np.inf
    )
    row = int(gain.argmax())
    counts[row, source] -= 1
    counts[row, target] += 1
    difference[source] -= 1
    difference[target] += 1
  return counts
