"""Tests of what a run minimises, measures, and is judged by, against NumPy.

Losses and metrics take logits, also where Keras's defaults take probabilities;
padding does not count; and a metric without a value is NaN.
"""

import math
import types

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tasks.data import own
from tasks.data.partitions import PartitionConfig
from tasks.models import evaluation, objective, run_models

_RNG = np.random.default_rng(0)
# Float32 sums of some hundred terms.
_NEAR = dict(rel=1e-5)


def _create(loss=None, *metrics, goal=None):
  return objective.create_objective(
    types.SimpleNamespace(loss=loss, metrics=metrics, metric_goal=goal)
  )


@pytest.mark.parametrize(
  ('asked', 'metric', 'goal'),
  [
    (['mse', 'mine.py:score'], 'score', None),
    ([], 'accuracy', 'max'),
    (['mean_squared_error'], 'loss', 'min'),
    (['huber', 'MeanAbsoluteError'], 'MeanAbsoluteError', 'min'),
    (['huber', 'r2_score', 'mae'], 'r2_score', 'max'),
    ([None, 'perplexity', 'accuracy'], 'perplexity', 'min'),
  ],
)
def test_the_first_metric_decides_or_the_loss(asked, metric, goal):
  for given in ('max', 'min') if goal is None else (None,):
    found = _create(*asked, goal=given)
    assert (found.metric, found.goal) == (metric, goal or given)
    assert found.column == f'test_{metric}'


@pytest.mark.parametrize(
  ('asked', 'goal', 'words'),
  [
    ([None, 'accuracy'], 'min', '`metric_goal` must be max .* found min'),
    (['mse'], 'max', '`metric_goal` must be min for loss, found max'),
    (['mse', 'r2_score', 'r2_score'], None, "`metrics` .* found 'r2_score'"),
    ([None, 'mine.py:loss'], 'min', "`metrics` .* found 'loss'"),
    ([None, 'top-5'], 'max', "`metrics` .* found 'top-5'"),
    # No name says what is better, nor does anybody.
    (['mse', 'mine.py:score'], None, '`metric_goal` must be max or min for'),
    (['mse', 'TruePositives'], None, '`metric_goal` must be max or min for'),
  ],
)
def test_names_and_goals_that_cannot_be_are_refused(asked, goal, words):
  with pytest.raises(ValueError, match=words):
    _create(*asked, goal=goal)


def test_a_share_is_shown_in_percent():
  assert _create().describe(0.123456) == '12.3%'
  assert _create('mse', 'mae').describe(0.123456) == '0.1235'


def _task(x, y, kinds, has_padding=None):
  return own.create_task(
    'mine',
    PartitionConfig('iid', num_clients=1),
    **dict(x=x + 1, y=y, x_test=x, y_test=y, has_padding=has_padding),
    kinds=kinds,
  )


_CLASSES = [0, 1, 0, 1]
_NUMBERS = [0.5, 1.0, -2.0, 0.0]


@pytest.mark.parametrize(
  ('asked', 'y', 'kinds', 'words'),
  [
    ([], _NUMBERS, 'numbers', '`loss` must be for numbers'),
    (['huber'], _CLASSES, 'classes', '`loss` must be for classes'),
    (['binary_crossentropy'], _NUMBERS, 'numbers', '`loss` must be for num'),
    (['mine.py:loss', 'auc'], _NUMBERS, 'numbers', '`metrics` .* found auc'),
    (['huber', 'auc'], _CLASSES, 'numbers', '`metrics` .* found auc'),
    (['huber', 'accuracy'], _CLASSES, 'numbers', '`metrics` .* found accuracy'),
    (['bce', 'mse'], _CLASSES, 'numbers', '`metrics` .* found mse'),
    ([None, 'r2_score'], _CLASSES, 'classes', '`metrics` .* found r2_score'),
    ([None, 'auc'], _CLASSES, 'classes', '`metrics` .* found auc'),
    (
      *(['mine.py:loss', 'perplexity'], _NUMBERS, 'numbers'),
      '`metrics` .* found perplexity',
    ),
  ],
)
def test_what_does_not_fit_the_labels_is_refused(asked, y, kinds, words):
  with pytest.raises(ValueError, match=words):
    _create(*asked).check_task(_task(np.zeros([4, 1]), y, kinds))


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
  asked_for.check_task(_task(np.zeros([4, 1]), y, kinds))


class _Scale(tf.keras.layers.Layer):
  """Multiplies by its one weight."""

  def build(self, input_shape):
    del input_shape
    self.weight = self.add_weight('w', [], initializer='ones')

  def call(self, inputs):
    return self.weight * inputs


def _evaluate(
  x,
  y,
  loss=None,
  *metrics,
  has_padding=None,
  weight=1,
  goal=None,
):
  """Returns what is measured of a model that gives x."""
  asked = _create(loss, *metrics, goal=goal)
  task = _task(x, y, asked.kinds, has_padding)
  asked.check_task(task)
  model_fn = run_models.build_model_fn(
    lambda: tf.keras.Sequential([tf.keras.Input(x.shape[1:]), _Scale()]),
    task.element_spec,
    loss=asked.create_loss(task),
  )
  evaluate = evaluation.build_evaluation_fn(
    model_fn, task.test, asked.create_metrics(task)
  )
  weights = tff.learning.models.ModelWeights([np.float32(weight)], [])
  # A second evaluation begins anew.
  evaluate(tff.learning.models.ModelWeights([np.float32(3)], []))
  return evaluate(weights)


