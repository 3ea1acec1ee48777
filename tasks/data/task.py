"""What a training run needs to know of its data."""

import collections
import dataclasses
import hashlib
import os
import warnings
from typing import Any

import numpy as np
import tensorflow as tf

from tasks.checks import check
from tasks.data.partitions import Partition, PartitionConfig
from tff_clipping.programs.clients import client_store


class DataWarning(UserWarning):
  """The data may not be what was meant."""


def warn(message: str) -> None:
  """Warns of data that may not be what was meant."""
  warnings.warn(message, DataWarning, stacklevel=3)


@dataclasses.dataclass(frozen=True)
class Task:
  """Examples, their split over clients, and a test set.

  Images stay uint8, one byte a value, as the data sets have them; the models
  scale them (`tasks.models.keras_models`).

  Attributes:
    name: Which task it is, for example 'mnist'.
    train: `x` and `y` of all clients. `x` is uint8, int32 or float32 [n, ...];
      `y` int32 [n] or [n, length], which are classes, or float32 [n, ...] with
      at least two dimensions, which are numbers.
    partition: Which rows of `train` each client holds.
    test: The same, [m, ...].
    num_classes: Number of classes; tokens of a sequence task; `None` for
      numbers.
    source: One line on where the examples come from.
    test_is_held_out: Whether the test set is a part of the clients' examples,
      which no client has any more: evaluating on it is not free of privacy.
    test_is_of_clients: Whether clients have examples of their own in the test
      set: evaluating on it is not free of privacy either.
    classes_are_of_clients: Whether `num_classes` was read from the clients'
      labels, the test set having fewer: the shape of the model reveals it.
    has_padding: Whether 0 in the rows of a sequence's `y` fills short rows up,
      and counts in neither loss nor accuracy; `None` where no row has a 0.

  Raises:
    ValueError: If the arrays are not like this, or do not fit together.
  """

  name: str
  train: collections.OrderedDict[str, np.ndarray]
  partition: Partition
  test: collections.OrderedDict[str, np.ndarray]
  num_classes: int | None
  source: str
  test_is_held_out: bool = False
  test_is_of_clients: bool = False
  classes_are_of_clients: bool = False
  has_padding: bool | None = None

  def __post_init__(self):
    for split, examples in (('train', self.train), ('test', self.test)):
      names = list(examples)
      check(split, names == ['x', 'y'], 'must hold x and y, in order', names)
      sizes = [len(array) for array in examples.values()]
      holds = 0 < sizes[0] == sizes[1]
      check(split, holds, 'must hold as many x as y, at least one', sizes)
    labels = ['float32' if self.num_classes is None else 'int32']
    for feature, dtypes in (
      ('x', ['uint8', 'int32', 'float32']),
      ('y', labels),
    ):
      train, test = (
        f'{each[feature].dtype}{list(each[feature].shape[1:])}'
        for each in (self.train, self.test)
      )
      holds = self.train[feature].dtype.name in dtypes
      check(feature, holds, f'must be {" or ".join(dtypes)}', train)
      must = f'must hold examples like those of `{feature}`, {train}'
      check(f'{feature}_test', train == test, must, test)
    self._check_labels()

  def _check_labels(self) -> None:
    """Raises unless labels are classes, or rows of them, or numbers."""
    num_classes, padding = self.num_classes, self.has_padding
    shape = list(self.train['y'].shape)
    has_rows = num_classes is not None and len(shape) > 1
    is_truth = padding is None or isinstance(padding, (bool, np.bool_))
    check('has_padding', is_truth, 'must be True or False', repr(padding))
    holds = has_rows or not padding
    check('has_padding', holds, 'must be True for rows of classes alone', True)
    if num_classes is None:
      must = 'must be classes, with `num_classes`, or rows of numbers'
      check('y', len(shape) > 1, must, f'numbers {shape}')
      return
    must = 'must be labels [examples] or [examples, length]'
    check('y', len(shape) <= 2 and shape[1:] != [1], must, f'the shape {shape}')
    check('y', num_classes > 1, 'must have at least two classes', num_classes)
    must = f'must be from 0 and below `num_classes`, {num_classes}'
    for y in (self.train['y'], self.test['y']):
      holds = y.min() >= 0 and y.max() < num_classes
      check('y', holds, must, f'{y.min()} to {y.max()}')
      counts = not padding or y.any()
      check('y', counts, 'must have a label that counts', 'padding')
      check(
        'has_padding',
        padding is not None or not has_rows or y.all(),
        'must be given where `y` has rows of labels with 0 among them: True '
        'where 0 fills up short rows and does not count, False where it is a '
        'class. Rows of 0 with one 1 for each class become labels by '
        '`y.argmax(axis=1)`; rows that say which of several classes an example '
        'has are for `loss` binary_crossentropy',
        'none',
      )

  @property
  def client_ids(self) -> tuple[str, ...]:
    """The ids of the clients, in the order of the partition."""
    return self.partition.client_ids

  @property
  def num_clients(self) -> int:
    """Number of clients N."""
    return len(self.partition.indices)

  @property
  def split_settings(self) -> dict[str, Any]:
    """By the names of the flags, how the examples were split over clients.

    A partition that a user made counts as natural.
    """
    config = self.partition.config or PartitionConfig('natural')
    return config.settings | {'num_clients': self.num_clients}

  @property
  def input_shape(self) -> tuple[int, ...]:
    """Shape of one example's `x`."""
    return self.train['x'].shape[1:]

  @property
  def input_dtype(self) -> str:
    """The name of the type of `x`."""
    return self.train['x'].dtype.name

  @property
  def label_shape(self) -> tuple[int, ...]:
    """Shape of one example's `y`, empty for a class."""
    return self.train['y'].shape[1:]

  @property
  def element_spec(self) -> collections.OrderedDict[str, tf.TensorSpec]:
    """The specs of `x` and `y` of one example, without a batch."""
    return collections.OrderedDict(
      (feature, tf.TensorSpec(array.shape[1:], array.dtype))
      for feature, array in self.train.items()
    )

  def compute_digest(self) -> str:
    """Returns the SHA-256 of all examples, and of their split over clients."""
    digest = hashlib.sha256()
    for examples in (self.train, self.test):
      for key, array in examples.items():
        digest.update(f'{key} {array.dtype} {array.shape};'.encode())
        digest.update(np.ascontiguousarray(array).data)
    for client_id, rows in zip(
      self.client_ids, self.partition.indices, strict=True
    ):
      digest.update(f'{client_id} {len(rows)};'.encode())
      digest.update(np.ascontiguousarray(rows, np.int64).data)
    return digest.hexdigest()

  def with_test_examples(self, count: int) -> 'Task':
    """Returns the task with `count` test examples, evenly spaced in the set.

    Test sets are not always in random order: MNIST's first half is cleaner than
    its second.

    Raises:
      ValueError: If there are not so many, or it is not at least 1.
    """
    size = len(self.test['y'])
    must = f'must be between 1 and the {size} that there are'
    check('test_examples', 1 <= count <= size, must, count)
    rows = np.arange(count) * size // count
    test = collections.OrderedDict(
      (key, value[rows]) for key, value in self.test.items()
    )
    return dataclasses.replace(self, test=test)

  def write_client_store(
    self, cache_dir: str | os.PathLike
  ) -> client_store.ClientStore:
    """Returns the store of the clients in a folder, which is written once."""
    return client_store.write_client_store(
      cache_dir,
      self.name,
      self.train,
      self.partition.indices,
      self.client_ids,
    )
