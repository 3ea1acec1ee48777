"""What a run minimises, what it measures on the test set, and what decides.

By default an example has a class, or a row of classes: the loss is the
cross-entropy, and the accuracy decides. A name is that of a class or a function
of `tf.keras.losses` or `tf.keras.metrics`, such as `mean_squared_error`,
`MeanSquaredError` or `mse`; or `perplexity`; or that of a user's function, in
place of which the function may stand. Models give logits, also where Keras's
defaults take probabilities.
"""

import dataclasses
import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tasks import named_functions
from tasks.checks import check
from tasks.data.own import AS_GIVEN, CLASSES, NUMBERS
from tasks.data.task import Task

MAX, MIN = 'max', 'min'

_CROSS_ENTROPY = 'sparse_categorical_crossentropy'
# The metric of runs that ask for no loss and for no metric.
_ACCURACY = 'accuracy'
# What decides where a loss is asked for, and no metric.
_LOSS = 'loss'
# How the names of metrics end, by what is better.
_GOALS: Mapping[str, tuple[str, ...]] = {
  MAX: (_ACCURACY, 'auc', 'precision', 'recall', 'score', 'similarity', 'iou'),
  MIN: (
    *('error', 'crossentropy', 'perplexity', 'hinge', 'divergence', 'mse'),
    *('mae', 'mape', 'msle', 'poisson', 'logcosh', 'huber'),
  ),
}
# Numbers of which each is 0 or 1, and how the names of metrics for them end.
_BITS = 'labels of 0 and 1'
_OF_BITS = ('auc', 'precision', 'recall', 'f1score')


class TestMetric(NamedTuple):
  """What is measured on the test set beside the loss.

  Attributes:
    name: What it is called: its column is `test_` and this.
    counted: The metric of Keras, of the labels and the model's outputs; or a
      function of all of them, float64 [n, ...].
    is_masked: Whether labels of 0 are padding, and do not count.
  """

  name: str
  counted: tf.keras.metrics.Metric | Callable[[np.ndarray, np.ndarray], float]
  is_masked: bool = False


@dataclasses.dataclass(frozen=True)
class Objective:
  """What a run minimises and measures.

  Attributes:
    loss: The name of a loss of Keras, or a user's function or its name.
    metrics: What is measured on the test set beside the loss: for each name in
      columns, what it is of, as `loss`.
    goal: `MAX` if more of the metric that decides is better, `MIN` if less is.
  """

  loss: str | Callable
  metrics: Mapping[str, str | Callable]
  goal: str

  @property
  def metric(self) -> str:
    """The name of the metric that decides; 'loss' is the loss."""
    return next(iter(self.metrics), _LOSS)

  @property
  def column(self) -> str:
    """The column of metrics.csv that decides."""
    return f'test_{self.metric}'

  @property
  def kinds(self) -> str:
    """What labels are in the data, as `own.create_task` takes it."""
    kind = _kind_of(self.loss)
    return {None: AS_GIVEN, CLASSES: CLASSES}.get(kind, NUMBERS)

  @property
  def takes_logits(self) -> bool:
    """Whether the loss is Keras's, and takes logits."""
    return _kind_of(self.loss) in (CLASSES, _BITS)

  def describe(self, value: float) -> str:
    """Returns a value of the metric that decides, for people."""
    source = self.metrics.get(self.metric, _LOSS)
    is_share = _squeeze(source).endswith(_ACCURACY)
    return f'{value:.1%}' if is_share else f'{value:.4g}'

  def check_task(self, task: Task) -> None:
    """Raises a ValueError unless loss and metrics are for labels of this task.

    A metric must be of what the loss takes: of logits, or of numbers.
    """
    found = _labels_of(task)
    fitting = {
      CLASSES: (CLASSES,),
      NUMBERS: (NUMBERS,),
      _BITS: (_BITS, NUMBERS),
    }[found]
    loss, name = _kind_of(self.loss), named_functions.name_of(self.loss)
    must = f'must be for {found}, which `y` of the data has'
    check('loss', loss in (None, *fitting), must, name)
    fitting = fitting if loss is None else (loss,)
    must = (
      f'must be for {" or ".join(fitting)}, as `loss` {name} and `y` of the '
      'data are, or a function of your own'
    )
    for source in self.metrics.values():
      kind = _kind_of(source)
      if _squeeze(source) == _ACCURACY:
        kind = CLASSES if found == CLASSES else _BITS
      check('metrics', kind in (None, *fitting), must, source)

  def create_loss(self, task: Task) -> tf.keras.losses.Loss:
    """Returns the loss of a run.

    Raises:
      TypeError: If a user's function is neither a loss nor makes one.
      ValueError: If it fails.
    """
    if named_functions.is_own(self.loss):
      own = _find_own('loss', self.loss, tf.keras.losses.Loss)
      return _FunctionLoss(own)
    found = _find_by_name('loss', self.loss, tf.keras.losses)
    if isinstance(found, tf.keras.losses.SparseCategoricalCrossentropy):
      return cross_entropy(is_masked=bool(task.has_padding))
    is_loss = isinstance(found, tf.keras.losses.Loss)
    return found if is_loss else _FunctionLoss(found)

  def create_metrics(self, task: Task) -> list[TestMetric]:
    """Returns the metrics of a run.

    Raises:
      TypeError: If a user's function is neither a metric nor makes one.
      ValueError: If it fails.
    """
    created = []
    for name, source in self.metrics.items():
      is_masked = bool(task.has_padding) and not named_functions.is_own(source)
      if _squeeze(source) == _ACCURACY:
        source = self._accuracy_of(task)
      created.append(TestMetric(name, _find_metric(source), is_masked))
    return created

  def _accuracy_of(self, task: Task) -> str:
    """Returns Keras's name for the accuracy; its own compares numbers."""
    if task.num_classes is not None:
      return 'SparseCategoricalAccuracy'
    is_categorical = 'categorical' in _squeeze(self.loss)
    return 'CategoricalAccuracy' if is_categorical else 'BinaryAccuracy'