def test_errors_of_a_regression_are_over_all_batches():
  # More than one batch, the last of which is short.
  x, y = _RNG.normal(size=(2, 300, 1)).astype(np.float32)
  found = _evaluate(
    *(x, y, 'mean_squared_error'),
    *('mae', 'MeanAbsoluteError', 'root_mean_squared_error', 'r2_score'),
  )
  squared, absolute = np.square(x - y).mean(), np.abs(x - y).mean()
  assert found == pytest.approx(
    dict(
      test_loss=squared,
      test_mae=absolute,
      test_MeanAbsoluteError=absolute,
      test_root_mean_squared_error=math.sqrt(squared),
      test_r2_score=1 - squared / y.var(),
    ),
    **_NEAR,
  )


def test_a_metric_of_all_outputs_has_the_shape_of_the_labels():
  # As of a loss of one's own, by a mean and a variance.
  x = np.ones([4, 2], np.float32)
  y = np.ones([4, 1], np.float32)
  with pytest.raises(
    ValueError, match=r'the shape \(4, 1\) of `y` for r2_score'
  ):
    _evaluate(x, y, lambda y, found: tf.abs(y - found[:, :1]), 'r2_score')


def _cross_entropies(x, y):
  log_probs = x - np.log(np.exp(x).sum(axis=-1, keepdims=True))
  return -np.take_along_axis(log_probs, y[..., None], axis=-1)[..., 0]


@pytest.mark.parametrize('has_padding', [True, False])
def test_padding_counts_in_neither_loss_nor_metrics(has_padding):
  x = _RNG.normal(size=(300, 4, 7)).astype(np.float32)
  y = _RNG.integers(1, 7, size=(300, 4)).astype(np.int32)
  # Rows of all lengths: a mean over batches would weigh tokens unlike.
  y[np.arange(4) >= _RNG.integers(1, 5, 300)[:, None]] = 0
  y[256:, 1:] = 0
  counts = y != 0 if has_padding else y >= 0
  found = _evaluate(
    *(x, y, None, 'accuracy', 'perplexity'),
    *('sparse_top_k_categorical_accuracy', 'SparseCategoricalCrossentropy'),
    has_padding=has_padding,
  )
  mean = _cross_entropies(x, y)[counts].mean()
  ranks = (x > np.take_along_axis(x, y[..., None], axis=-1)).sum(axis=-1)
  del found['test_loss']  # Weighted by batches: below.
  assert found == pytest.approx(
    dict(
      test_accuracy=(ranks == 0)[counts].mean(),
      test_perplexity=np.exp(mean),
      test_sparse_top_k_categorical_accuracy=(ranks < 5)[counts].mean(),
      test_SparseCategoricalCrossentropy=mean,
    ),
    **_NEAR,
  )


def test_the_loss_of_a_batch_is_the_mean_of_the_tokens_that_count():
  x = _RNG.normal(size=(2, 3, 4)).astype(np.float32)
  y = np.array([[1, 2, 0], [3, 0, 0]])
  loss = objective.cross_entropy(is_masked=True)
  expected = _cross_entropies(x, y)[y != 0].mean()
  assert float(loss(y, x)) == pytest.approx(expected, **_NEAR)
  assert float(loss(np.zeros_like(y), x)) == 0


@pytest.mark.parametrize('loss', ['bce', 'BinaryCrossentropy'])
@pytest.mark.parametrize('columns', [1, 3])
def test_labels_of_0_and_1_are_judged_by_logits(columns, loss):
  x = _RNG.normal(size=(40, columns)).astype(np.float32)
  y = _RNG.integers(2, size=(40, columns)).astype(np.float32)
  right = ((x > 0) & (y == 1)).sum()
  terms, share = np.mean(np.log1p(np.exp(x)) - x * y), np.mean((x > 0) == y)
  expected = dict(
    accuracy=share,
    acc=share,
    binary_accuracy=share,
    precision=right / (x > 0).sum(),
    Recall=right / y.sum(),
    f1_score=2 * right / ((x > 0).sum() + y.sum()),
    BinaryCrossentropy=terms,
    bce=terms,
  )
  found = _evaluate(x, y, loss, *expected)
  assert found == pytest.approx(
    {f'test_{name}': value for name, value in expected.items()}
    | dict(test_loss=terms),
    **_NEAR,
  )


def test_rows_of_one_class_are_judged_by_logits():
  x = _RNG.normal(size=(40, 5)).astype(np.float32)
  y = np.eye(5, dtype=np.float32)[_RNG.integers(5, size=40)]
  found = _evaluate(x, y, 'CategoricalCrossentropy', 'accuracy')
  labels = y.argmax(axis=1)
  assert found == pytest.approx(
    dict(
      test_loss=_cross_entropies(x, labels).mean(),
      test_accuracy=np.mean(x.argmax(axis=1) == labels),
    ),
    **_NEAR,
  )


