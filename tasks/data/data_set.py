"""A data set as it is read, before it is split over clients."""

import collections
import dataclasses

import numpy as np

from tasks.data.partitions.partition_config import PartitionConfig
from tasks.data.task import Task


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataSet:
  """Examples to train and to test.

  Attributes:
    x: [n, ...], the training examples.
    y: int32 [n] or [n, length], their labels.
    x_test: [m, ...].
    y_test: int32 [m] or [m, length].
    num_classes: Number of classes; tokens of a sequence task.
    source: One line on where the examples come from.
    owners: [n], whose each training example is; `None` if the data do not say.
    test_is_of_clients: As of `Task`.
    has_padding: As of `Task`.
  """

  x: np.ndarray
  y: np.ndarray
  x_test: np.ndarray
  y_test: np.ndarray
  num_classes: int
  source: str
  owners: np.ndarray | None = None
  test_is_of_clients: bool = False
  has_padding: bool | None = None

  def split(self, name: str, split: PartitionConfig) -> Task:
    """Returns the task with this name.

    Args:
      name: What the task is called.
      split: How to split the training examples over clients.

    Raises:
      ValueError: If the data cannot be split so.
    """
    return Task(
      name=name,
      train=collections.OrderedDict(x=self.x, y=self.y),
      partition=split.split(self.y, self.owners),
      test=collections.OrderedDict(x=self.x_test, y=self.y_test),
      num_classes=self.num_classes,
      source=self.source,
      test_is_of_clients=self.test_is_of_clients,
      has_padding=self.has_padding,
    )
