"""How the examples of a data set are split over clients.

A partition is a function of the labels (or of the owners of the examples) and a
seed. Where clients × examples exceeds the data, clients draw their examples
independently of each other and overlap; the summary says so.
"""

import dataclasses
import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tasks.checks import check
from tasks.data import class_counts
from tff_clipping import argument_checks

# Beyond, other concentrations give the same clients.
_ALPHAS = (1e-6, 1e6)

# Partitions that deal examples by the labels of all of them.
_BY_ALL_LABELS = frozenset(
  {'class_balanced', 'label_skew', 'dirichlet', 'shards'}
)


@dataclasses.dataclass(frozen=True)
class Partition:
  """Which examples each client holds.

  Attributes:
    name: One of `PARTITIONS`.
    indices: For each client, int64 [examples] rows of the training set.
    client_ids: For each client, a string without duplicates.
    num_examples: Number of examples in the training set.
    details: What the partition was asked to do, for the summary.
    parts_owners: Whether the data name the owner of each example, and the
      partition ignores the owners.
    held_out: int64 [examples] rows of the clients that are held out.
    config: The settings that made it; `None` for one that a user made.
  """

  name: str
  indices: tuple[np.ndarray, ...]
  client_ids: tuple[str, ...]
  num_examples: int
  details: str
  parts_owners: bool = False
  held_out: np.ndarray = dataclasses.field(
    default_factory=lambda: np.zeros(0, np.int64)
  )
  config: 'PartitionConfig | None' = None

  @property
  def is_overlapping(self) -> bool:
    """Whether an example is held by more than one client."""
    return sum(map(len, self.indices)) > self.num_used

  @property
  def makes_up_clients(self) -> bool:
    """Whether a guarantee for these clients protects no person.

    The examples of one person come to several clients, or the examples of
    others decide what a client holds.
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


@dataclasses.dataclass(frozen=True)
class PartitionConfig:
  """A partition by name, with its settings.

  Attributes:
    name: One of `PARTITIONS`.
    num_clients: N. `None` takes all clients of a natural partition that are not
      held out.
    examples_per_client: A client's examples. `None` takes as many as there are
      without overlap. A natural partition has no such setting.
    dirichlet_alpha: The concentration of 'dirichlet', for each class.
    shards_per_client: The shards of a client, for 'shards'.
    held_out_clients: Of a natural partition, so many clients train nothing, and
      are the test set: those whose ids have the least digests, for every seed.
      Adding or removing a client changes at most one of them.
    seed: Decides what is drawn.

  Raises:
    TypeError, ValueError: If a setting is wrong, or not for this partition.
  """

  name: str
  _: dataclasses.KW_ONLY
  num_clients: int | None = None
  examples_per_client: int | None = None
  dirichlet_alpha: float = 0.5
  shards_per_client: int = 2
  held_out_clients: int | None = None
  seed: int = 0

  def __post_init__(self):
    argument_checks.check_choice('partition', self.name, tuple(PARTITIONS))
    optional = {'examples_per_client', 'held_out_clients'}
    if self.name == 'natural':
      optional.add('num_clients')
      size = self.examples_per_client
      must = 'must not be given for the natural partition'
      check('examples_per_client', size is None, must, size)
    elif self.held_out_clients is not None:
      must = 'must be given for the natural partition only'
      check('held_out_clients', False, must, self.name)
    for name in (
      *('num_clients', 'examples_per_client', 'shards_per_client'),
      'held_out_clients',
    ):
      value = getattr(self, name)
      if value is not None or name not in optional:
        # A partition is drawn client by client, in memory.
        argument_checks.check_integer(name, value, at_least=1, at_most=10**7)
    argument_checks.check_between(
      'dirichlet_alpha', self.dirichlet_alpha, *_ALPHAS
    )
    argument_checks.check_seed('seed', self.seed)

  @property
  def settings(self) -> dict[str, Any]:
    """All but the seed, by the names of the flags."""
    settings = dataclasses.asdict(self)
    del settings['seed']
    return {'partition': settings.pop('name'), **settings}

  def split(
    self,
    labels: np.ndarray,
    owners: Sequence[str] | np.ndarray | None = None,
    all_owners: Sequence[str] | np.ndarray | None = None,
  ) -> Partition:
    """Splits a training set.

    Args:
      labels: int [examples], the classes; or anything [examples, ...], which
        'iid' and 'natural' alone can split.
      owners: [examples], whose example each is; `None` if the data name none.
      all_owners: All owners, where some may have no example.

    Raises:
      ValueError: If the data lack what the partition needs.
    """
    labels = np.asarray(labels)
    check('labels', len(labels), 'must have an example', 'none')
    if self.name == 'natural':
      must = (
        'must be iid, for example, with `num_clients`, for data that name no '
        'client of each example'
      )
      check('partition', owners is not None, must, 'natural')
      return self._split_naturally(owners, all_owners)
    check(
      'partition',
      self.name == 'iid' or (labels.ndim == 1 and labels.dtype.kind in 'iu'),
      'must be iid or natural for rows of labels and for numbers, which have '
      'no single class',
      self.name,
    )
    size = self.examples_per_client or self._largest_size(len(labels))
    number, details, draw = PARTITIONS[self.name]
    rng = np.random.default_rng([self.seed, number])
    indices = draw(labels, self, size, rng)
    # By number, in an order that sorts as the numbers do.
    width = len(str(len(indices) - 1))
    return Partition(
      name=self.name,
      indices=tuple(np.asarray(rows, np.int64) for rows in indices),
      client_ids=tuple(f'client_{i:0{width}d}' for i in range(len(indices))),
      num_examples=len(labels),
      details=details.format(self),
      parts_owners=owners is not None,
      config=self,
    )

  def _largest_size(self, num_examples: int) -> int:
    """Returns the largest size of clients that do not overlap."""
    unit = self.shards_per_client if self.name == 'shards' else 1
    size = num_examples // (self.num_clients * unit) * unit
    must = (
      f'must be at most {num_examples // unit} for {num_examples} examples '
      'where `examples_per_client` is not given'
    )
    check('num_clients', size, must, self.num_clients)
    return size

  def _split_naturally(self, owners: Any, all_owners: Any) -> Partition:
    """Gives each owner its examples; draws owners where fewer are asked for."""
    owners = np.asarray(owners)
    names = np.unique(
      owners if all_owners is None else np.concatenate([owners, all_owners])
    )
    owner_of = np.searchsorted(names, owners)
    sizes = np.bincount(owner_of, minlength=len(names))
    groups = np.split(
      np.argsort(owner_of, kind='stable'), np.cumsum(sizes)[:-1]
    )
    details = 'natural'
    kept, held_out = np.arange(len(names)), []
    if self.held_out_clients is not None:
      count = self.held_out_clients
      must = f'must be fewer than the {len(names)} natural clients of the data'
      check('held_out_clients', count < len(names), must, count)
      by_digest = np.argsort([_digest(str(name)) for name in names])
      kept, held_out = np.sort(by_digest[count:]), by_digest[:count]
      has_examples = sizes[held_out].any()
      check('held_out_clients', has_examples, 'must have an example', 'none')
      details += f', {count} clients held out'
    taken = kept
    if self.num_clients is not None:
      must = f'must be at most the {len(kept)} natural clients that can train'
      holds = self.num_clients <= len(kept)
      check('num_clients', holds, must, self.num_clients)
      rng = np.random.default_rng([self.seed, PARTITIONS['natural'][0]])
      taken = np.sort(rng.permutation(kept)[: self.num_clients])
    if len(taken) < len(kept):
      details += f', {len(taken)} of {len(kept)} clients'
    return Partition(
      name='natural',
      indices=tuple(groups[i] for i in taken),
      client_ids=tuple(str(names[i]) for i in taken),
      num_examples=len(owners),
      details=details,
      held_out=np.flatnonzero(np.isin(owner_of, held_out)),
      config=self,
    )


def _digest(client_id: str) -> bytes:
  """Returns bytes that look random, and are a function of the id alone."""
  return hashlib.blake2b(
    client_id.encode(), digest_size=16, person=b'held out'
  ).digest()


def _draw_iid(
  labels: np.ndarray,
  split: PartitionConfig,
  size: int,
  rng: np.random.Generator,
) -> Sequence[np.ndarray]:
  """Gives every client equally many examples, drawn uniformly.

  Source: Sec. 2.2, the IID case of EMNIST.
  """
  num_examples, num_clients = len(labels), split.num_clients
  must = f'must be at most the {num_examples} examples'
  check('examples_per_client', size <= num_examples, must, size)
  if num_clients * size <= num_examples:
    drawn = rng.permutation(num_examples)[: num_clients * size]
    return drawn.reshape(-1, size)
  return [
    rng.choice(num_examples, size, replace=False) for _ in range(num_clients)
  ]


def _draw_shards(
  labels: np.ndarray,
  split: PartitionConfig,
  size: int,
  rng: np.random.Generator,
) -> Sequence[np.ndarray]:
  """Sorts the examples by label, cuts them into shards, and deals these.

  Source: McMahan et al., "Communication-Efficient Learning of Deep Networks
    from Decentralized Data" (AISTATS 2017), Sec. 3, pathological non-IID.
  """
  num_clients, per_client = split.num_clients, split.shards_per_client
  must = f'must be a multiple of the {per_client} shards of a client'
  check('examples_per_client', size % per_client == 0, must, size)
  must = f'must leave {num_clients} clients shards of {len(labels)} examples'
  check('examples_per_client', num_clients * size <= len(labels), must, size)
  shard_size = size // per_client
  # In the order of the labels, and shuffled within a label.
  keys = labels + rng.random(len(labels)) * 0.5
  by_label = np.argsort(keys, kind='stable')
  num_shards = len(labels) // shard_size
  pieces = by_label[: num_shards * shard_size].reshape(num_shards, shard_size)
  dealt = rng.permutation(num_shards)[: num_clients * per_client]
  return pieces[dealt].reshape(num_clients, size)


def _draw_by_class(
  labels: np.ndarray,
  split: PartitionConfig,
  size: int,
  rng: np.random.Generator,
) -> Sequence[np.ndarray]:
  """Draws examples, once it is known how many of each class a client gets."""
  supply, num_clients = np.bincount(labels), split.num_clients
  if split.name == 'class_balanced':
    counts = class_counts.share_equally(len(supply), num_clients, size)
  elif split.name == 'label_skew':
    counts = class_counts.draw_label_skew(supply, num_clients, size, rng)
  else:
    counts = class_counts.draw_dirichlet(
      supply, num_clients, size, split.dirichlet_alpha, rng
    )
  return class_counts.draw_examples(labels, counts, rng)


PARTITIONS: dict[str, tuple[int, str, Callable | None]] = {
  'iid': (1, 'IID', _draw_iid),
  'class_balanced': (2, 'class-balanced', _draw_by_class),
  'label_skew': (3, 'label skew with 2 major classes a client', _draw_by_class),
  'dirichlet': (
    *(4, 'Dirichlet({0.dirichlet_alpha:g}) label skew'),
    _draw_by_class,
  ),
  'shards': (5, '{0.shards_per_client} shards a client', _draw_shards),
  'natural': (6, 'natural', None),
}
"""By the name of a partition: its part of the seed, its summary, its draw."""
