"""How the examples of a data set are split over clients.

Every partition is a function of the labels (or of the writers) and a seed, and
gives the same split for the same arguments. Where clients × examples exceeds
the data, clients draw their examples independently of each other and overlap;
the summary says so.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from tasks.data.partitions import class_draws, class_quotas
from tff_clipping import argument_checks

# Sec. 2.2 of the paper: of 500 examples of a client, 230 are of each of two
# classes and about 5 of each of the other eight.
_MAJOR_CLASSES = 2
_MAJOR_SHARE = 230 / 500

# Partitions that deal examples by the labels of all of them.
_BY_ALL_LABELS = frozenset(
  {'class_balanced', 'label_skew', 'dirichlet', 'shards'}
)


@dataclasses.dataclass(frozen=True)
class Partition:
  """Which examples each client holds.

  Attributes:
    name: Which partition it is, for example 'label_skew'.
    indices: For each client, int64 [examples] rows of the training set.
    client_ids: For each client, a string without duplicates.
    num_examples: Number of examples in the training set.
    details: What the partition was asked to do, for the summary.
    parts_owners: Whether the data say whose each example is, and the partition
      does not keep to it.
  """

  name: str
  indices: tuple[np.ndarray, ...]
  client_ids: tuple[str, ...]
  num_examples: int
  details: str
  parts_owners: bool = False

  def class_counts(self, labels: np.ndarray, num_classes: int) -> np.ndarray:
    """Counts each client's examples by class.

    Args:
      labels: int [num_examples].
      num_classes: Number of classes.

    Returns:
      int64 [clients, num_classes].
    """
    return np.stack(
      [
        np.bincount(labels[rows], minlength=num_classes)
        for rows in self.indices
      ]
    )

  @property
  def is_overlapping(self) -> bool:
    """Whether an example is held by more than one client."""
    return sum(map(len, self.indices)) > self.num_used

  @property
  def makes_up_clients(self) -> bool:
    """Whether what holds for a client holds for nobody whose data these are.

    So it does where the examples of one of them come to several clients, or
    where what one client holds depends on the examples of others.
    """
    return (
      self.parts_owners
      or self.name in _BY_ALL_LABELS
      or (self.name == 'iid' and self.is_overlapping)
    )

  @property
  def num_used(self) -> int:
    """Number of different examples that the clients hold."""
    used = np.zeros(self.num_examples, bool)
    for rows in self.indices:
      used[rows] = True
    return int(used.sum())

  @property
  def summary(self) -> str:
    """One line: the partition, the sizes, and how the data is used."""
    sizes = [len(rows) for rows in self.indices]
    held, used = sum(sizes), self.num_used
    size = (
      f'{sizes[0]} examples each'
      if min(sizes) == max(sizes)
      else f'{min(sizes)} to {max(sizes)} examples (median '
      f'{int(np.median(sizes))})'
    )
    share = (
      f'overlapping: {held} draws from {self.num_examples} examples, '
      f'{used} of them used, each {held / used:.1f} times on average'
      if self.is_overlapping
      else f'{used} of {self.num_examples} examples used, each once'
    )
    return f'{self.details}: {len(sizes)} clients, {size}; {share}'


def iid(
  labels: np.ndarray,
  *,
  num_clients: int,
  examples_per_client: int | None = None,
  seed: int = 0,
) -> Partition:
  """Gives every client equally many examples, drawn uniformly.

  Args:
    labels: int [examples], of the training set.
    num_clients: Number of clients N, at least 1.
    examples_per_client: Size of every client; as many as there are without
      overlap if None. Clients overlap if N × size exceeds the examples.
    seed: Decides the draw, at least 0.

  Returns:
    The partition.

  Source: Sec. 2.2, the IID case of EMNIST.
  """
  labels, size = _check(labels, num_clients, examples_per_client, seed)
  rng = np.random.default_rng([seed, 1])
  n = len(labels)
  if size > n:
    raise ValueError(
      f'`examples_per_client` must be at most the {n} examples, found {size}.'
    )
  if num_clients * size <= n:
    indices = rng.permutation(n)[: num_clients * size].reshape(-1, size)
  else:
    indices = [rng.choice(n, size, replace=False) for _ in range(num_clients)]
  return _partition('iid', indices, n, 'IID')


def class_balanced(
  labels: np.ndarray,
  *,
  num_clients: int,
  examples_per_client: int | None = None,
  seed: int = 0,
) -> Partition:
  """Gives every client equally many examples of every class.

  The paper's IID clients of CIFAR-10 have 500 examples, 50 of each class; its
  'non-IID' ones differ in quantity alone: 50 examples, 5 of each class.

  Args:
    labels: int [examples], of the training set.
    num_clients: Number of clients N, at least 1.
    examples_per_client: Size of every client; where the number of classes does
      not divide it, clients take turns in which classes get one more. As many
      as there are without overlap if None.
    seed: Decides the draw, at least 0.

  Returns:
    The partition.

  Source: Sec. 2.2, both cases of CIFAR-10.
  """
  labels, size = _check(labels, num_clients, examples_per_client, seed)
  rng = np.random.default_rng([seed, 2])
  num_classes = int(labels.max()) + 1
  counts = np.full((num_clients, num_classes), size // num_classes)
  for client, row in enumerate(counts):
    extra = size % num_classes
    row[(client * extra + np.arange(extra)) % num_classes] += 1
  indices = class_draws.draw_examples(labels, counts, rng)
  return _partition('class_balanced', indices, len(labels), 'class-balanced')


def label_skew(
  labels: np.ndarray,
  *,
  num_clients: int,
  examples_per_client: int | None = None,
  seed: int = 0,
) -> Partition:
  """Gives every client two major classes, and a little of all others.

  A major class has 46% of a client's examples; all other classes share the
  remaining 8% equally. So a client of 500 has 230 of each of two classes and 5
  of each of the other eight; a client of 125 has 57 or 58, and 1 or 2. Where
  the classes of the data differ in size, larger classes are major more often,
  and the shares give way slightly.

  Args:
    labels: int [examples], of the training set, of at least 3 classes.
    num_clients: Number of clients N, at least 1.
    examples_per_client: Size of every client; as many as there are without
      overlap if None. Clients overlap if N × size exceeds the examples.
    seed: Decides the draw, at least 0.

  Returns:
    The partition. Every example is used exactly once if N × size is the number
    of examples, and at most once if it is less.

  Source: Sec. 2.2, the non-IID case of EMNIST, with its shares at any size.
  """
  labels, size = _check(labels, num_clients, examples_per_client, seed)
  supply = np.bincount(labels)
  num_classes = len(supply)
  if num_classes <= _MAJOR_CLASSES:
    raise ValueError(
      '`labels` must have at least 3 classes for a label skew, found '
      f'{num_classes}.'
    )
  rng = np.random.default_rng([seed, 3])
  column_totals = class_quotas.apportion(num_clients * size, supply)
  minor_share = (1 - _MAJOR_CLASSES * _MAJOR_SHARE) / (
    num_classes - _MAJOR_CLASSES
  )
  # So often is a class major that its clients' shares add up to its total.
  majors = class_draws.draw_majors(
    column_totals / size - minor_share * num_clients,
    num_clients,
    _MAJOR_CLASSES,
    rng,
  )
  shares = np.full((num_clients, num_classes), size * minor_share)
  for row, row_majors in zip(shares, majors, strict=True):
    row[row_majors] = size * _MAJOR_SHARE
  fitted = class_quotas.fit_to_totals(shares, size, column_totals)
  counts = class_quotas.round_to_totals(fitted, size, column_totals)
  indices = class_draws.draw_examples(labels, counts, rng)
  return _partition(
    'label_skew',
    indices,
    len(labels),
    f'label skew with {_MAJOR_CLASSES} major classes a client',
  )


def dirichlet(
  labels: np.ndarray,
  *,
  num_clients: int,
  examples_per_client: int | None = None,
  alpha: float,
  seed: int = 0,
) -> Partition:
  """Draws every client's class shares from a symmetric Dirichlet distribution.

  Clients of equal size draw their classes by their own shares, and examples
  without replacement; a class that is used up leaves its share to the others.

  Args:
    labels: int [examples], of the training set.
    num_clients: Number of clients N, at least 1.
    examples_per_client: Size of every client; as many as there are without
      overlap if None. Clients overlap if N × size exceeds the examples.
    alpha: Concentration of each class, positive. Small is skewed: near 0 every
      client has one class, at infinity all have the data's own shares. Where
      a text writes Dir(αp) with p uniform over K classes, its α is K × this.
    seed: Decides the draw, at least 0.

  Returns:
    The partition.

  Source: Hsu et al., "Measuring the Effects of Non-Identical Data Distribution
    for Federated Visual Classification" (2019), Sec. 2.
  """
  labels, size = _check(labels, num_clients, examples_per_client, seed)
  argument_checks.check_positive('alpha', alpha)
  rng = np.random.default_rng([seed, 4])
  supply = np.bincount(labels)
  present = supply > 0
  overlapping = num_clients * size > len(labels)
  left = supply.copy()
  counts = np.zeros((num_clients, len(supply)), np.int64)
  for row in counts:
    shares = np.zeros(len(supply))
    shares[present] = class_draws.draw_shares(alpha, int(present.sum()), rng)
    available = supply if overlapping else left
    row[:] = class_draws.draw_class_counts(shares, size, available, rng)
    left -= 0 if overlapping else row
  indices = class_draws.draw_examples(labels, counts, rng)
  return _partition(
    'dirichlet', indices, len(labels), f'Dirichlet({alpha:g}) label skew'
  )


def shards(
  labels: np.ndarray,
  *,
  num_clients: int,
  examples_per_client: int | None = None,
  shards_per_client: int = 2,
  seed: int = 0,
) -> Partition:
  """Sorts the examples by label, cuts them into shards, and deals these.

  Args:
    labels: int [examples], of the training set.
    num_clients: Number of clients N, at least 1.
    examples_per_client: Size of every client, a multiple of
      `shards_per_client`; as many as there are if None. N × size must not
      exceed the examples.
    shards_per_client: Number of shards of a client, at least 1.
    seed: Decides the draw, at least 0.

  Returns:
    The partition.

  Source: McMahan et al., "Communication-Efficient Learning of Deep Networks
    from Decentralized Data" (AISTATS 2017), Sec. 3, pathological non-IID.
  """
  argument_checks.check_integer(
    'shards_per_client', shards_per_client, at_least=1
  )
  if examples_per_client is None:
    num_shards = (
      argument_checks.check_integer('num_clients', num_clients, at_least=1)
      * shards_per_client
    )
    if num_shards > len(labels):
      raise ValueError(
        '`num_clients` × `shards_per_client` must be at most the '
        f'{len(labels)} examples where `examples_per_client` is not given, '
        f'found {num_clients} × {shards_per_client}.'
      )
    examples_per_client = len(labels) // num_shards * shards_per_client
  labels, size = _check(labels, num_clients, examples_per_client, seed)
  if size % shards_per_client:
    raise ValueError(
      '`examples_per_client` must be a multiple of the '
      f'{shards_per_client} shards of a client, found {size}.'
    )
  if num_clients * size > len(labels):
    raise ValueError(
      '`examples_per_client` × `num_clients` must be at most the '
      f'{len(labels)} examples for shards, which do not overlap, found '
      f'{size} × {num_clients}.'
    )
  rng = np.random.default_rng([seed, 5])
  shard_size = size // shards_per_client
  by_label = np.argsort(_shuffled_key(labels, rng), kind='stable')
  num_shards = len(labels) // shard_size
  pieces = by_label[: num_shards * shard_size].reshape(num_shards, shard_size)
  dealt = rng.permutation(num_shards)[: num_clients * shards_per_client]
  indices = pieces[dealt].reshape(num_clients, size)
  return _partition(
    'shards', indices, len(labels), f'{shards_per_client} shards a client'
  )


def natural(
  owners: Sequence[str] | np.ndarray,
  *,
  all_owners: Sequence[str] | np.ndarray | None = None,
  num_clients: int | None = None,
  seed: int = 0,
) -> Partition:
  """Gives every writer, role or user the examples that are theirs.

  Args:
    owners: [examples], the writer of each example.
    all_owners: Those that are there, where some may have no example.
    num_clients: How many of the owners to take, drawn by the seed; all of them
      if None.
    seed: Decides which owners are taken, at least 0.

  Returns:
    The partition, with the owners as client ids in sorted order.
  """
  argument_checks.check_integer('seed', seed, at_least=0)
  owners = np.asarray(owners)
  names = np.unique(
    owners if all_owners is None else np.concatenate([owners, all_owners])
  )
  inverse = np.searchsorted(names, owners)
  if not len(names):
    raise ValueError('`owners` must name at least one owner, found none.')
  order = np.argsort(inverse, kind='stable')
  sizes = np.bincount(inverse, minlength=len(names))
  groups = np.split(order, np.cumsum(sizes)[:-1])
  taken = np.arange(len(names))
  if num_clients is not None:
    argument_checks.check_integer('num_clients', num_clients, at_least=1)
    if num_clients > len(names):
      raise ValueError(
        f'`num_clients` must be at most the {len(names)} natural clients of '
        f'the data, found {num_clients}.'
      )
    rng = np.random.default_rng([seed, 6])
    taken = np.sort(rng.permutation(len(names))[:num_clients])
  details = 'natural'
  if len(taken) < len(names):
    details = f'natural, {len(taken)} of {len(names)} clients'
  return Partition(
    name='natural',
    indices=tuple(groups[i] for i in taken),
    client_ids=tuple(str(names[i]) for i in taken),
    num_examples=len(inverse),
    details=details,
  )


PARTITIONS: Mapping[str, Callable[..., Partition]] = {
  'iid': iid,
  'class_balanced': class_balanced,
  'label_skew': label_skew,
  'dirichlet': dirichlet,
  'shards': shards,
  'natural': natural,
}


def _partition(
  name: str, indices: Sequence[np.ndarray], num_examples: int, details: str
) -> Partition:
  """Names the clients by number, in an order that sorts as the numbers do."""
  width = len(str(len(indices) - 1))
  return Partition(
    name=name,
    indices=tuple(np.asarray(rows, np.int64) for rows in indices),
    client_ids=tuple(f'client_{i:0{width}d}' for i in range(len(indices))),
    num_examples=num_examples,
    details=details,
  )


def _check(
  labels: np.ndarray, num_clients: int, size: int | None, seed: int
) -> tuple[np.ndarray, int]:
  """Checks what all partitions take; returns the labels and the size."""
  labels = np.asarray(labels)
  if labels.ndim != 1 or labels.dtype.kind not in 'iu' or not len(labels):
    raise ValueError(
      '`labels` must be a vector of integers that is not empty, found '
      f'{labels.dtype} {list(labels.shape)}.'
    )
  argument_checks.check_integer('seed', seed, at_least=0)
  argument_checks.check_integer('num_clients', num_clients, at_least=1)
  if size is None:
    size = len(labels) // num_clients
    if size < 1:
      raise ValueError(
        f'`num_clients` must be at most the {len(labels)} examples where '
        f'`examples_per_client` is not given, found {num_clients}.'
      )
  return labels, argument_checks.check_integer(
    'examples_per_client', size, at_least=1
  )


def _shuffled_key(labels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
  """Returns sort keys that order by label and shuffle within a label."""
  return labels + rng.random(len(labels)) * 0.5
