"""The loss and the metrics of a run, as Keras has them.

A name is that of a class or a function of `tf.keras.losses` or
`tf.keras.metrics`, such as `mean_squared_error`, `MeanSquaredError` or `mse`.
Models give logits: what takes probabilities in Keras is given them here.
"""

import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import tensorflow as tf

from tasks import named_functions
from tasks.data.task import Task
from tasks.models.objective import Objective, is_of_bits, squeeze


class TestMetric(NamedTuple):
  """What is measured on the test set beside the loss.

  Attributes:
    name: What it is called.
    create: Returns a new metric of Keras.
    activation: What makes of the model's outputs what the metric takes.
    is_masked: Whether labels of 0 are padding, and do not count.
  """

  name: str
  create: Callable[[], tf.keras.metrics.Metric]
  activation: Callable[[tf.Tensor], tf.Tensor] = tf.identity
  is_masked: bool = False


ACCURACY = TestMetric('accuracy', tf.keras.metrics.SparseCategoricalAccuracy)
"""The share of examples of whose class the logit is the largest."""


def create_loss(
  objective: Objective, task: Task, functions: Mapping[str, Any]
) -> tf.keras.losses.Loss:
  """Returns the loss of a run.

  Args:
    objective: What names it.
    task: The data.
    functions: What the names of a user's functions stand for.

  Raises:
    TypeError: If a user's function is neither a loss nor makes one.
    ValueError: If Keras has no loss of this name.
  """
  if objective.loss in functions:
    return _own_loss(functions[objective.loss], objective.loss)
  loss = _create_by_name('loss', tf.keras.losses, objective.loss)
  if isinstance(loss, tf.keras.losses.SparseCategoricalCrossentropy):
    return cross_entropy(is_masked=_is_masked(task))
  if isinstance(loss, tf.keras.losses.Loss):
    return loss
  return _FunctionLoss(loss)


def cross_entropy(*, is_masked: bool = False) -> tf.keras.losses.Loss:
  """Returns the loss of classes, by logits.

  Args:
    is_masked: Whether 0 in rows of classes is padding, and does not count.
  """
  if is_masked:
    return _MaskedCrossEntropy()
  return tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def create_metrics(
  objective: Objective, task: Task, functions: Mapping[str, Any]
) -> list[TestMetric]:
  """Returns the metrics of a run.

  Args:
    objective: What names them.
    task: The data.
    functions: What the names of a user's functions stand for.

  Raises:
    TypeError: If a user's function is neither a metric nor makes one.
    ValueError: If Keras has no metric of a name.
  """
  return [
    TestMetric(name, _own_metric(functions[source], source))
    if source in functions
    else _named_metric(name, source, objective, task)
    for name, source in objective.metrics
  ]


def _is_masked(task: Task) -> bool:
  return bool(task.has_padding) and task.num_classes is not None


def _named_metric(
  name: str, source: str, objective: Objective, task: Task
) -> TestMetric:
  """Returns a metric of Keras, or one of the few that Keras lacks."""
  is_masked = _is_masked(task)
  is_categorical = 'categorical' in objective.loss.lower()
  # Keras's own compares outputs with labels.
  if squeeze(source) == 'accuracy':
    if task.num_classes is not None:
      return ACCURACY._replace(name=name, is_masked=is_masked)
    source = 'CategoricalAccuracy' if is_categorical else 'BinaryAccuracy'
  create = _OURS.get(squeeze(source)) or (
    lambda: _create_by_name('metrics', tf.keras.metrics, source)
  )
  created = create()
  activation = tf.identity
  of_order = isinstance(created, _Auc)
  if not (task.num_classes or of_order or _takes_logits(created)):
    if is_of_bits(objective.loss) or is_of_bits(source):
      activation = tf.sigmoid
    elif is_categorical:
      activation = tf.nn.softmax
  if not isinstance(created, tf.keras.metrics.Metric):
    return TestMetric(
      name, lambda: _FunctionMetric(created), activation, is_masked
    )
  return TestMetric(name, create, activation, is_masked)