@pytest.mark.parametrize(
  ('offset', 'share'), [(0, 0.5), (50, 0.5), (-50, 0.01)]
)
def test_auc_is_exact_however_confident_the_logits_are(offset, share):
  y = (np.arange(1000)[:, None] < 1000 * share).astype(np.float32)
  x = np.round(_RNG.normal(size=y.shape) + y, 1).astype(np.float32)
  pairs = x[y == 1][:, None] - x[y == 0]
  expected = np.mean((pairs > 0) + (pairs == 0) / 2)
  x += np.float32(offset)
  # Offsets keep the order of numbers that are 0.1 apart.
  found = _evaluate(x, y, 'binary_crossentropy', 'auc')
  assert found['test_auc'] == pytest.approx(expected, abs=1e-6)


def test_a_metric_without_a_value_is_nan():
  x = np.full([8, 1], -1, np.float32)
  zeros = np.zeros_like(x)
  found = _evaluate(
    *(x, zeros, 'binary_crossentropy', 'accuracy'),
    *('auc', 'precision', 'recall', 'f1_score'),
  )
  assert found.pop('test_accuracy') == 1
  del found['test_loss']
  assert np.isnan([*found.values()]).tolist() == [True] * 4
  found = _evaluate(x, zeros + 0.1, 'mean_squared_error', 'r2_score')
  assert math.isnan(found['test_r2_score'])


def test_a_share_has_the_digits_of_float64():
  y = np.arange(10, dtype=np.int32) % 2
  x = np.tile(np.float32([[1, 0]]), [10, 1])
  x[0] = [0, 1]
  # 4 of 10: in float32 it is another number.
  assert _evaluate(x, y, None, 'Accuracy')['test_Accuracy'] == 0.4


def _cubed(y_true, y_pred):
  return tf.abs(y_true - y_pred) ** 3


class _Largest(tf.keras.metrics.Metric):
  """The largest error."""

  def __init__(self, name='largest', **kwargs):
    super().__init__(name=name, **kwargs)
    self.largest = self.add_weight('largest', initializer='zeros')

  def update_state(self, y_true, y_pred, sample_weight=None):
    found = tf.reduce_max(tf.abs(y_true - y_pred))
    self.largest.assign(tf.maximum(self.largest, found))

  def result(self):
    return self.largest.read_value()


@pytest.mark.parametrize(
  ('loss', 'largest'),
  [
    (_cubed, _Largest),
    (_cubed, _Largest()),
    (tf.keras.losses.MeanSquaredError, _Largest),
  ],
)
def test_functions_and_objects_of_ones_own_are_taken(loss, largest):
  def mean(y_true, y_pred):
    return tf.reduce_mean(y_pred)  # A number for each batch.

  x, y = _RNG.normal(size=(2, 300, 1)).astype(np.float32)
  found = _evaluate(x, y, loss, largest, _cubed, mean, goal='min')
  errors = np.abs(x - y)
  power = 3 if loss is _cubed else 2
  assert found == pytest.approx(
    dict(
      test_loss=(errors**power).mean(),
      test__Largest=errors.max(),
      test__cubed=(errors**3).mean(),
      test_mean=x.mean(),
    ),
    **_NEAR,
  )


def _one():
  return 1


def _rounded(y_true, y_pred):
  return tf.abs(y_true - tf.round(y_pred))


def _nothing(y_true, y_pred):
  del y_true, y_pred


def _two_numbers():
  return tf.keras.metrics.Precision(thresholds=[0, 1])


@pytest.mark.parametrize(
  ('asked', 'error', 'words'),
  [
    ([_one], TypeError, '`loss` must be a function that returns a Loss'),
    ([_rounded], ValueError, '`loss` must have a gradient .* of .*rounded'),
    ([_nothing], TypeError, '`loss` must be a function that returns a Tensor'),
    (['mse', _one], TypeError, '`metrics` must be a function that returns a M'),
    (['mse', _two_numbers], ValueError, '`metrics` must be single numbers'),
    (['mean_square'], ValueError, '`loss` must be a name .*found'),
    (['mse', 'error'], ValueError, '`metrics` must be a name'),
    # It needs an argument.
    (['mse', 'MeanRelativeError'], ValueError, '`metrics` must be a name'),
  ],
)
def test_what_makes_no_loss_or_metric_is_refused(asked, error, words):
  # Those that Keras takes for probabilities, too.
  x, y = np.zeros([2, 8, 1], np.float32)
  goal = 'min' if asked[-1] in (_one, _two_numbers) and asked[1:] else None
  with pytest.raises(error, match=words):
    _evaluate(x, y, *asked, goal=goal)


def test_of_a_model_that_has_diverged_the_loss_tells():
  x, y = np.ones([2, 2, 1], np.float32)
  found = _evaluate(x, y, 'mse', 'r2_score', weight=math.inf)
  assert not math.isfinite(found['test_loss'])
