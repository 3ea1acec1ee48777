"""Tests of what a training run knows of its data."""

import collections
import dataclasses
import os
import stat

import numpy as np
import pytest

from tasks.data import task
from tasks.data.partitions import PartitionConfig


def _split(num_clients):
  split = PartitionConfig('iid', num_clients=num_clients)
  return split.split(np.zeros(4, np.int32))


def _task(num_test):
  return task.Task(
    name='numbers',
    train=collections.OrderedDict(
      x=np.zeros([4, 1], np.uint8), y=np.zeros(4, np.int32)
    ),
    partition=_split(2),
    test=collections.OrderedDict(
      x=np.arange(num_test, dtype=np.uint8)[:, None],
      y=np.arange(num_test, dtype=np.int32),
    ),
    num_classes=num_test,
    source='made for a test',
  )


def test_fewer_test_examples_are_spread_evenly():
  for count, expected in ((4, [0, 2, 5, 7]), (10, list(range(10)))):
    test = _task(10).with_test_examples(count).test
    assert test['y'].tolist() == expected
    assert test['x'][:, 0].tolist() == expected
  for count in (0, 11):
    with pytest.raises(ValueError, match=f'`test_examples` .* found {count}'):
      _task(10).with_test_examples(count)


def _labels(shape, dtype=np.int32, value=1):
  """Returns changes: labels like this in both parts."""
  return dict(y=np.full([4, *shape], value, dtype), both=True)


@pytest.mark.parametrize(
  ('changes', 'words'),
  [
    (dict(x=np.zeros([4, 1])), '`x` must be uint8 or .* found float64'),
    (dict(y=np.zeros(4)), '`y` must be int32, found float64'),
    (dict(y=np.zeros(3, np.int32)), r'`train` must hold as many .* \[4, 3\]'),
    (dict(x=np.zeros([4, 2], np.uint8)), r'`x_test` .* uint8\[2\], found .*1'),
    (dict(y=np.ones([4, 3], np.int32)), r'`y_test` .* int32\[3\], found .*'),
    (dict(y=np.full(4, 10, np.int32)), '`y` .* `num_classes`, 10, found 10'),
    (dict(y=np.full(4, -1, np.int32)), '`y` must be from 0 .* found -1'),
    (_labels([2, 2]), r'`y` must be labels .* \[4, 2, 2\]'),
    (_labels([1]), r'`y` must be labels .* \[4, 1\]'),
    (_labels([], value=0) | dict(num_classes=1), 'at least two .* found 1'),
    (_labels([], np.float32) | dict(num_classes=None), 'rows of numbers'),
    (dict(has_padding=True), '`has_padding` must be True for rows'),
    (dict(has_padding=0), '`has_padding` must be True or False, found 0'),
  ],
)
def test_examples_that_nothing_trains_on_are_refused(changes, words):
  fields = dict(changes)
  arrays = {k: fields.pop(k) for k in ('x', 'y') if k in fields}
  task = _task(10)
  if fields.pop('both', False):
    y_test = np.resize(arrays['y'], [10, *arrays['y'].shape[1:]])
    fields['test'] = collections.OrderedDict({**task.test, 'y': y_test})
  fields['train'] = collections.OrderedDict({**task.train, **arrays})
  with pytest.raises(ValueError, match=words):
    dataclasses.replace(task, **fields)


def test_the_digest_is_of_every_example_and_of_whose_it_is():
  before = _task(10).compute_digest()
  assert before == _task(10).compute_digest()
  assert before != _task(9).compute_digest()
  other = _task(10)
  other.train['x'][3] = 1
  assert before != other.compute_digest()
  moved = dataclasses.replace(_task(10), partition=_split(4))
  assert before != moved.compute_digest()


@pytest.mark.parametrize('umask', [0o077, 0o022])
def test_the_client_store_is_for_those_whom_the_umask_lets_in(tmp_path, umask):
  before = os.umask(umask)
  try:
    _task(10).write_client_store(tmp_path / 'cache')
  finally:
    os.umask(before)
  paths = list((tmp_path / 'cache').rglob('*'))
  assert paths
  for path in paths:
    usual = 0o777 if path.is_dir() else 0o666
    assert stat.S_IMODE(path.stat().st_mode) == usual & ~umask