def _create_by_name(argument: str, module: Any, name: str) -> Any:
  """Returns a loss or a metric of Keras by its name, of logits if it can be."""
  classes = {
    each.lower(): each
    for each in dir(module)
    if inspect.isclass(getattr(module, each))
  }
  try:
    found = module.get(classes.get(squeeze(name), name))
    config = getattr(found, 'get_config', dict)()
    if 'from_logits' in config:
      return type(found).from_config(config | {'from_logits': True})
    if is_of_bits(name) and 'threshold' in config:
      # None is the largest output of a row, also where it is the only one.
      return type(found).from_config(config | {'threshold': 0.5})
    if 'from_logits' in inspect.signature(found).parameters:
      raise ValueError('only its class can be told that models give logits')
  except (TypeError, ValueError) as e:
    raise ValueError(
      f'`{argument}` must be a name that `{module.__name__}.get` takes, or '
      f'FILE.py:function, found {name!r}: {e}'
    ) from e
  return found


def _takes_logits(created: Any) -> bool:
  return 'from_logits' in getattr(created, 'get_config', dict)()


def _own_loss(given: Any, name: str) -> tf.keras.losses.Loss:
  """Returns a user's loss: an object, what makes one, or a function."""
  if isinstance(given, tf.keras.losses.Loss):
    return given
  if _takes_nothing(given):
    made = named_functions.call('loss', given, '()')
    if isinstance(made, tf.keras.losses.Loss):
      return made
    raise TypeError(
      '`loss` must be a function of (y_true, y_pred), a loss of Keras or a '
      f'function that returns one, found that {name} returns '
      f'{type(made).__name__}.'
    )
  return _FunctionLoss(given)


def _own_metric(given: Any, name: str) -> Callable[[], tf.keras.metrics.Metric]:
  """Returns what makes a user's metric."""
  if isinstance(given, tf.keras.metrics.Metric):
    # Each graph needs one of its own.
    return lambda: type(given).from_config(given.get_config())
  if not _takes_nothing(given):
    return lambda: _FunctionMetric(given)

  def create() -> tf.keras.metrics.Metric:
    made = named_functions.call('metrics', given, '()')
    if not isinstance(made, tf.keras.metrics.Metric):
      raise TypeError(
        '`metrics` must be functions of (y_true, y_pred), metrics of Keras or '
        f'functions that return one, found that {name} returns '
        f'{type(made).__name__}.'
      )
    return made

  return create


def _takes_nothing(function: Callable) -> bool:
  """Returns whether it makes something, and does not compare labels."""
  try:
    inspect.signature(function).bind()
  except TypeError:
    return False
  return True


class _FunctionLoss(tf.keras.losses.Loss):
  """The mean of what a user's function returns of (y_true, y_pred)."""

  def __init__(self, function: Callable):
    super().__init__()
    self._function = function

  def call(self, y_true, y_pred):
    """Returns what the function does."""
    return self._function(y_true, y_pred)


class _FunctionMetric(tf.keras.metrics.Mean):
  """The mean of what a user's function returns of (y_true, y_pred).

  A single number is taken for the mean over the examples of its batch.
  """

  def __init__(self, function: Callable):
    super().__init__()
    self._function = function

  def update_state(self, y_true, y_pred, sample_weight=None):
    """Counts the values of a batch."""
    values = tf.convert_to_tensor(self._function(y_true, y_pred))
    if values.shape.rank == 0:
      sample_weight = tf.shape(tf.nest.flatten(y_true)[0])[0]
    return super().update_state(values, sample_weight)


