"""Which partition a run asks for, and how it is drawn.

Every partition is a function of the labels (or of the writers) and a seed, and
gives the same split for the same arguments. Where clients × examples exceeds
the data, clients draw their examples independently of each other and overlap;
the summary says so.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tasks.data.partitions import class_draws, class_quotas
from tasks.data.partitions.partition import Partition
from tasks.settings.setting_fields import at_least, check_settings, setting
from tff_clipping import argument_checks

# A partition is drawn client by client, in memory.
MAX_CLIENTS = 10**7
# Beyond, other concentrations give the same clients.
MIN_ALPHA, MAX_ALPHA = 1e-6, 1e6

# Sec. 2.2 of the paper: of 500 examples of a client, 230 are of each of two
# classes and about 5 of each of the other eight.
_MAJOR_CLASSES = 2
_MAJOR_SHARE = 230 / 500


def _check_alpha(name: str, value: Any) -> None:
  number = argument_checks.check_number(name, value)
  if not MIN_ALPHA <= number <= MAX_ALPHA:
    raise ValueError(
      f'`{name}` must be from {MIN_ALPHA:g}, where a client has one class, to '
      f'{MAX_ALPHA:g}, where it has all alike, found {value}.'
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class PartitionSettings:
  """The settings of a partition, beside its name."""

  num_clients: int | None = setting(
    'N; else as many as a natural partition has.',
    None,
    check=at_least(1, MAX_CLIENTS),
  )
  examples_per_client: int | None = setting(
    "A client's examples; else as many as there are without overlap.",
    None,
    check=at_least(1),
  )
  dirichlet_alpha: float = setting(
    'The concentration of --partition=dirichlet.', 0.5, check=_check_alpha
  )
  shards_per_client: int = setting(
    'For --partition=shards.', 2, check=at_least(1)
  )
  seed: int = setting(
    'For the split and local shuffling.', 0, check=argument_checks.check_seed
  )


@dataclasses.dataclass(frozen=True)
class PartitionConfig(PartitionSettings):
  """A partition by name, with its settings.

  Attributes:
    name: One of `PARTITIONS`.

  Raises:
    TypeError: If a setting is of the wrong kind.
    ValueError: If it is out of range, missing, or not for this partition.
  """

  name: str = dataclasses.field(metadata={'check': None})

  def __post_init__(self):
    if self.name not in PARTITIONS:
      raise ValueError(
        f'`partition` must be one of {", ".join(PARTITIONS)}, found '
        f'{self.name!r}.'
      )
    check_settings(self)
    if self.name == 'natural':
      if self.examples_per_client is not None:
        raise ValueError(
          '`examples_per_client` must not be given for the natural partition, '
          'whose clients have what they have, found '
          f'{self.examples_per_client}.'
        )
    elif self.num_clients is None:
      raise ValueError(
        f'`num_clients` must be given for the partition {self.name!r}.'
      )

  def split(
    self,
    labels: np.ndarray,
    owners: Sequence[str] | np.ndarray | None = None,
    all_owners: Sequence[str] | np.ndarray | None = None,
  ) -> Partition:
    """Splits a training set.

    Args:
      labels: int [examples]; int [examples, length] for sequences and others
        without one class each, which only 'iid' and 'natural' can split.
      owners: [examples], whose example each is, where the data says so.
      all_owners: Those that are there, where some may have no example.

    Returns:
      The partition.

    Raises:
      ValueError: If the data lacks what the partition needs.
    """
    if self.name == 'natural':
      if owners is None:
        raise ValueError(
          "`partition` must not be 'natural' for data that does not say whose "
          'each example is, as writers.npz does for MNIST.'
        )
      return _natural(self, owners, all_owners)
    labels = np.asarray(labels)
    if labels.ndim > 1:
      if self.name != 'iid':
        raise ValueError(
          "`partition` must be 'iid' or 'natural' for sequences and numbers, "
          f'which have no single label, found {self.name!r}.'
        )
      labels = labels[:, 0]
    if labels.ndim != 1 or labels.dtype.kind not in 'iu' or not len(labels):
      raise ValueError(
        '`labels` must be a vector of integers that is not empty, found '
        f'{labels.dtype} {list(labels.shape)}.'
      )
    way = PARTITIONS[self.name]
    indices = way.draw(
      self,
      labels,
      self.examples_per_client or self._largest_size(len(labels)),
      np.random.default_rng([self.seed, way.number]),
    )
    # By number, in an order that sorts as the numbers do.
    width = len(str(len(indices) - 1))
    return Partition(
      name=self.name,
      indices=tuple(np.asarray(rows, np.int64) for rows in indices),
      client_ids=tuple(f'client_{i:0{width}d}' for i in range(len(indices))),
      num_examples=len(labels),
      details=way.details.format(self),
      parts_owners=owners is not None,
    )

  def _largest_size(self, num_examples: int) -> int:
    """Returns the largest size of clients that do not overlap."""
    names, found, unit = '`num_clients`', f'{self.num_clients}', 1
    if self.name == 'shards':
      unit = self.shards_per_client
      names, found = f'{names} × `shards_per_client`', f'{found} × {unit}'
    size = num_examples // (self.num_clients * unit) * unit
    if not size:
      raise ValueError(
        f'{names} must be at most the {num_examples} examples where '
        f'`examples_per_client` is not given, found {found}.'
      )
    return size


def _iid(
  config: PartitionConfig,
  labels: np.ndarray,
  size: int,
  rng: np.random.Generator,
) -> Sequence[np.ndarray]:
  """Gives every client equally many examples, drawn uniformly.

  Source: Sec. 2.2, the IID case of EMNIST.
  """
  n, num_clients = len(labels), config.num_clients
  if size > n:
    raise ValueError(
      f'`examples_per_client` must be at most the {n} examples, found {size}.'
    )
  if num_clients * size <= n:
    return rng.permutation(n)[: num_clients * size].reshape(-1, size)
  return [rng.choice(n, size, replace=False) for _ in range(num_clients)]


def _class_balanced(
  config: PartitionConfig,
  labels: np.ndarray,
  size: int,
  rng: np.random.Generator,
) -> Sequence[np.ndarray]:
  """Gives every client equally many examples of every class.

  Where the number of classes does not divide the size, clients take turns in
  which classes get one more. The paper's IID clients of CIFAR-10 have 500
  examples, 50 of each class; its 'non-IID' ones differ in quantity alone: 50
  examples, 5 of each class.

  Source: Sec. 2.2, both cases of CIFAR-10.
  """
  num_classes = int(labels.max()) + 1
  counts = np.full((config.num_clients, num_classes), size // num_classes)
  for client, row in enumerate(counts):
    extra = size % num_classes
    row[(client * extra + np.arange(extra)) % num_classes] += 1
  return class_draws.draw_examples(labels, counts, rng)


def _label_skew(
  config: PartitionConfig,
  labels: np.ndarray,
  size: int,
  rng: np.random.Generator,
) -> Sequence[np.ndarray]:
  """Gives every client two major classes, and a little of all others.

  A major class has 46% of a client's examples; all other classes share the
  remaining 8% equally. So a client of 500 has 230 of each of two classes and 5
  of each of the other eight; a client of 125 has 57 or 58, and 1 or 2. Where
  the classes of the data differ in size, larger classes are major more often,
  and the shares give way slightly. Every example is used exactly once if
  N × size is the number of examples, and at most once if it is less.

  Source: Sec. 2.2, the non-IID case of EMNIST, with its shares at any size.
  """
  num_clients, supply = config.num_clients, np.bincount(labels)
  num_classes = len(supply)
  if num_classes <= _MAJOR_CLASSES:
    raise ValueError(
      '`labels` must have at least 3 classes for a label skew, found '
      f'{num_classes}.'
    )
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
  return class_draws.draw_examples(labels, counts, rng)


def _dirichlet(
  config: PartitionConfig,
  labels: np.ndarray,
  size: int,
  rng: np.random.Generator,
) -> Sequence[np.ndarray]:
  """Draws every client's class shares from a symmetric Dirichlet distribution.

  Clients of equal size draw their classes by their own shares, and examples
  without replacement; a class that is used up leaves its share to the others.
  A small concentration is skewed: near 0 every client has one class, at
  infinity all have the data's own shares. Where a text writes Dir(αp) with p
  uniform over K classes, its α is K times the one here.

  Source: Hsu et al., "Measuring the Effects of Non-Identical Data Distribution
    for Federated Visual Classification" (2019), Sec. 2.
  """
  supply = np.bincount(labels)
  present = supply > 0
  overlapping = config.num_clients * size > len(labels)
  left = supply.copy()
  counts = np.zeros((config.num_clients, len(supply)), np.int64)
  for row in counts:
    shares = np.zeros(len(supply))
    shares[present] = class_draws.draw_shares(
      config.dirichlet_alpha, int(present.sum()), rng
    )
    available = supply if overlapping else left
    row[:] = class_draws.draw_class_counts(shares, size, available, rng)
    left -= 0 if overlapping else row
  return class_draws.draw_examples(labels, counts, rng)


def _shards(
  config: PartitionConfig,
  labels: np.ndarray,
  size: int,
  rng: np.random.Generator,
) -> Sequence[np.ndarray]:
  """Sorts the examples by label, cuts them into shards, and deals these.

  Source: McMahan et al., "Communication-Efficient Learning of Deep Networks
    from Decentralized Data" (AISTATS 2017), Sec. 3, pathological non-IID.
  """
  num_clients, per_client = config.num_clients, config.shards_per_client
  if size % per_client:
    raise ValueError(
      f'`examples_per_client` must be a multiple of the {per_client} shards of '
      f'a client, found {size}.'
    )
  if num_clients * size > len(labels):
    raise ValueError(
      '`examples_per_client` × `num_clients` must be at most the '
      f'{len(labels)} examples for shards, which do not overlap, found '
      f'{size} × {num_clients}.'
    )
  shard_size = size // per_client
  # In the order of the labels, and shuffled within a label.
  keys = labels + rng.random(len(labels)) * 0.5
  by_label = np.argsort(keys, kind='stable')
  num_shards = len(labels) // shard_size
  pieces = by_label[: num_shards * shard_size].reshape(num_shards, shard_size)
  dealt = rng.permutation(num_shards)[: num_clients * per_client]
  return pieces[dealt].reshape(num_clients, size)


def _natural(
  config: PartitionConfig,
  owners: Sequence[str] | np.ndarray,
  all_owners: Sequence[str] | np.ndarray | None,
) -> Partition:
  """Gives every writer, role or user the examples that are theirs.

  Where fewer clients are asked for than there are owners, some are drawn.

  Returns:
    The partition, with the owners as client ids in sorted order.
  """
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
  if config.num_clients is not None:
    if config.num_clients > len(names):
      raise ValueError(
        f'`num_clients` must be at most the {len(names)} natural clients of '
        f'the data, found {config.num_clients}.'
      )
    way = PARTITIONS['natural']
    rng = np.random.default_rng([config.seed, way.number])
    taken = np.sort(rng.permutation(len(names))[: config.num_clients])
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


class _Way(NamedTuple):
  """A way to split: its part of the seed, how it draws, and what it is."""

  number: int
  draw: Callable[..., Any]
  details: str


PARTITIONS: dict[str, _Way] = {
  'iid': _Way(1, _iid, 'IID'),
  'class_balanced': _Way(2, _class_balanced, 'class-balanced'),
  'label_skew': _Way(
    3, _label_skew, f'label skew with {_MAJOR_CLASSES} major classes a client'
  ),
  'dirichlet': _Way(
    4, _dirichlet, 'Dirichlet({0.dirichlet_alpha:g}) label skew'
  ),
  'shards': _Way(5, _shards, '{0.shards_per_client} shards a client'),
  'natural': _Way(6, _natural, 'natural'),
}