def create_objective(settings: Any) -> Objective:
  """Returns the objective that `loss`, `metrics`, `metric_goal` ask for.

  Raises:
    ValueError: If Keras has no loss or metric of a name, a metric is there
      twice, or nothing says whether more of the first metric is better.
  """
  given = settings.metrics or ((_ACCURACY,) if settings.loss is None else ())
  metrics = {}
  for source in given:
    # Of a function inside of another, what comes last.
    name = named_functions.name_of(source).rpartition(':')[2].rpartition('.')[2]
    holds = name.isidentifier() and name not in (_LOSS, *metrics)
    must = (
      'must have different names, each a word for its column and none of them '
      'loss, which is always measured'
    )
    check('metrics', holds, must, repr(name))
    if not named_functions.is_own(source):
      _find_metric(source)
    metrics[name] = source
  loss = settings.loss or _CROSS_ENTROPY
  if not named_functions.is_own(loss):
    _find_by_name('loss', loss, tf.keras.losses)
  first = given[0] if given else _LOSS
  known = _find_goal(first)
  goal = settings.metric_goal or known
  holds = goal is not None and known in (None, goal)
  must = f'must be {known or "max or min"} for {named_functions.name_of(first)}'
  check('metric_goal', holds, must, goal or 'none')
  return Objective(loss, metrics, goal)


def cross_entropy(*, is_masked: bool = False) -> tf.keras.losses.Loss:
  """Returns the loss of classes, by logits; masked, 0 in rows is padding."""
  if is_masked:
    return _MaskedCrossEntropy()
  return tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def _find_goal(source: str | Callable) -> str | None:
  """Returns what is better of a metric, if its name says it."""
  if source == _LOSS:
    return MIN
  if named_functions.is_own(source):
    return None
  for goal, endings in _GOALS.items():
    if _squeeze(source).endswith(endings):
      return goal
  return None


def _kind_of(source: str | Callable) -> str | None:
  """Returns for which labels a loss or metric of Keras is; `None` if any."""
  short = _squeeze(source)
  if named_functions.is_own(source) or short == _ACCURACY:
    return None
  if short.startswith('sparse') or short == 'perplexity':
    return CLASSES
  if 'categorical' in short or short.startswith('binary'):
    return _BITS
  return _BITS if short.endswith(_OF_BITS) else NUMBERS


def _labels_of(task: Task) -> str:
  """Returns what the labels of the data are."""
  if task.num_classes is not None:
    return CLASSES
  y = np.concatenate([task.train['y'], task.test['y']])
  return _BITS if np.isin(y, (0, 1)).all() else NUMBERS


def _squeeze(source: str | Callable) -> str:
  """Returns a name in the form that a class and a function of Keras share."""
  short = named_functions.name_of(source).replace('_', '').lower()
  return {'bce': 'binarycrossentropy', 'acc': _ACCURACY}.get(short, short)


def _find_by_name(argument: str, name: str, module: Any) -> Any:
  """Returns a loss or a metric of Keras by its name, of logits if it can be."""
  classes = {
    each.lower(): each
    for each in dir(module)
    if inspect.isclass(getattr(module, each))
  }
  try:
    found = module.get(classes.get(_squeeze(name), name))
    config = getattr(found, 'get_config', dict)()
    if 'from_logits' in config:
      return type(found).from_config(config | {'from_logits': True})
    if 'threshold' in config and _kind_of(name) == _BITS:
      # A probability of 1/2.
      return type(found).from_config(config | {'threshold': 0.0})
    if 'from_logits' in inspect.signature(found).parameters:
      raise ValueError('only its class can be told that models give logits')
  except (TypeError, ValueError) as e:
    # Behind its first sentence, Keras advises what no flag can do.
    raise ValueError(
      f'`{argument}` must be a name that `{module.__name__}.get` takes, or '
      f'FILE.py:function, found {name!r}: {str(e).partition(". ")[0]}'
    ) from e
  return found


