"""The random draws by class that the partitions are made of."""

import numpy as np

from tasks.data.partitions import class_quotas

# Below this, one class has all of the share but for odds of 1e-3, and drawing
# takes the longer the smaller the concentration is.
_ONE_CLASS_ALPHA = 1e-5


def draw_examples(
  labels: np.ndarray, counts: np.ndarray, rng: np.random.Generator
) -> list[np.ndarray]:
  """Draws each client's examples, given how many it gets of each class.

  If the data has enough of every class, no example is drawn twice. Else every
  client draws on its own, so that clients overlap; within one client no
  example comes twice in either case.

  Args:
    labels: int [examples].
    counts: int [clients, classes], how many of each class each client gets.
    rng: Decides the draw.

  Returns:
    For each client int64 [size], rows of `labels` in random order.

  Raises:
    ValueError: If a client needs more of a class than there are.
  """
  num_clients, num_classes = counts.shape
  chosen = [[] for _ in range(num_clients)]
  supply = np.bincount(labels, minlength=num_classes)
  disjoint = (counts.sum(axis=0) <= supply).all()
  for k in range(num_classes):
    most = int(counts[:, k].max())
    if most > supply[k]:
      raise ValueError(
        '`examples_per_client` must leave every client at most the examples '
        f'of a class: class {k} has {supply[k]}, a client needs {most}.'
      )
    rows = rng.permutation(np.flatnonzero(labels == k))
    ends = np.cumsum(counts[:, k])
    for client, count in enumerate(counts[:, k]):
      if disjoint:
        chosen[client].append(rows[ends[client] - count : ends[client]])
      elif count:
        drawn = rng.choice(len(rows), count, replace=False, shuffle=False)
        chosen[client].append(rows[drawn])
  return [rng.permutation(np.concatenate(parts)) for parts in chosen]


def draw_majors(
  ideal: np.ndarray,
  num_clients: int,
  majors_per_client: int,
  rng: np.random.Generator,
) -> list[np.ndarray]:
  """Draws different major classes for each client.

  Args:
    ideal: float [classes], for how many clients each class should be major.
      It is scaled to the sum clients × `majors_per_client` and rounded.
    num_clients: Number of clients.
    majors_per_client: Major classes of a client, at most the classes.
    rng: Decides the draw.

  Returns:
    For each client int64 [majors_per_client], without duplicates.
  """
  left = _major_slots(ideal, num_clients, majors_per_client)
  majors = []
  for clients_left in range(num_clients, 0, -1):
    # A class with as many slots as there are clients is major for all of them.
    forced = np.flatnonzero(left >= clients_left)
    weights = np.where(left < clients_left, left, 0)
    drawn = np.zeros(0, np.int64)
    if len(forced) < majors_per_client:
      drawn = rng.choice(
        len(left),
        majors_per_client - len(forced),
        replace=False,
        p=weights / weights.sum(),
      )
    majors.append(np.concatenate([forced, drawn]))
    left[majors[-1]] -= 1
  # The last clients had to take what was left: not always the last ids.
  return [majors[i] for i in rng.permutation(num_clients)]


def draw_class_counts(
  shares: np.ndarray,
  size: int,
  available: np.ndarray,
  rng: np.random.Generator,
) -> np.ndarray:
  """Draws how many examples of each class one client gets.

  Args:
    shares: float [classes], not negative, the client's class distribution.
    size: Number of examples.
    available: int [classes], how many there are. What a used-up class cannot
      give, the client's other classes do; if they cannot either, all classes
      do by what they have left.
    rng: Decides the draw.

  Returns:
    int64 [classes] with the sum `size`, at most `available`.

  Raises:
    ValueError: If `size` exceeds what is available altogether.
  """
  if size > available.sum():
    raise ValueError(
      f'`examples_per_client` must be at most the {available.sum()} examples '
      f'there are, found {size}.'
    )
  counts = np.zeros(len(shares), np.int64)
  while (missing := size - counts.sum()) > 0:
    room = available - counts
    weights = np.where(room > 0, shares, 0.0)
    if weights.sum() <= 0:
      weights = room.astype(np.float64)
    drawn = rng.multinomial(missing, weights / weights.sum())
    counts += np.minimum(drawn, room)
  return counts


def draw_shares(
  alpha: float, num_classes: int, rng: np.random.Generator
) -> np.ndarray:
  """Draws class shares from a symmetric Dirichlet distribution.

  Args:
    alpha: Concentration of each class, positive.
    num_classes: Number of classes.
    rng: Decides the draw.

  Returns:
    float64 [num_classes] with the sum 1.
  """
  if alpha < _ONE_CLASS_ALPHA:
    return np.eye(num_classes)[rng.integers(num_classes)]
  return rng.dirichlet(np.full(num_classes, alpha))


def _major_slots(
  ideal: np.ndarray, num_clients: int, majors_per_client: int
) -> np.ndarray:
  """Rounds `ideal` to int [classes] with the right sum, at most N each."""
  slots = class_quotas.apportion(
    majors_per_client * num_clients, np.maximum(ideal, 1e-9)
  )
  while (slots > num_clients).any():
    slots[slots.argmax()] -= 1
    slots[np.where(slots < num_clients, slots, -1).argmax()] += 1
  return slots
