"""The losses and metrics of a run, as Keras has them."""

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from tasks import named_functions

CreateMetric = Callable[[], tf.keras.metrics.Metric]
# Of what a name means with logits, which models give.
_LOGITS = 0.0


@dataclasses.dataclass(frozen=True)
class TestMetric:
  """What is measured on the test set beside the loss.

  Attributes:
    name: What it is called.
    output: The output that it is of; `None` for the only one, or for all as
      dictionaries by name.
    create: Returns a new metric of Keras.
  """

  name: str
  output: str | None
  create: CreateMetric


ACCURACY = TestMetric(
  'accuracy', None, tf.keras.metrics.SparseCategoricalAccuracy
)
"""The share of examples of whose class the logit is the largest."""


def create_loss(
  losses: Mapping[str | None, str],
  *,
  masked: frozenset[str | None] = frozenset(),
  functions: Mapping[str, Any] | None = None,
) -> tf.keras.losses.Loss:
  """Returns a loss.

  Args:
    losses: By output, the name of a loss of Keras or of a user's function, as
      `Objective` has it. The loss is the sum over the outputs.
    masked: The outputs with rows of classes in which 0 is padding, and does not
      count.
    functions: What the names of a user's functions stand for.

  Raises:
    TypeError: If a user's function is neither a loss nor makes one.
  """
  created = {
    output: _named_or_own_loss(source, output in masked, functions or {})
    for output, source in losses.items()
  }
  if None in created:
    return created[None]
  return _SumOfLosses(created)


def cross_entropy(*, is_masked: bool) -> tf.keras.losses.Loss:
  """Returns the loss of classes, by logits.

  Args:
    is_masked: Whether 0 in rows of classes is padding, and does not count.
  """
  if is_masked:
    return _MaskedCrossEntropy()
  return tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def create_metric(
  source: str,
  *,
  is_masked: bool = False,
  functions: Mapping[str, Any] | None = None,
) -> CreateMetric:
  """Returns a function that makes a metric.

  Args:
    source: The name of a metric, or of a user's function.
    is_masked: Whether 0 in rows of classes is padding, and does not count.
    functions: What the names of a user's functions stand for.

  Raises:
    TypeError: If a user's function is neither a metric nor makes one.
  """
  if source in (functions or {}):
    return _own_metric(functions[source], source)
  if source == 'accuracy':
    return (
      _MaskedAccuracy
      if is_masked
      else tf.keras.metrics.SparseCategoricalAccuracy
    )
  if source == 'perplexity':
    return lambda: _Perplexity(is_masked=is_masked)
  metrics = tf.keras.metrics
  return {
    'sparse_top_k_categorical_accuracy': (
      _MaskedTopKAccuracy
      if is_masked
      else metrics.SparseTopKCategoricalAccuracy
    ),
    'binary_accuracy': lambda: metrics.BinaryAccuracy(threshold=_LOGITS),
    'auc': lambda: metrics.AUC(from_logits=True),
    'precision': lambda: metrics.Precision(thresholds=_LOGITS),
    'recall': lambda: metrics.Recall(thresholds=_LOGITS),
    'mean_squared_error': metrics.MeanSquaredError,
    'root_mean_squared_error': metrics.RootMeanSquaredError,
    'mean_absolute_error': metrics.MeanAbsoluteError,
    'mean_absolute_percentage_error': metrics.MeanAbsolutePercentageError,
    'mean_squared_logarithmic_error': metrics.MeanSquaredLogarithmicError,
    'r2_score': metrics.R2Score,
    'cosine_similarity': metrics.CosineSimilarity,
  }[source]


def _named_or_own_loss(
  source: str, is_masked: bool, functions: Mapping[str, Any]
) -> tf.keras.losses.Loss:
  if source in functions:
    return _own_loss(functions[source], source)
  if source == 'sparse_categorical_crossentropy':
    return cross_entropy(is_masked=is_masked)
  losses = tf.keras.losses
  return {
    'binary_crossentropy': lambda: losses.BinaryCrossentropy(from_logits=True),
    'binary_focal_crossentropy': lambda: losses.BinaryFocalCrossentropy(
      from_logits=True
    ),
    'mean_squared_error': losses.MeanSquaredError,
    'mean_absolute_error': losses.MeanAbsoluteError,
    'mean_absolute_percentage_error': losses.MeanAbsolutePercentageError,
    'mean_squared_logarithmic_error': losses.MeanSquaredLogarithmicError,
    'huber': losses.Huber,
    'log_cosh': losses.LogCosh,
    'poisson': losses.Poisson,
    'cosine_similarity': losses.CosineSimilarity,
  }[source]()


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


def _own_metric(given: Any, name: str) -> CreateMetric:
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


class _SumOfLosses(tf.keras.losses.Loss):
  """The sum of the losses of several outputs, by their names."""

  def __init__(self, losses: Mapping[str | None, tf.keras.losses.Loss]):
    super().__init__(reduction=tf.keras.losses.Reduction.NONE)
    self._losses = dict(losses)

  def call(self, y_true, y_pred):
    """Returns the scalar."""
    return tf.add_n(
      [
        tf.cast(loss(y_true[output], y_pred[output]), tf.float32)
        for output, loss in self._losses.items()
      ]
    )


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

  def __init__(self, *, is_masked: bool):
    super().__init__()
    self._is_masked = is_masked

  def update_state(self, y_true, y_pred, sample_weight=None):
    """Counts the tokens of a batch."""
    terms = tf.keras.losses.sparse_categorical_crossentropy(
      y_true, y_pred, from_logits=True
    )
    if self._is_masked:
      sample_weight = _weights(y_true, sample_weight)
    return super().update_state(terms, sample_weight)

  def result(self):
    """Returns the perplexity."""
    return tf.exp(super().result())


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


class _MaskedAccuracy(tf.keras.metrics.SparseCategoricalAccuracy):
  """Share of right next tokens among those that are not padding (token 0)."""

  def __init__(self, name: str = 'sparse_categorical_accuracy', **kwargs):
    """Builds the metric; the arguments are those of any Keras metric."""
    super().__init__(name=name, **kwargs)

  def update_state(self, y_true, y_pred, sample_weight=None):
    """Counts the labels other than 0, by `sample_weight` where given."""
    return super().update_state(y_true, y_pred, _weights(y_true, sample_weight))


class _MaskedTopKAccuracy(tf.keras.metrics.SparseTopKCategoricalAccuracy):
  """The same, with the right token among the five likeliest."""

  def update_state(self, y_true, y_pred, sample_weight=None):
    """Counts the labels other than 0, by `sample_weight` where given."""
    return super().update_state(y_true, y_pred, _weights(y_true, sample_weight))


def _weights(y_true: tf.Tensor, sample_weight: Any) -> tf.Tensor:
  """Returns 1 for each token that counts, by `sample_weight` where given."""
  weight = tf.cast(tf.not_equal(y_true, 0), tf.float32)
  if sample_weight is not None:
    weight *= tf.cast(sample_weight, tf.float32)
  return weight
