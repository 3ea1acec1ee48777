"""Tests of what a run minimises, measures, and is judged by."""

import types

import numpy as np
import pytest

from tasks.data import own
from tasks.data.partitions import PartitionConfig
from tasks.models import objective


def _create(loss=None, *metrics, goal=None):
  return objective.create_objective(
    types.SimpleNamespace(loss=loss, metrics=metrics, metric_goal=goal)
  )


@pytest.mark.parametrize(
  ('asked', 'metric', 'goal'),
  [
    ([], 'accuracy', 'max'),
    (['mean_squared_error'], 'loss', 'min'),
    (['huber', 'mean_absolute_error'], 'mean_absolute_error', 'min'),
    (['huber', 'MeanAbsoluteError'], 'MeanAbsoluteError', 'min'),
    (['huber', 'r2_score', 'mae'], 'r2_score', 'max'),
    ([None, 'perplexity', 'accuracy'], 'perplexity', 'min'),
    (['binary_crossentropy', 'auc'], 'auc', 'max'),
  ],
)
def test_the_first_metric_decides_or_the_loss(asked, metric, goal):
  found = _create(*asked)
  assert (found.metric, found.goal) == (metric, goal)
  assert found.column == f'test_{metric}'


@pytest.mark.parametrize('goal', ['max', 'min'])
@pytest.mark.parametrize('metric', ['mine.py:score', 'TruePositives'])
def test_somebody_says_what_is_better_where_no_name_does(metric, goal):
  assert _create('mse', metric, goal=goal).goal == goal
  with pytest.raises(ValueError, match='`metric_goal` must be given'):
    _create('mse', metric)


@pytest.mark.parametrize(
  ('asked', 'goal', 'words'),
  [
    ([None, 'accuracy'], 'min', 'must be left out for accuracy, of which it'),
    (['mse'], 'max', 'must be left out for loss, of which it is min'),
    (['mse', 'r2_score', 'r2_score'], None, "different names.*'r2_score'"),
    ([None, 'mine.py:loss'], 'min', 'none of them loss'),
    ([None, 'top-5'], 'max', "a word for its column .* found 'top-5'"),
  ],
)
def test_names_and_goals_that_cannot_be_are_refused(asked, goal, words):
  with pytest.raises(ValueError, match=words):
    _create(*asked, goal=goal)


def test_a_share_is_shown_in_percent():
  assert _create().describe(0.123456) == '12.3%'
  assert _create('mse', 'mae').describe(0.123456) == '0.1235'


def _task(y, kinds):
  return own.create_task(
    'mine',
    PartitionConfig('iid', num_clients=2),
    **dict(x=np.zeros([4, 1]), y=y, x_test=np.ones([4, 1]), y_test=y),
    kinds=kinds,
  )


_CLASSES = [0, 1, 0, 1]
_NUMBERS = [0.5, 1.0, -2.0, 0.0]


@pytest.mark.parametrize(
  ('asked', 'y', 'kinds', 'words'),
  [
    ([], _NUMBERS, 'numbers', '`loss` must be for numbers, which `y`'),
    (['huber'], _CLASSES, 'classes', '`loss` must be for classes'),
    (['binary_crossentropy'], _NUMBERS, 'numbers', '`loss` .* for numbers'),
    (['mine.py:loss', 'auc'], _NUMBERS, 'numbers', 'numbers.* found auc'),
    (['huber', 'auc'], _CLASSES, 'numbers', 'huber takes, found auc'),
    (['huber', 'accuracy'], _CLASSES, 'numbers', 'huber takes, found acc'),
    ([None, 'r2_score'], _CLASSES, 'classes', 'for classes.* found r2_score'),
    ([None, 'auc'], _CLASSES, 'classes', 'must be for classes.* found auc'),
    (['mine.py:loss', 'perplexity'], _NUMBERS, 'numbers', 'found perplexity'),
  ],
)
def test_what_does_not_fit_the_labels_is_refused(asked, y, kinds, words):
  with pytest.raises(ValueError, match=words):
    _create(*asked).check_task(_task(y, kinds))


@pytest.mark.parametrize(
  ('asked', 'y', 'kinds'),
  [
    ([], _CLASSES, 'classes'),
    ([None, 'perplexity'], _CLASSES, 'classes'),
    (['huber', 'r2_score'], _CLASSES, 'numbers'),
    (['binary_crossentropy', 'auc', 'recall'], _CLASSES, 'numbers'),
    (['mine.py:loss', 'accuracy'], _CLASSES, 'as_given'),
    (['mine.py:loss', 'r2_score'], _NUMBERS, 'as_given'),
    (['mine.py:loss', 'auc'], [0.0, 1.0, 1.0, 0.0], 'as_given'),
  ],
)
def test_the_loss_says_what_labels_are(asked, y, kinds):
  asked_for = _create(*asked)
  assert asked_for.kinds == kinds
  asked_for.check_task(_task(y, kinds))
