"""What a training run needs to know of its data."""

import collections
import dataclasses
import hashlib
import os

import numpy as np
import tensorflow as tf

from tasks.data.partitions import Partition
from tff_clipping.programs.clients import client_store

# The part of the seed of the clients that are held out.
_HELD_OUT = 100


class DataWarning(UserWarning):
  """The data may not be what was meant."""


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
      if list(examples) != ['x', 'y']:
        raise ValueError(
          f'`{split}` must hold x and y in this order, found {list(examples)}.'
        )
      x, y = examples.values()
      if len(x) != len(y) or not len(y):
        raise ValueError(
          f'`{split}` must hold as many x as y, at least one, found {len(x)} '
          f'and {len(y)}.'
        )
    labels = ('float32',) if self.num_classes is None else ('int32',)
    for feature, dtypes in (
      ('x', ('uint8', 'int32', 'float32')),
      ('y', labels),
    ):
      train, test = self.train[feature], self.test[feature]
      if train.dtype.name not in dtypes:
        raise ValueError(
          f'`{feature}` must be {" or ".join(dtypes)}, found {train.dtype}.'
        )
      if train.dtype != test.dtype or train.shape[1:] != test.shape[1:]:
        raise ValueError(
          f'`{feature}_test` must hold examples like those of `{feature}`, '
          f'{train.dtype}{list(train.shape[1:])}, found '
          f'{test.dtype}{list(test.shape[1:])}.'
        )
    self._check_labels()

  def _check_labels(self) -> None:
    """Raises unless labels are classes, or rows of them, or numbers."""
    labels = self.train['y'], self.test['y']
    shape = list(labels[0].shape)
    given, num_classes = self.has_padding, self.num_classes
    if given is not None and not isinstance(given, (bool, np.bool_)):
      raise ValueError(f'`has_padding` must be True or False, found {given!r}.')
    has_rows = num_classes is not None and len(shape) > 1
    if given and not has_rows:
      raise ValueError(
        '`has_padding` must be True for rows of classes alone, found True.'
      )
    if num_classes is None:
      if len(shape) < 2:
        raise ValueError(
          f'`y` must be classes, with `num_classes`, or rows of numbers, found '
          f'numbers {shape}.'
        )
      return
    if len(shape) > 2 or shape[1:] == [1]:
      raise ValueError(
        '`y` must be labels [examples] or [examples, length], found the shape '
        f'{shape}.'
      )
    if num_classes < 2:
      raise ValueError(
        f'`y` must have at least two classes, found {num_classes}.'
      )
    for y in labels:
      if y.min() < 0 or y.max() >= num_classes:
        raise ValueError(
          f'`y` must be from 0 and below `num_classes`, {num_classes}, found '
          f'{y.min()} to {y.max()}.'
        )
      if given and not y.any():
        raise ValueError('`y` must have a label that counts, found padding.')
      if given is None and has_rows and not y.all():
        raise ValueError(
          '`has_padding` must be given where `y` has rows of labels with 0 '
          'among them: True where 0 fills up short rows and does not count, '
          'False where it is a class. Rows of 0 with one 1 for each class '
          'become labels by `y.argmax(axis=1)`; rows that say which of several '
          'classes an example has are for `loss` binary_crossentropy.'
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
    """
    found = len(self.test['y'])
    if not 1 <= count <= found:
      raise ValueError(
        f'`test_examples` must be between 1 and the {found} that there are, '
        f'found {count}.'
      )
    rows = np.arange(count) * found // count
    test = collections.OrderedDict(
      (key, value[rows]) for key, value in self.test.items()
    )
    return dataclasses.replace(self, test=test)

  def with_held_out_clients(self, count: int, seed: int) -> 'Task':
    """Returns the task with `count` of its clients as the test set.

    They take no part in the training: evaluating on their examples tells of no
    client that does. They are drawn at random, and the others keep their order.
    """
    if self.partition.name != 'natural':
      raise ValueError(
        '`held_out_clients` must be given for the natural partition only, '
        f'found {count} for {self.partition.name!r}.'
      )
    if not 1 <= count < self.num_clients:
      raise ValueError(
        '`held_out_clients` must be between 1 and fewer than the '
        f'{self.num_clients} clients that there are, found {count}.'
      )
    rng = np.random.default_rng([seed, _HELD_OUT])
    order = rng.permutation(self.num_clients)
    held_out, kept = np.sort(order[:count]), np.sort(order[count:])
    indices, ids = self.partition.indices, self.client_ids
    rows = np.concatenate([indices[i] for i in held_out])
    partition = dataclasses.replace(
      self.partition,
      indices=tuple(indices[i] for i in kept),
      client_ids=tuple(ids[i] for i in kept),
      details=f'{self.partition.details}, {count} clients held out',
    )
    test = collections.OrderedDict(
      (key, value[rows]) for key, value in self.train.items()
    )
    return dataclasses.replace(
      self,
      partition=partition,
      test=test,
      test_is_held_out=False,
      test_is_of_clients=False,
    )

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