def _find_metric(source: str | Callable) -> Any:
  """Returns what a `TestMetric` counts."""
  short = _squeeze(source)
  if short in _OF_ALL:
    return _OF_ALL[short]
  if named_functions.is_own(source):
    found = _find_own('metrics', source, tf.keras.metrics.Metric)
  elif short == 'perplexity':
    found = _Perplexity()
  else:
    found = _find_by_name('metrics', source, tf.keras.metrics)
  is_metric = isinstance(found, tf.keras.metrics.Metric)
  return found if is_metric else _FunctionMetric(found)


def _find_own(argument: str, source: str | Callable, kind: type) -> Any:
  """Returns a user's object of Keras, or function of (y_true, y_pred)."""
  given = named_functions.find(argument, source)
  if isinstance(given, kind):
    return given
  try:
    inspect.signature(given).bind()
  except TypeError:
    return given
  return named_functions.make(argument, kind, given)


class _FunctionLoss(tf.keras.losses.Loss):
  """The mean of what a function returns of (y_true, y_pred)."""

  def __init__(self, function: Callable):
    super().__init__()
    self._function = function

  def call(self, y_true, y_pred):
    """Returns what the function does; raises where it has no gradient."""
    with tf.GradientTape() as tape:
      tape.watch(y_pred)
      terms = named_functions.make(
        *('loss', tf.Tensor, self._function, y_true, y_pred)
      )
    has_gradient = tape.gradient(terms, y_pred) is not None
    name = named_functions.name_of(self._function)
    must = 'must have a gradient by `y_pred`, or clients learn nothing'
    check('loss', has_gradient, must, f'none of {name}')
    return terms


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


class _FunctionMetric(tf.keras.metrics.Mean):
  """The mean of what a function returns of (y_true, y_pred).

  A single number is taken for the mean over the examples of its batch.
  """

  def __init__(self, function: Callable):
    super().__init__()
    self._function = function

  def update_state(self, y_true, y_pred, sample_weight=None):
    """Counts the values of a batch."""
    values = named_functions.call('metrics', self._function, y_true, y_pred)
    values = tf.convert_to_tensor(values)
    if values.shape.rank == 0:
      sample_weight = tf.shape(y_true)[0]
    return super().update_state(values, sample_weight)


class _Perplexity(tf.keras.metrics.Mean):
  """exp of the mean cross-entropy of all tokens that count."""

  def update_state(self, y_true, y_pred, sample_weight=None):
    """Counts the tokens of a batch."""
    terms = tf.keras.losses.sparse_categorical_crossentropy(
      y_true, y_pred, from_logits=True
    )
    return super().update_state(terms, sample_weight)

  def result(self):
    """Returns the perplexity."""
    return tf.exp(super().result())


def _auc(labels: np.ndarray, logits: np.ndarray) -> float:
  """The share of pairs of a 1 and a 0 in which the 1 has the larger logit.

  Equal logits count half.
  """
  ones, zeros = logits[labels > 0.5], np.sort(logits[labels <= 0.5])
  below, up_to = (
    np.searchsorted(zeros, ones, side).sum() for side in ('left', 'right')
  )
  return (below + up_to) / (2 * np.float64(ones.size) * zeros.size)


def _r2_score(labels: np.ndarray, outputs: np.ndarray) -> float:
  """The share of the variance of each label that is explained, on average."""
  errors = np.sum((labels - outputs) ** 2, axis=0)
  variation = np.sum((labels - labels.mean(axis=0)) ** 2, axis=0)
  return np.mean(np.where(variation > 0, 1 - errors / variation, math.nan))


# Functions of all labels and outputs, float64 [n, ...], NaN without a value.
# Keras's own count by thresholds of probabilities, between which confident
# logits lie together, and take 0 where 0 is divided by 0.
_OF_ALL: Mapping[str, Callable[[np.ndarray, np.ndarray], float]] = {
  'auc': _auc,
  'precision': lambda y, z: np.sum(y * (z > 0)) / np.sum(z > 0),
  'recall': lambda y, z: np.sum(y * (z > 0)) / np.sum(y),
  'f1score': lambda y, z: 2 * np.sum(y * (z > 0)) / np.sum(y + (z > 0)),
  'r2score': _r2_score,
}
