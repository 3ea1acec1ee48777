"""What a training run needs to know of its data."""

import collections
import dataclasses
import hashlib
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from tasks.data import features
from tasks.data.partitions import partition as partition_lib

# TensorFlow takes seconds to import, and looking at data needs none of it.
if TYPE_CHECKING:
  import tensorflow as tf

  from tff_clipping.programs.clients import client_store


@dataclasses.dataclass(frozen=True)
class Task:
  """Examples, their split over clients, and a test set.

  Images stay uint8, one byte a value, as the data sets have them; the models
  scale them (`tasks.models.keras_models`).

  Attributes:
    name: Which task it is, for example 'mnist'.
    train: `x` [n, ...] and `y` of all clients: int32 [n] or [n, length], which
      are classes, or float32 [n, ...], which are numbers. Of several inputs,
      `x_NAME` for each, and of several outputs `y_NAME`.
    partition: Which rows of `train` each client holds.
    test: The same, [m, ...].
    num_classes: Number of classes; tokens of a sequence task; `None` for
      numbers. Of several outputs, a dictionary by name.
    source: One line on where the examples come from.
    digest: The SHA-256 of the file of a user's own data; `None` for ours, of
      which `compute_digest` has it.
    test_is_held_out: Whether the test set is made of clients' examples, which
      no client has any more: evaluating on it is not free of privacy.
    test_is_of_clients: Whether clients have examples of their own in the test
      set: evaluating on it is not free of privacy either.
    classes_are_of_clients: Whether `num_classes` was read from the clients'
      labels, the test set having fewer: the shape of the model tells of them.
    has_padding: Whether 0 in the rows of a sequence's `y` fills them up, and
      counts in neither loss nor accuracy; `None` where nothing says so.
  """

  name: str
  train: collections.OrderedDict[str, np.ndarray]
  partition: partition_lib.Partition
  test: collections.OrderedDict[str, np.ndarray]
  num_classes: int | None | Mapping[str, int | None]
  source: str
  digest: str | None = None
  test_is_held_out: bool = False
  test_is_of_clients: bool = False
  classes_are_of_clients: bool = False
  has_padding: bool | None = None

  def __post_init__(self):
    for split, examples in (('train', self.train), ('test', self.test)):
      nested = features.nest(examples)
      is_whole = list(examples) == [
        *features.flatten(features.INPUT, nested['x']),
        *features.flatten(features.OUTPUT, nested['y']),
      ]
      if not is_whole or list(examples) != list(self.train):
        raise ValueError(
          f'`{split}` must hold x and y in this order, found {list(examples)}.'
        )
      sizes = list(map(len, examples.values()))
      if len(set(sizes)) != 1:
        raise ValueError(
          f'`{split}` must hold as many x as y, found '
          f'{" and ".join(map(str, sizes))}.'
        )
      for output in self.outputs:
        feature = features.feature_of(features.OUTPUT, output)
        y = examples[feature]
        if self.has_padding and y.dtype.kind == 'i' and not np.any(y):
          raise ValueError(
            f"`{split}['{feature}']` must have a label that counts, found "
            'padding alone.'
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
  def num_train_examples(self) -> int:
    """How many examples the clients have."""
    return len(next(iter(self.train.values())))

  @property
  def num_test_examples(self) -> int:
    """How many examples the test set has."""
    return len(next(iter(self.test.values())))

  @property
  def outputs(self) -> tuple[str | None, ...]:
    """The names of the outputs; (`None`,) for the only one."""
    return features.names_of(features.OUTPUT, self.train)

  @property
  def input_shape(self) -> Any:
    """Shape of one example's `x`; by name of several."""
    return self._of_each(features.INPUT, lambda array: array.shape[1:])

  @property
  def input_dtype(self) -> Any:
    """The name of the type of `x`; by name of several."""
    return self._of_each(features.INPUT, lambda array: array.dtype.name)

  @property
  def label_shape(self) -> Any:
    """Shape of one example's `y`, empty for a class; by name of several."""
    return self._of_each(features.OUTPUT, lambda array: array.shape[1:])

  def num_classes_of(self, output: str | None) -> int | None:
    """Returns the number of classes of an output; `None` for numbers."""
    if isinstance(self.num_classes, Mapping):
      return self.num_classes[output or '']
    return self.num_classes

  def _of_each(self, prefix: str, value_of: Callable[[np.ndarray], Any]) -> Any:
    return features.by_name(
      prefix, self.train, lambda feature: value_of(self.train[feature])
    )

  @property
  def summary(self) -> str:
    """One line on the partition, for people and config.json."""
    return self.partition.summary

  @property
  def element_spec(self) -> 'collections.OrderedDict[str, tf.TensorSpec]':
    """The specs of `x` and `y` of one example, without a batch.

    Of several inputs or outputs, they are nested as a model takes them.
    """
    import tensorflow as tf

    return features.nest(
      {
        feature: tf.TensorSpec(array.shape[1:], array.dtype)
        for feature, array in self.train.items()
      }
    )

  def compute_digest(self) -> str:
    """Returns the SHA-256 of all examples, and of whose they are."""
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
    """Returns the task with fewer test examples, evenly spaced in the set.

    Test sets are not always in random order: MNIST's first half is cleaner than
    its second.

    Args:
      count: How many to keep, at least 1 and at most all.

    Raises:
      ValueError: If there are not so many.
    """
    found = self.num_test_examples
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

  def write_client_store(
    self, cache_dir: str | os.PathLike
  ) -> 'client_store.ClientStore':
    """Writes the clients, unless they are there already.

    Args:
      cache_dir: Where the stores are; made if it is missing.

    Returns:
      The store, from which client computations read their examples.
    """
    from tff_clipping.programs.clients import client_store

    return client_store.write_client_store(
      cache_dir,
      self.name,
      self.train,
      self.partition.indices,
      self.client_ids,
    )
