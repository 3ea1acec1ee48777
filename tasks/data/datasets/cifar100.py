"""TFF's federated CIFAR-100: 500 clients with 100 images of 32×32×3 each.

TFF split the 50,000 training images by the Pachinko allocation method of Reddi
et al., "Adaptive Federated Optimization" (2021); 10,000 are test images.
"""

import collections

import numpy as np

from tasks.data import task
from tasks.data.datasets import data_files, tff_sqlite
from tasks.data.partitions import partition_config

FILE = 'cifar100.sqlite'

_NUM_CLASSES = 100


def create_cifar100_task(
  split: partition_config.PartitionConfig,
  *,
  data_dir: str | None = None,
  cache_dir: str | None = None,
) -> task.Task:
  """Creates the task of CIFAR-100.

  Args:
    split: How to split the training images over clients; 'natural' for TFF's
      own clients.
    data_dir: Folder of cifar100.sqlite; None to download it with TFF.
    cache_dir: Folder of the downloads; None for the user's cache folder.

  Returns:
    The task, with images uint8 [32, 32, 3] and 100 classes.

  Raises:
    data_files.DataError: If the file is missing or refused.
  """
  import tensorflow as tf
  import tensorflow_federated as tff

  path = tff_sqlite.find_or_download(
    'cifar100',
    FILE,
    tff.simulation.datasets.cifar100.load_data,
    data_dir,
    cache_dir,
  )
  features = {
    'image': ((32, 32, 3), tf.int64, np.uint8),
    'label': ((), tf.int64, np.int32),
  }
  splits = {}
  for part in ('train', 'test'):
    arrays, owners = tff_sqlite.read_split(path, part, features)
    data_files.check_labels(path, arrays['label'], _NUM_CLASSES)
    examples = collections.OrderedDict(x=arrays['image'], y=arrays['label'])
    splits[part] = examples, owners
  (train, owners), (test, _) = splits['train'], splits['test']
  return task.Task(
    name='cifar100',
    train=train,
    partition=split.split(train['y'], owners),
    test=test,
    num_classes=_NUM_CLASSES,
    source="TFF's federated CIFAR-100",
  )
