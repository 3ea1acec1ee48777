"""Tests of losses and metrics by their names, against NumPy."""

import collections
import math

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tasks.models import evaluation, losses_and_metrics, objective, tff_model

_RNG = np.random.default_rng(0)
# Float32 sums of some hundred terms.
_NEAR = dict(rel=1e-5)


def _identity(shape):
  """Returns a model of one weight, 1, by which it multiplies."""

  class Scale(tf.keras.layers.Layer):
    def build(self, input_shape):
      del input_shape
      self.weight = self.add_weight('w', [], initializer='ones')

    def call(self, inputs):
      return tf.nest.map_structure(lambda x: self.weight * x, inputs)

  def create_model():
    inputs = (
      {name: tf.keras.Input(each, name=name) for name, each in shape.items()}
      if isinstance(shape, dict)
      else tf.keras.Input(shape)
    )
    return tf.keras.Model(inputs, Scale()(inputs))

  return create_model


def _evaluate(
  x, y, loss, metrics, *, shape=None, functions=None, masked=frozenset()
):
  """Returns what is measured of a model that gives x."""
  spec = tf.nest.map_structure(
    lambda array: tf.TensorSpec(array.shape[1:], array.dtype), dict(x=x, y=y)
  )
  model_fn = tff_model.build_model_fn(
    _identity(shape or x.shape[1:]),
    spec,
    loss=losses_and_metrics.create_loss(
      loss, masked=masked, functions=functions
    ),
  )
  evaluate = evaluation.build_evaluation_fn(
    model_fn,
    collections.OrderedDict(x=x, y=y),
    [
      losses_and_metrics.TestMetric(
        name,
        output,
        losses_and_metrics.create_metric(
          source, is_masked=output in masked, functions=functions
        ),
      )
      for name, source, output in metrics
    ],
  )
  return evaluate(tff.learning.models.ModelWeights([np.float32(1)], []))


def test_every_name_makes_a_loss_or_a_metric():
  for name in objective.LOSSES:
    found = losses_and_metrics.create_loss({None: name})
    assert isinstance(found, tf.keras.losses.Loss)
  for name in objective.METRICS:
    found = losses_and_metrics.create_metric(name)()
    assert isinstance(found, tf.keras.metrics.Metric)


def test_errors_of_a_regression_are_over_all_batches():
  # More than one batch, the last of which is short.
  x, y = _RNG.normal(size=(2, 300, 1)).astype(np.float32)
  found = _evaluate(
    x,
    y,
    {None: 'mean_squared_error'},
    [
      (name, name, None)
      for name in ('mean_absolute_error', 'root_mean_squared_error', 'r2_score')
    ],
  )
  squared = np.square(x - y).mean()
  assert found == pytest.approx(
    dict(
      test_loss=squared,
      test_mean_absolute_error=np.abs(x - y).mean(),
      test_root_mean_squared_error=math.sqrt(squared),
      test_r2_score=1 - squared / y.var(),
    ),
    **_NEAR,
  )


def test_perplexity_is_over_all_tokens_that_count():
  x = _RNG.normal(size=(300, 4, 3)).astype(np.float32)
  y = _RNG.integers(1, 3, size=(300, 4)).astype(np.int32)
  # Rows of all lengths: a mean over batches would weigh tokens unlike.
  y[np.arange(4) >= _RNG.integers(1, 5, 300)[:, None]] = 0
  y[256:, 1:] = 0
  log_probs = x - np.log(np.exp(x).sum(axis=-1, keepdims=True))
  terms = -np.take_along_axis(log_probs, y[..., None], axis=-1)[..., 0]
  loss, metrics = (
    {None: 'sparse_categorical_crossentropy'},
    [('perplexity', 'perplexity', None)],
  )
  found = _evaluate(x, y, loss, metrics, masked=frozenset([None]))
  assert found['test_perplexity'] == pytest.approx(
    np.exp(terms[y != 0].mean()), **_NEAR
  )
  # Where 0 is a token, it counts.
  found = _evaluate(x, y, loss, metrics)
  assert found['test_perplexity'] == pytest.approx(
    np.exp(terms.mean()), **_NEAR
  )
  assert found['test_loss'] == pytest.approx(terms.mean(), **_NEAR)


