"""How the examples of a data set lie with the clients."""

import dataclasses

import numpy as np

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
