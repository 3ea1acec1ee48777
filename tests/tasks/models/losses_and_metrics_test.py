"""Tests of losses and metrics by name, against NumPy.

They take logits, also where Keras's defaults take probabilities; padding does
not count; and a metric without a value is NaN.
"""

import collections
import math
import types

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tasks.data import own
from tasks.data.partitions import PartitionConfig
from tasks.models import evaluation, losses_and_metrics, objective, tff_model

_RNG = np.random.default_rng(0)
# Float32 sums of some hundred terms.
_NEAR = dict(rel=1e-5)


class _Scale(tf.keras.layers.Layer):
  """Multiplies by its one weight."""

  def build(self, input_shape):
    del input_shape
    self.weight = self.add_weight('w', [], initializer='ones')

  def call(self, inputs):
    return self.weight * inputs


def _evaluate(x, y, loss=None, *metrics, has_padding=None, functions=None):
  """Returns what is measured of a model that gives x."""
  settings = types.SimpleNamespace(loss=loss, metrics=metrics, metric_goal=None)
  asked = (
    objective.Objective(loss, tuple(map(_own, metrics)), 'min')
    if functions
    else objective.create_objective(settings)
  )
  task = own.create_task(
    'test',
    PartitionConfig('iid', num_clients=1),
    **dict(x=x, y=y, x_test=x, y_test=y, has_padding=has_padding),
    kinds=asked.kinds,
  )
  asked.check_task(task)
  given = task, functions or {}
  model_fn = tff_model.build_model_fn(
    lambda: tf.keras.Sequential([tf.keras.Input(x.shape[1:]), _Scale()]),
    task.element_spec,
    loss=losses_and_metrics.create_loss(asked, *given),
  )
  evaluate = evaluation.build_evaluation_fn(
    model_fn, task.test, losses_and_metrics.create_metrics(asked, *given)
  )
  return evaluate(tff.learning.models.ModelWeights([np.float32(1)], []))


def _own(source):
  return objective.Metric(source.rpartition(':')[2], source)


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


@pytest.mark.parametrize('has_padding', [True, False])
def test_padding_counts_in_neither_loss_nor_metrics(has_padding):
  x = _RNG.normal(size=(300, 4, 7)).astype(np.float32)
  y = _RNG.integers(1, 7, size=(300, 4)).astype(np.int32)
  # Rows of all lengths: a mean over batches would weigh tokens unlike.
  y[np.arange(4) >= _RNG.integers(1, 5, 300)[:, None]] = 0
  y[256:, 1:] = 0
  log_probs = x - np.log(np.exp(x).sum(axis=-1, keepdims=True))
  terms = -np.take_along_axis(log_probs, y[..., None], axis=-1)[..., 0]
  counts = y != 0 if has_padding else y >= 0
  found = _evaluate(
    *(x, y, None, 'accuracy', 'perplexity'),
    *('sparse_top_k_categorical_accuracy', 'SparseCategoricalCrossentropy'),
    has_padding=has_padding,
  )
  mean = terms[counts].mean()
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
  terms = tf.keras.losses.sparse_categorical_crossentropy(
    y, x, from_logits=True
  ).numpy()
  loss = losses_and_metrics.cross_entropy(is_masked=True)
  assert float(loss(y, x)) == pytest.approx(terms[y != 0].mean(), **_NEAR)
  assert float(loss(np.zeros_like(y), x)) == 0


@pytest.mark.parametrize('columns', [1, 3])
def test_labels_of_0_and_1_are_judged_by_logits(columns):
  x = _RNG.normal(size=(40, columns)).astype(np.float32)
  y = _RNG.integers(2, size=(40, columns)).astype(np.float32)
  found = _evaluate(
    *(x, y, 'binary_crossentropy', 'accuracy'),
    *('binary_accuracy', 'precision', 'Recall', 'BinaryCrossentropy', 'bce'),
    *('acc', 'f1_score')[: 2 if columns == 1 else 1],
  )
  right = (x > 0) & (y == 1)
  terms = np.mean(np.log1p(np.exp(x)) - x * y)
  if columns == 1:
    assert found.pop('test_f1_score') == pytest.approx(
      2 * right.sum() / ((x > 0).sum() + y.sum()), **_NEAR
    )
  assert found == pytest.approx(
    dict(
      test_loss=terms,
      test_acc=np.mean((x > 0) == (y == 1)),
      test_accuracy=np.mean((x > 0) == (y == 1)),
      test_binary_accuracy=np.mean((x > 0) == (y == 1)),
      test_precision=right.sum() / (x > 0).sum(),
      test_Recall=right.sum() / y.sum(),
      test_BinaryCrossentropy=terms,
      test_bce=terms,
    ),
    **_NEAR,
  )


