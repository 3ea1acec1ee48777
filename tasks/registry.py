"""The tasks by name, as the --task flag has them."""

from collections.abc import Callable, Mapping

from tasks import task
from tasks.datasets import (
  cifar10,
  cifar100,
  digits,
  emnist,
  federated_emnist,
  mnist,
  shakespeare,
)
from tasks.partitions import partition_config

TASKS: Mapping[str, Callable[..., task.Task]] = {
  'embedded_digits': digits.create_embedded_digits_task,
  'mnist': mnist.create_mnist_task,
  'emnist_digits': emnist.create_emnist_digits_task,
  'cifar10': cifar10.create_cifar10_task,
  'federated_emnist': federated_emnist.create_federated_emnist_task,
  'federated_emnist_digits': (
    federated_emnist.create_federated_emnist_digits_task
  ),
  'cifar100': cifar100.create_cifar100_task,
  'shakespeare': shakespeare.create_shakespeare_task,
}


def create_task(
  name: str,
  split: partition_config.PartitionConfig,
  *,
  data_dir: str | None = None,
  cache_dir: str | None = None,
) -> task.Task:
  """Creates a task by its name.

  Args:
    name: One of `TASKS`.
    split: How to split the training examples over clients.
    data_dir: Folder that holds the official files; None to take them from the
      cache, and to download them into it if they are not there.
    cache_dir: Folder of the downloads; None for the user's cache folder.

  Returns:
    The task.

  Raises:
    ValueError: If there is no such task.
    tasks.datasets.data_files.DataError: If files are missing or refused.
  """
  if name not in TASKS:
    raise ValueError(
      f'`task` must be one of {", ".join(TASKS)}, found {name!r}.'
    )
  return TASKS[name](split, data_dir=data_dir, cache_dir=cache_dir)
