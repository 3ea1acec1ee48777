"""The tasks as the --task flag has them: ours by name, and own ones."""

import functools
from collections.abc import Callable, Mapping

from tasks.data import task
from tasks.data.data_set import DataSet
from tasks.data.datasets import (
  cifar10,
  digits,
  emnist,
  halves,
  labels,
  mnist,
  own_arrays,
  own_data,
  own_files,
  tff_data,
)
from tasks.data.partitions import partition_config

TASKS: Mapping[str, Callable[..., DataSet]] = {
  'embedded_digits': digits.read_embedded_digits,
  'mnist': mnist.read_mnist,
  'mnist_even': functools.partial(halves.read_half, mnist.read_mnist, 0),
  'mnist_odd': functools.partial(halves.read_half, mnist.read_mnist, 1),
  'emnist_digits': emnist.read_emnist_digits,
  'cifar10': cifar10.read_cifar10,
  'cifar10_even': functools.partial(halves.read_half, cifar10.read_cifar10, 0),
  'cifar10_odd': functools.partial(halves.read_half, cifar10.read_cifar10, 1),
  **{
    name: functools.partial(tff_data.read_tff_data, name)
    for name in tff_data.TFF_DATA
  },
}


def check_task_name(argument: str, name: str) -> None:
  """Raises unless a setting names one of `TASKS`, a file or a function.

  Args:
    argument: The setting.
    name: Its value.

  Raises:
    TypeError: If it is not a string.
    ValueError: If it can be none of these. Nothing is opened or imported.
  """
  if not isinstance(name, str):
    raise TypeError(f'`{argument}` must be a string, found {name!r}.')
  if name not in TASKS and not own_data.is_own(name):
    raise ValueError(
      f'`{argument}` must be one of {", ".join(TASKS)}, a file '
      f'{" or ".join(own_files.SUFFIXES)}, module:function or '
      f'FILE.py:function, found {name!r}.'
    )


def create_task(
  name: str,
  split: partition_config.PartitionConfig,
  *,
  data_dir: str | None = None,
  cache_dir: str | None = None,
  kinds: own_arrays.Kinds = labels.CLASSES,
) -> task.Task:
  """Creates a task by its name.

  Args:
    name: One of `TASKS`, or what `own_data.create_named_task` takes.
    split: How to split the training examples over clients.
    data_dir: Folder that holds the official files; None to take them from the
      cache, and to download them into it if they are not there.
    cache_dir: Folder of the downloads; None for the user's cache folder.
    kinds: What the labels in a file of a user's own are, as for
      `own_data.create_task`.

  Returns:
    The task.

  Raises:
    ValueError: If there is no such task.
    TypeError: If an own function returns something else.
    tasks.data.datasets.data_files.DataError: If files are missing or refused.
  """
  check_task_name('task', name)
  if own_data.is_own(name):
    if data_dir is not None:
      raise ValueError(
        f'`data_dir` must not be given for own data, found {data_dir!r} for '
        f'{name}.'
      )
    return own_data.create_named_task(name, split, kinds)
  return TASKS[name](data_dir, cache_dir).split(name, split)
