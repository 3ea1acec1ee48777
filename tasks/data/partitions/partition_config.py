"""Which partition a run asks for, apart from the data it is made of."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from tasks.data.partitions import partition


@dataclasses.dataclass(frozen=True)
class PartitionConfig:
  """A partition by name, with its settings.

  Attributes:
    name: One of `tasks.data.partitions.partition.PARTITIONS`.
    num_clients: Number of clients N. None only for 'natural': all of them.
    examples_per_client: Size of every client; None for as many as there are
      without overlap. Not for 'natural'.
    dirichlet_alpha: Concentration of each class, for 'dirichlet'.
    shards_per_client: Number of shards of a client, for 'shards'.
    seed: Decides the split, at least 0.
  """

  name: str
  num_clients: int | None = None
  examples_per_client: int | None = None
  dirichlet_alpha: float = 0.5
  shards_per_client: int = 2
  seed: int = 0

  def __post_init__(self):
    if self.name not in partition.PARTITIONS:
      raise ValueError(
        f'`partition` must be one of {", ".join(partition.PARTITIONS)}, found '
        f'{self.name!r}.'
      )
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
  ) -> partition.Partition:
    """Splits a training set.

    Args:
      labels: int [examples]; int [examples, length] for sequences, which only
        'iid' and 'natural' can split.
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
          'each example is.'
        )
      return partition.natural(
        owners,
        all_owners=all_owners,
        num_clients=self.num_clients,
        seed=self.seed,
      )
    if labels.ndim > 1:
      if self.name != 'iid':
        raise ValueError(
          "`partition` must be 'iid' or 'natural' for sequences, which have no "
          f'single label, found {self.name!r}.'
        )
      labels = labels[:, 0]
    settings = {}
    if self.name == 'dirichlet':
      settings['alpha'] = self.dirichlet_alpha
    elif self.name == 'shards':
      settings['shards_per_client'] = self.shards_per_client
    made = partition.PARTITIONS[self.name](
      labels,
      num_clients=self.num_clients,
      examples_per_client=self.examples_per_client,
      seed=self.seed,
      **settings,
    )
    return dataclasses.replace(made, parts_owners=owners is not None)
