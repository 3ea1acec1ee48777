"""Half of a data set.

Two halves have no example in common: what is chosen on one of them, such as a
clipping norm, tells nothing about the clients that have the other.
"""

import dataclasses
from collections.abc import Callable

from tasks.data.data_set import DataSet


def read_half(
  read: Callable[..., DataSet],
  first: int,
  data_dir: str | None = None,
  cache_dir: str | None = None,
) -> DataSet:
  """Reads data with every other training example alone.

  Args:
    read: Reads the whole, from the two folders.
    first: The place of the first example, 0 or 1.
    data_dir: See `read`.
    cache_dir: See `read`.

  Returns:
    Half of the training examples, in their order, and all test examples.

  Raises:
    data_files.DataError: If files are missing or refused.
  """
  whole = read(data_dir, cache_dir)
  return dataclasses.replace(
    whole,
    x=whole.x[first::2],
    y=whole.y[first::2],
    source=f'{whole.source}; every other training image, from {first} on',
    owners=None if whole.owners is None else whole.owners[first::2],
  )
