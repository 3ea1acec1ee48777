"""How many examples of each class each client gets, and which ones.

Partitions by class describe shares, such as 57.5 examples of a major class.
Here shares become whole numbers, int64 [clients, classes], and whole numbers
become drawn examples. `supply`, int [classes], is how many examples the data
have of each class, `size` how many a client gets.
"""

from collections.abc import Sequence

import numpy as np

from tasks.checks import check

# Sec. 2.2 of the paper; see `draw_label_skew`.
_MAJOR_CLASSES = 2
_MAJOR_SHARE = 230 / 500
# Below this, one class has all of the share but for odds of 1e-3, and drawing
# takes the longer the smaller the concentration is.
_ONE_CLASS_ALPHA = 1e-5
_FITTING_PASSES = 200


def draw_examples(
  labels: np.ndarray, counts: np.ndarray, rng: np.random.Generator
) -> list[np.ndarray]:
  """Draws each client's examples, given how many it gets of each class.

  If the data have enough of every class, no example is drawn twice. Otherwise
  every client draws on its own, and clients overlap. Within one client no
  example comes twice in either case.

  Returns:
    For each client int64 [size], rows of `labels`, which are int [examples], in
    random order.

  Raises:
    ValueError: If a client needs more of a class than there are.
  """
  num_clients, num_classes = counts.shape
  chosen = [[] for _ in range(num_clients)]
  supply = np.bincount(labels, minlength=num_classes)
  disjoint = (counts.sum(axis=0) <= supply).all()
  for k in range(num_classes):
    most = int(counts[:, k].max())
    must = f'must leave every client at most the {supply[k]} of class {k}'
    check('examples_per_client', most <= supply[k], must, f'a need of {most}')
    rows = rng.permutation(np.flatnonzero(labels == k))
    ends = np.cumsum(counts[:, k])
    for client, count in enumerate(counts[:, k]):
      if disjoint:
        chosen[client].append(rows[ends[client] - count : ends[client]])
      elif count:
        drawn = rng.choice(len(rows), count, replace=False, shuffle=False)
        chosen[client].append(rows[drawn])
  return [rng.permutation(np.concatenate(parts)) for parts in chosen]


