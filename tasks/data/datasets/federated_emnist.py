"""TFF's federated EMNIST: characters of 28×28, by writer.

3,400 writers with 62 classes (671,585 training and 77,483 test examples), or
3,383 writers with the 10 digits alone (341,873 and 40,832). The pixels are as
TFF has them: ink on a light background, 255 where there is none, the inverse
of MNIST and of EMNIST's own files.
"""

import collections

import numpy as np

from tasks.data import task
from tasks.data.datasets import data_files, tff_sqlite
from tasks.data.partitions import partition_config

FILE = 'emnist_all.sqlite'


def create_federated_emnist_task(
  split: partition_config.PartitionConfig,
  *,
  only_digits: bool = False,
  data_dir: str | None = None,
  cache_dir: str | None = None,
) -> task.Task:
  """Creates the task: images uint8 [28, 28, 1] of 62 classes, or of 10.

  Args:
    split: How to split the training examples over clients; 'natural' for TFF's
      own clients, the writers.
    only_digits: Whether to leave out the letters.
    data_dir: Folder of emnist_all.sqlite; None to download it with TFF.
    cache_dir: Folder of the downloads; None for the user's cache folder.

  Raises:
    data_files.DataError: If the file is missing or refused.
  """
  import tensorflow as tf
  import tensorflow_federated as tff

  name, prefix, num_classes = 'federated_emnist', 'all', 62
  if only_digits:
    name, prefix, num_classes = f'{name}_digits', 'digits_only', 10
  path = tff_sqlite.find_or_download(
    name,
    FILE,
    tff.simulation.datasets.emnist.load_data,
    data_dir,
    cache_dir,
  )
  features = {
    'pixels': ((28, 28), tf.float32, np.uint8),
    'label': ((), tf.int64, np.int32),
  }
  splits = {}
  for part in ('train', 'test'):
    arrays, owners = tff_sqlite.read_split(path, f'{prefix}_{part}', features)
    data_files.check_labels(path, arrays['label'], num_classes)
    examples = collections.OrderedDict(
      x=arrays['pixels'][..., np.newaxis], y=arrays['label']
    )
    splits[part] = examples, owners
  (train, owners), (test, _) = splits['train'], splits['test']
  return task.Task(
    name=name,
    train=train,
    partition=split.split(train['y'], owners),
    test=test,
    num_classes=num_classes,
    source="TFF's federated EMNIST",
    # Each writer's examples are split over both.
    test_is_of_clients=True,
  )