def test_several_labels_at_once_are_judged_by_logits():
  x = _RNG.normal(size=(40, 3)).astype(np.float32)
  y = _RNG.integers(2, size=(40, 3)).astype(np.float32)
  found = _evaluate(
    x,
    y,
    {None: 'binary_crossentropy'},
    [(name, name, None) for name in ('binary_accuracy', 'precision', 'recall')],
  )
  right = (x > 0) & (y == 1)
  assert found == pytest.approx(
    dict(
      test_loss=np.mean(np.log1p(np.exp(x)) - x * y),
      test_binary_accuracy=np.mean((x > 0) == (y == 1)),
      test_precision=right.sum() / (x > 0).sum(),
      test_recall=right.sum() / y.sum(),
    ),
    **_NEAR,
  )


def test_the_losses_of_several_outputs_add_up():
  x = dict(
    kind=_RNG.normal(size=(10, 3)).astype(np.float32),
    size=_RNG.normal(size=(10, 1)).astype(np.float32),
  )
  y = dict(
    kind=_RNG.integers(3, size=10).astype(np.int32),
    size=_RNG.normal(size=(10, 1)).astype(np.float32),
  )
  found = _evaluate(
    x,
    y,
    dict(kind='sparse_categorical_crossentropy', size='mean_squared_error'),
    [
      ('kind_accuracy', 'accuracy', 'kind'),
      ('size_mean_absolute_error', 'mean_absolute_error', 'size'),
    ],
    shape={'kind': [3], 'size': [1]},
  )
  log_probs = x['kind'] - np.log(np.exp(x['kind']).sum(axis=1, keepdims=True))
  assert found == pytest.approx(
    dict(
      test_loss=-log_probs[np.arange(10), y['kind']].mean()
      + np.square(x['size'] - y['size']).mean(),
      test_kind_accuracy=np.mean(x['kind'].argmax(axis=1) == y['kind']),
      test_size_mean_absolute_error=np.abs(x['size'] - y['size']).mean(),
    ),
    **_NEAR,
  )


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
    x,
    y,
    {None: 'mine.py:loss'},
    [('largest', 'mine.py:largest', None), ('cubed', 'mine.py:cubed', None)],
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


def test_a_share_has_the_digits_of_float64():
  y = np.arange(10, dtype=np.int32) % 2
  x = np.tile(np.float32([[1, 0]]), [10, 1])
  x[0] = [0, 1]
  metric = losses_and_metrics.ACCURACY
  found = _evaluate(
    x,
    y,
    {None: 'sparse_categorical_crossentropy'},
    [(metric.name, 'accuracy', None)],
  )
  # 4 of 10: in float32 it is another number.
  assert found['test_accuracy'] == 0.4


def test_what_makes_no_loss_or_metric_is_refused():
  functions = {'mine.py:f': lambda: 1}
  with pytest.raises(TypeError, match='`loss` must be a function'):
    losses_and_metrics.create_loss({None: 'mine.py:f'}, functions=functions)
  with pytest.raises(TypeError, match='`metrics` must be functions'):
    losses_and_metrics.create_metric('mine.py:f', functions=functions)()


@pytest.mark.parametrize(
  ('metric', 'words'),
  [
    (lambda y_true, y_pred: y_true * math.nan, 'found NaN for bad'),
    (lambda: tf.keras.metrics.Precision(thresholds=[0, 1]), 'single numbers'),
  ],
)
def test_a_metric_that_cannot_be_computed_is_an_error(metric, words):
  x, y = _RNG.integers(2, size=(2, 8, 1)).astype(np.float32)
  with pytest.raises(ValueError, match=words):
    _evaluate(
      x,
      y,
      {None: 'mean_squared_error'},
      [('bad', 'mine.py:bad', None)],
      functions={'mine.py:bad': metric},
    )


def test_of_a_model_that_has_diverged_the_loss_tells():
  x = np.full([2, 1], math.inf, np.float32)
  found = _evaluate(
    x,
    np.zeros([2, 1], np.float32),
    {None: 'mean_squared_error'},
    [('r2_score', 'r2_score', None)],
  )
  assert not math.isfinite(found['test_loss'])