class _Perplexity(tf.keras.metrics.Mean):
  """exp of the mean cross-entropy of the tokens that count.

  The mean is over all tokens, however they lie in batches and clients.
  """

  def update_state(self, y_true, y_pred, sample_weight=None):
    """Counts the tokens of a batch."""
    terms = tf.keras.losses.sparse_categorical_crossentropy(
      y_true, y_pred, from_logits=True
    )
    return super().update_state(terms, sample_weight)

  def result(self):
    """Returns the perplexity."""
    return tf.exp(super().result())


class _Auc(tf.keras.metrics.Metric):
  """The share of pairs of a 1 and a 0 in which the 1 has the larger output.

  Equal outputs count half. Keras's `AUC` has thresholds on a sigmoid, between
  which confident logits lie together. NaN without a 1, or without a 0.
  """

  def __init__(self, name: str = 'auc', **kwargs):
    super().__init__(name=name, **kwargs)
    self._found = [
      tf.Variable(tf.zeros([0]), shape=[None], trainable=False)
      for _ in range(2)
    ]

  def update_state(self, y_true, y_pred, sample_weight=None):
    """Keeps the labels and the outputs of a batch."""
    del sample_weight
    for kept, new in zip(self._found, (y_true, y_pred), strict=True):
      flat = tf.reshape(tf.cast(new, tf.float32), [-1])
      kept.assign(tf.concat([kept, flat], axis=0))

  def result(self):
    """Returns the area, by the sum of the ranks of the 1s."""
    labels, outputs = (tf.convert_to_tensor(kept) for kept in self._found)
    of_ones = tf.sort(outputs[labels > 0.5])
    of_zeros = tf.sort(outputs[labels <= 0.5])
    below, up_to = (
      tf.cast(tf.searchsorted(of_zeros, of_ones, side=side), tf.float64)
      for side in ('left', 'right')
    )
    pairs = tf.cast(tf.size(of_ones), tf.float64) * tf.cast(
      tf.size(of_zeros), tf.float64
    )
    return tf.reduce_sum(below + up_to) / (2 * pairs)

  def reset_state(self):
    """Forgets all."""
    for kept in self._found:
      kept.assign(tf.zeros([0]))


class _Precision(tf.keras.metrics.Precision):
  """Keras's, but NaN where nothing was taken for a 1."""

  def result(self):
    """Returns the share of true positives among positives."""
    true, false = self.true_positives, self.false_positives
    return (true / (true + false))[0]


class _Recall(tf.keras.metrics.Recall):
  """Keras's, but NaN where there is no 1."""

  def result(self):
    """Returns the share of the 1s that were found."""
    true, false = self.true_positives, self.false_negatives
    return (true / (true + false))[0]


class _R2Score(tf.keras.metrics.R2Score):
  """Keras's, but NaN where a label is the same in all examples."""

  def result(self):
    """Returns the share of the variance that is explained."""
    variation = self.squared_sum - self.sum**2 / self.count
    # As equal as a sum of squares in float32 can tell.
    is_constant = tf.reduce_any(variation <= 1e-6 * self.squared_sum)
    return tf.where(is_constant, math.nan, super().result())


_OURS: Mapping[str, Callable[[], tf.keras.metrics.Metric]] = {
  'perplexity': _Perplexity,
  'auc': _Auc,
  'precision': _Precision,
  'recall': _Recall,
  'r2score': _R2Score,
}


class _MaskedCrossEntropy(tf.keras.losses.Loss):
  """Mean cross-entropy of the logits over the tokens that are not padding.

  A batch of nothing but padding has a loss of 0. Keras's own masks do not reach
  the loss through `tff.learning.models.from_keras_model`.
  """

  def call(self, y_true, y_pred):
    """Returns terms [batch, length] that have the loss as their mean."""
    terms = tf.keras.losses.sparse_categorical_crossentropy(
      y_true, y_pred, from_logits=True
    )
    weights = tf.cast(tf.not_equal(y_true, 0), terms.dtype)
    num_tokens = tf.maximum(tf.reduce_sum(weights), 1)
    size = tf.cast(tf.size(weights), terms.dtype)
    return terms * weights * (size / num_tokens)
