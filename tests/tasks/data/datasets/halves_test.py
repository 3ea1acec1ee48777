"""Tests of the halves of a data set."""

import numpy as np
import pytest

from tasks.data.data_set import DataSet
from tasks.data.datasets import cifar10, halves, mnist, registry


def _read(data_dir, cache_dir):
  assert (data_dir, cache_dir) == ('files', None)
  return DataSet(
    x=np.arange(7, dtype=np.uint8).reshape(7, 1, 1, 1),
    y=np.arange(7) % 2,
    x_test=np.zeros((3, 1, 1, 1), np.uint8),
    y_test=np.arange(3) % 2,
    num_classes=2,
    source='digits',
    owners=np.arange(7) // 2,
  )


def test_the_halves_have_no_example_in_common():
  even, odd = (halves.read_half(_read, first, 'files') for first in (0, 1))
  assert even.x.ravel().tolist() == [0, 2, 4, 6]
  assert odd.x.ravel().tolist() == [1, 3, 5]
  assert even.y.tolist() == [0, 0, 0, 0]
  assert odd.y.tolist() == [1, 1, 1]
  assert even.owners.tolist() == [0, 1, 2, 3]
  assert odd.owners.tolist() == [0, 1, 2]
  assert len(even.x_test) == len(odd.y_test) == 3
  assert odd.source == 'digits; every other training image, from 1 on'


@pytest.mark.parametrize(
  ('name', 'read'),
  [('mnist', mnist.read_mnist), ('cifar10', cifar10.read_cifar10)],
)
def test_tasks_have_the_halves_of_their_data(name, read):
  for first, half in enumerate(('even', 'odd')):
    task = registry.TASKS[f'{name}_{half}']
    assert (task.func, task.args) == (halves.read_half, (read, first))
