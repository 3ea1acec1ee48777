"""Tests of what a run minimises, measures, and is judged by."""

import collections
import dataclasses

import numpy as np
import pytest

from tasks.data import task
from tasks.data.datasets import own_data
from tasks.data.partitions.partition_config import PartitionConfig
from tasks.models import objective

_IID = PartitionConfig('iid', num_clients=2)


def _create(loss=None, *metrics, goal=None):
  return objective.create_objective(
    objective.ObjectiveSettings(loss=loss, metrics=metrics, metric_goal=goal)
  )


@pytest.mark.parametrize(
  ('asked', 'metric', 'goal'),
  [
    ([], 'accuracy', 'max'),
    (['mean_squared_error'], 'loss', 'min'),
    (['huber', 'mean_absolute_error'], 'mean_absolute_error', 'min'),
    (['huber', 'r2_score', 'mean_absolute_error'], 'r2_score', 'max'),
    ([None, 'perplexity', 'accuracy'], 'perplexity', 'min'),
    (['binary_crossentropy', 'auc'], 'auc', 'max'),
    (['kind=sparse_categorical_crossentropy+size=huber', 'size=r2_score'],
     'size_r2_score', 'max'),
  ],
)  # fmt: skip
def test_the_first_metric_decides_or_the_loss(asked, metric, goal):
  found = _create(*asked)
  assert (found.metric, found.goal) == (metric, goal)
  assert found.column == f'test_{metric}'


@pytest.mark.parametrize('goal', ['max', 'min'])
def test_of_a_metric_of_ones_own_somebody_says_what_is_better(goal):
  assert _create('mine.py:loss', 'mine.py:score', goal=goal).goal == goal
  with pytest.raises(ValueError, match='`metric_goal` must be given'):
    _create('mine.py:loss', 'mine.py:score')
  with pytest.raises(ValueError, match='of which it is max'):
    _create(None, 'accuracy', goal=goal)


@pytest.mark.parametrize(
  ('asked', 'words'),
  [
    (['mean_square_error'], 'Did you mean mean_squared_error'),
    ([None, 'acuracy'], 'Did you mean accuracy'),
    (['MSE'], 'Did you mean mean_squared_error'),
    (['huber', 'RootMeanSquaredError'], 'mean root_mean_squared_error'),
    (['huber+huber'], '`loss` must be one, or one of each output'),
    (['a=huber+a=huber'], '`loss` must be one, or one of each output'),
    (['a=huber+huber'], '`loss` must be one, or one of each output'),
    (['huber', 'r2_score', 'r2_score'], 'must have different names'),
    ([None, 'mine.py:loss'], 'none of them loss'),
  ],
)
def test_what_is_no_loss_or_metric_is_refused(asked, words):
  with pytest.raises(ValueError, match=words):
    _create(*asked, goal='min' if 'mine.py:loss' in asked else None)


def _task(y, **changes):
  return own_data.create_task(
    'mine',
    _IID,
    **dict(x=np.zeros([4, 1]), y=y, x_test=np.ones([4, 1]), y_test=y) | changes,
  )


_CLASSES = [0, 1, 0, 1]
_NUMBERS = [0.5, 1.0, -2.0, 0.0]


@pytest.mark.parametrize(
  ('asked', 'y', 'kinds', 'words'),
  [
    ([], _NUMBERS, 'numbers', '`loss` must be one for numbers, which `y`'),
    (['huber'], _CLASSES, 'classes', '`loss` must be one for classes'),
    (['binary_crossentropy'], _NUMBERS, 'numbers', 'must be 0 or 1 .* 0.5'),
    (
      ['huber', 'auc'],
      _NUMBERS,
      'numbers',
      'numbers, as `loss` huber is, found auc, which is for labels of 0 and 1',
    ),
    ([None, 'r2_score'], _CLASSES, 'classes', 'found r2_score, which is for n'),
    (
      ['mine.py:loss', 'accuracy'],
      _NUMBERS,
      'numbers',
      'numbers, which `y` has, found accuracy, which is for classes',
    ),
    (['a=huber'], _NUMBERS, 'numbers', 'found a=huber for y alone'),
    (['huber', 'a=r2_score'], _NUMBERS, 'numbers', 'found a_r2_score'),
  ],
)
def test_what_does_not_fit_the_labels_is_refused(asked, y, kinds, words):
  with pytest.raises(ValueError, match=words):
    _create(*asked).check_task(_task(y, kinds=kinds))


@pytest.mark.parametrize(
  ('asked', 'y'),
  [
    ([], _CLASSES),
    ([None, 'perplexity'], _CLASSES),
    (['huber', 'r2_score'], _CLASSES),
    (['binary_crossentropy', 'auc', 'recall'], _CLASSES),
    (['mine.py:loss', 'accuracy'], _CLASSES),
    (['mine.py:loss', 'r2_score'], _NUMBERS),
  ],
)
def test_the_loss_says_what_labels_are(asked, y):
  asked_for = _create(*asked)
  asked_for.check_task(_task(y, kinds=asked_for.kinds))


def test_each_of_several_outputs_has_its_loss():
  y = dict(kind=np.array(_CLASSES), size=np.array(_NUMBERS))
  asked_for = _create(
    'kind=sparse_categorical_crossentropy+size=huber',
    'kind=accuracy',
    'size=r2_score',
  )
  data = _task(y, kinds=asked_for.kinds)
  asked_for.check_task(data)
  assert data.num_classes == {'kind': 2, 'size': None}
  assert data.label_shape == {'kind': (), 'size': (1,)}
  with pytest.raises(ValueError, match='`loss` must be of each output'):
    _task(y, kinds=_create('size=huber').kinds)
  with pytest.raises(ValueError, match='found huber for y_kind, y_size'):
    _create('huber').check_task(data)
  # One of a user's own takes both.
  _create('mine.py:loss', 'size=r2_score').check_task(data)


def test_a_task_has_all_examples_of_each_feature():
  data = _task(_NUMBERS, kinds='numbers')
  short = collections.OrderedDict(data.train, y=data.train['y'][:3])
  for name in ('train', 'test'):
    words = f'`{name}` must hold as many x as y, found 4 and 3'
    with pytest.raises(ValueError, match=words):
      dataclasses.replace(data, **{name: short})
  assert isinstance(data, task.Task)