def share_equally(num_classes: int, num_clients: int, size: int) -> np.ndarray:
  """Gives every client equally many examples of every class.

  Where the number of classes does not divide the size, clients take turns in
  which classes get one more.

  Source: Sec. 2.2, both cases of CIFAR-10.
  """
  counts = np.full((num_clients, num_classes), size // num_classes)
  for client, row in enumerate(counts):
    extra = size % num_classes
    row[(client * extra + np.arange(extra)) % num_classes] += 1
  return counts


def draw_label_skew(
  supply: np.ndarray, num_clients: int, size: int, rng: np.random.Generator
) -> np.ndarray:
  """Draws two major classes for each client, and gives it some of all others.

  A client of 500 has 230 examples of each major class, and about 5 of each of
  the other eight: 46 % and, all others together, 8 %. Where the classes of the
  data differ in size, larger classes are major more often, and the shares give
  way slightly. Every example is used exactly once if
  N × size is the number of examples, and at most once if it is less.

  Raises:
    ValueError: If there are fewer than 3 classes.

  Source: Sec. 2.2, the non-IID case of EMNIST, with its shares at any size.
  """
  num_classes = len(supply)
  must = 'must have at least 3 classes for a label skew'
  check('labels', num_classes > _MAJOR_CLASSES, must, num_classes)
  column_totals = _apportion(num_clients * size, supply)
  minor_share = (1 - _MAJOR_CLASSES * _MAJOR_SHARE) / (
    num_classes - _MAJOR_CLASSES
  )
  # So often is a class major that its clients' shares add up to its total.
  majors = _draw_majors(
    column_totals / size - minor_share * num_clients, num_clients, rng
  )
  shares = np.full((num_clients, num_classes), size * minor_share)
  for row, row_majors in zip(shares, majors, strict=True):
    row[row_majors] = size * _MAJOR_SHARE
  fitted = _fit_to_totals(shares, size, column_totals)
  return _round_to_totals(fitted, size, column_totals)


def draw_dirichlet(
  supply: np.ndarray,
  num_clients: int,
  size: int,
  alpha: float,
  rng: np.random.Generator,
) -> np.ndarray:
  """Draws each client's classes by its own shares from Dir(α, …, α).

  Examples are drawn without replacement where there are enough for all clients;
  a class that is used up leaves its share to the others. A small concentration
  is skewed: near 0 every client has one class, at infinity all have the data's
  own shares. Where a text writes Dir(αp) with p uniform over K classes, its α
  is K times `alpha`.

  Raises:
    ValueError: If a client needs more examples than there are.

  Source: Hsu et al., "Measuring the Effects of Non-Identical Data Distribution
    for Federated Visual Classification" (2019), Sec. 2.
  """
  must = f'must be at most the {supply.sum()} examples there are'
  check('examples_per_client', size <= supply.sum(), must, size)
  present = np.flatnonzero(supply)
  overlapping = num_clients * size > supply.sum()
  left = supply.copy()
  counts = np.zeros((num_clients, len(supply)), np.int64)
  for row in counts:
    shares = np.zeros(len(supply))
    if alpha < _ONE_CLASS_ALPHA:
      shares[present[rng.integers(len(present))]] = 1
    else:
      shares[present] = rng.dirichlet(np.full(len(present), alpha))
    while (missing := size - row.sum()) > 0:
      room = (supply if overlapping else left) - row
      weights = np.where(room > 0, shares, 0.0)
      if weights.sum() <= 0:
        weights = room.astype(np.float64)
      drawn = rng.multinomial(missing, weights / weights.sum())
      row += np.minimum(drawn, room)
    left -= 0 if overlapping else row
  return counts


def _draw_majors(
  ideal: np.ndarray, num_clients: int, rng: np.random.Generator
) -> list[np.ndarray]:
  """Draws two different major classes for each client.

  Class k is major for about `ideal[k]` clients, scaled to 2 × clients in all.
  """
  left = _apportion(_MAJOR_CLASSES * num_clients, np.maximum(ideal, 1e-9))
  while (left > num_clients).any():
    left[left.argmax()] -= 1
    left[np.where(left < num_clients, left, -1).argmax()] += 1
  majors = []
  for clients_left in range(num_clients, 0, -1):
    # A class with as many turns as there are clients is major for all of them.
    forced = np.flatnonzero(left >= clients_left)
    weights = np.where(left < clients_left, left, 0)
    drawn = np.zeros(0, np.int64)
    if len(forced) < _MAJOR_CLASSES:
      drawn = rng.choice(
        len(left),
        _MAJOR_CLASSES - len(forced),
        replace=False,
        p=weights / weights.sum(),
      )
    majors.append(np.concatenate([forced, drawn]))
    left[majors[-1]] -= 1
  # The last clients had to take what was left: not always the last ids.
  return [majors[i] for i in rng.permutation(num_clients)]


def _apportion(total: int, weights: Sequence[float]) -> np.ndarray:
  """Splits a whole number in proportion, by largest remainders."""
  weights = np.asarray(weights, np.float64)
  exact = total * weights / weights.sum()
  parts = np.floor(exact).astype(np.int64)
  missing = int(total - parts.sum())
  order = np.argsort(-(exact - parts), kind='stable')
  parts[order[:missing]] += 1
  return parts


def _fit_to_totals(
  shares: np.ndarray, row_total: int, column_totals: np.ndarray
) -> np.ndarray:
  """Scales the rows and columns of `shares` until they have the given sums.

  Source: iterative proportional fitting (Deming and Stephan, 1940), which
    changes the shares as little as possible, in relative entropy.
  """
  fitted = np.array(shares, np.float64)
  for _ in range(_FITTING_PASSES):
    fitted *= column_totals / np.maximum(fitted.sum(axis=0), 1e-300)
    row_sums = fitted.sum(axis=1, keepdims=True)
    fitted *= row_total / row_sums
    if np.allclose(row_sums, row_total, rtol=0, atol=1e-9):
      break
  return fitted


def _round_to_totals(
  shares: np.ndarray, row_total: int, column_totals: np.ndarray
) -> np.ndarray:
  """Rounds `shares` to whole numbers with exact row and column sums.

  Nearly every number is its share rounded down or up: a row's missing units go
  to the classes that have got too little so far. Each column is then at most a
  few units off, and the units are moved within rows that have room.
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
