"""Tests for the registry, the embedded digits, tasks and partition configs."""

import collections
import re

import numpy as np
import pytest
import tensorflow as tf

from tasks.data.datasets import digits, registry
from tasks.data.partitions import partition_config


def test_embedded_digits_are_split_4000_to_1000_by_class():
  (x_train, y_train), (x_test, y_test) = digits.load_digits()
  assert x_train.shape == (4000, 28, 28, 1)
  assert x_test.shape == (1000, 28, 28, 1)
  assert x_train.dtype == np.uint8
  np.testing.assert_array_equal(np.bincount(y_train), [400] * 10)
  np.testing.assert_array_equal(np.bincount(y_test), [100] * 10)
  # No digit is in both: the pixels of the 5,000 are all different.
  rows = np.concatenate([x_train, x_test]).reshape(5000, -1)
  assert len(np.unique(rows, axis=0)) == 5000
  # Ink is bright: the borders are empty.
  assert x_train[:, 0].max() == 0
  assert x_train.max() == 255


def test_embedded_digits_task_by_label_skew():
  created = registry.create_task(
    'embedded_digits',
    partition_config.PartitionConfig('label_skew', num_clients=100),
  )
  counts = np.sort(
    created.partition.class_counts(created.train['y'], 10), axis=1
  )
  # 46% of 40 is 18.4.
  assert set(counts[:, 8:].ravel()) <= {18, 19}
  assert created.num_clients == 100
  assert created.element_spec == collections.OrderedDict(
    x=tf.TensorSpec((28, 28, 1), tf.uint8), y=tf.TensorSpec((), tf.int32)
  )


def test_client_store_holds_each_clients_examples(tmp_path):
  created = registry.create_task(
    'embedded_digits', partition_config.PartitionConfig('iid', num_clients=8)
  )
  store = created.write_client_store(tmp_path)
  assert store.client_ids == created.client_ids
  assert store.element_spec == created.element_spec
  examples = store.read_client(tf.constant(created.client_ids[5]))
  rows = created.partition.indices[5]
  np.testing.assert_array_equal(examples['x'], created.train['x'][rows])
  np.testing.assert_array_equal(examples['y'], created.train['y'][rows])


def test_unknown_task_is_refused():
  with pytest.raises(
    ValueError, match="`task` must be one of embedded_digits, .*, found 'foo'"
  ):
    registry.create_task(
      'foo', partition_config.PartitionConfig('iid', num_clients=2)
    )


def test_folder_for_embedded_digits_is_refused(tmp_path):
  with pytest.raises(ValueError, match='`data_dir` must not be given'):
    registry.create_task(
      'embedded_digits',
      partition_config.PartitionConfig('iid', num_clients=2),
      data_dir=str(tmp_path),
    )


def test_natural_partition_of_data_without_owners_is_refused():
  with pytest.raises(ValueError, match="must not be 'natural' for data that"):
    registry.create_task(
      'embedded_digits', partition_config.PartitionConfig('natural')
    )


@pytest.mark.parametrize(
  ('arguments', 'message'),
  [
    (
      dict(name='foo'),
      '`partition` must be one of iid, class_balanced, label_skew, dirichlet, '
      "shards, natural, found 'foo'.",
    ),
    (
      dict(name='iid'),
      "`num_clients` must be given for the partition 'iid'.",
    ),
    (
      dict(name='natural', examples_per_client=5),
      '`examples_per_client` must not be given for the natural partition, '
      'whose clients have what they have, found 5.',
    ),
  ],
)
def test_wrong_partition_config_is_refused(arguments, message):
  with pytest.raises(ValueError, match=f'^{re.escape(message)}$'):
    partition_config.PartitionConfig(**arguments)