@pytest.mark.parametrize('loss', ['bce', 'BinaryCrossentropy'])
def test_a_loss_of_logits_has_one_meaning_under_all_its_names(loss):
  x = np.float32([[3], [-2]])
  y = np.float32([[1], [1]])
  found = _evaluate(x, y, loss)['test_loss']
  assert found == pytest.approx(np.log1p(np.exp(-x)).mean(), **_NEAR)
  assert objective.takes_logits(loss)


def test_rows_of_one_class_are_judged_by_logits():
  x = _RNG.normal(size=(40, 5)).astype(np.float32)
  y = np.eye(5, dtype=np.float32)[_RNG.integers(5, size=40)]
  found = _evaluate(x, y, 'CategoricalCrossentropy', 'accuracy')
  log_probs = x - np.log(np.exp(x).sum(axis=-1, keepdims=True))
  assert found == pytest.approx(
    dict(
      test_loss=-(y * log_probs).sum(axis=1).mean(),
      test_accuracy=np.mean(x.argmax(axis=1) == y.argmax(axis=1)),
    ),
    **_NEAR,
  )


@pytest.mark.parametrize('offset', [0, 50, -50])
@pytest.mark.parametrize('share', [0.5, 0.01])
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
    x, zeros, 'binary_crossentropy', 'auc', 'precision', 'recall', 'accuracy'
  )
  assert math.isnan(found['test_auc'])
  assert math.isnan(found['test_precision'])
  assert math.isnan(found['test_recall'])
  assert found['test_accuracy'] == 1
  found = _evaluate(x, zeros + 0.1, 'mean_squared_error', 'r2_score')
  assert math.isnan(found['test_r2_score'])


def test_a_share_has_the_digits_of_float64():
  y = np.arange(10, dtype=np.int32) % 2
  x = np.tile(np.float32([[1, 0]]), [10, 1])
  x[0] = [0, 1]
  # 4 of 10: in float32 it is another number.
  assert _evaluate(x, y)['test_accuracy'] == 0.4
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


@pytest.mark.parametrize('largest', [_Largest, _Largest(), lambda: _Largest()])
@pytest.mark.parametrize(
  'loss', [_cubed, lambda: tf.keras.losses.MeanSquaredError()]
)
def test_functions_and_objects_of_ones_own_are_taken(loss, largest):
  x, y = _RNG.normal(size=(2, 300, 1)).astype(np.float32)
  found = _evaluate(
    *(x, y, 'mine.py:loss', 'mine.py:largest', 'mine.py:cubed'),
    functions={
      'mine.py:loss': loss,
      'mine.py:largest': largest,
      'mine.py:cubed': _cubed,
    },
  )
  errors = np.abs(x - y)
  power = 3 if loss is _cubed else 2
  assert found == pytest.approx(
    dict(
      test_loss=(errors**power).mean(),
      test_largest=errors.max(),
      test_cubed=(errors**3).mean(),
    ),
    **_NEAR,
  )


@pytest.mark.parametrize(
  ('loss', 'metric', 'function', 'error', 'words'),
  [
    ('mine.py:f', None, lambda: 1, TypeError, '`loss` must be a function'),
    ('mse', 'mine.py:f', lambda: 1, TypeError, '`metrics` must be functions'),
    (
      *('mse', 'mine.py:f'),
      lambda: tf.keras.metrics.Precision(thresholds=[0, 1]),
      *(ValueError, 'single numbers'),
    ),
    ('mean_square', None, None, ValueError, '`loss` must be a name .*found'),
    ('mse', 'error', None, ValueError, '`metrics` must be a name'),
    # It needs an argument.
    ('mse', 'MeanRelativeError', None, ValueError, '`metrics` must be a name'),
  ],
)
def test_what_makes_no_loss_or_metric_is_refused(
  loss, metric, function, error, words
):
  x, y = _RNG.integers(2, size=(2, 8, 1)).astype(np.float32)
  functions = {'mine.py:f': function} if function else None
  with pytest.raises(error, match=words):
    _evaluate(x, y, loss, *([metric] if metric else []), functions=functions)


def test_of_a_model_that_has_diverged_the_loss_tells():
  settings = collections.namedtuple('S', 'loss metrics metric_goal')
  asked = objective.create_objective(settings('mse', ('r2_score',), None))
  y = np.zeros([2, 1], np.float32)
  model_fn = tff_model.build_model_fn(
    lambda: tf.keras.Sequential([tf.keras.Input([1]), _Scale()]),
    dict(x=tf.TensorSpec([1]), y=tf.TensorSpec([1])),
    loss=tf.keras.losses.MeanSquaredError(),
  )
  task = own.create_task(
    'test',
    PartitionConfig('iid', num_clients=1),
    **dict(x=y, y=y, x_test=y, y_test=y),
    kinds='numbers',
  )
  evaluate = evaluation.build_evaluation_fn(
    model_fn,
    dict(x=y + 1, y=y),
    losses_and_metrics.create_metrics(asked, task, {}),
  )
  weights = tff.learning.models.ModelWeights([np.float32(math.inf)], [])
  assert not math.isfinite(evaluate(weights)['test_loss'])
