"""What a run minimises, what it measures on the test set, and what decides.

By default an example has a class, or a row of classes: the loss is the
cross-entropy of logits, and the accuracy decides. Here are the names;
`tasks.models.losses_and_metrics` makes what Keras calls so.
"""

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tasks import named_functions
from tasks.data.own import AS_GIVEN, CLASSES, NUMBERS

if TYPE_CHECKING:
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


class Metric(NamedTuple):
  """A metric of a run.

  Attributes:
    name: What it is called: its column is `test_` and this.
    source: The name of a metric of Keras, or of a user's function.
  """

  name: str
  source: str


@dataclasses.dataclass(frozen=True)
class Objective:
  """What a run minimises and measures.

  Attributes:
    loss: The name of a loss of Keras, or of a user's function.
    metrics: What is measured on the test set beside the loss.
    goal: `MAX` if more of the metric that decides is better, `MIN` if less is.
  """

  loss: str
  metrics: tuple[Metric, ...]
  goal: str

  @property
  def metric(self) -> str:
    """The name of the metric that decides; 'loss' is the loss."""
    return self.metrics[0].name if self.metrics else _LOSS

  @property
  def column(self) -> str:
    """The column of metrics.csv that decides."""
    return f'test_{self.metric}'

  def describe(self, value: float) -> str:
    """Returns a value of the metric that decides, for people."""
    source = self.metrics[0].source if self.metrics else _LOSS
    is_share = squeeze(source).endswith(_ACCURACY)
    return f'{value:.1%}' if is_share else f'{value:.4g}'

  @property
  def user_functions(self) -> tuple[tuple[str, str], ...]:
    """The names of a user's functions, each after the setting that has it."""
    named = [
      ('loss', self.loss),
      *(('metrics', metric.source) for metric in self.metrics),
    ]
    return tuple(
      (setting, name)
      for setting, name in named
      if named_functions.is_function_name(name)
    )

  @property
  def kinds(self) -> str:
    """What labels are in the data, as `own.create_task` takes it."""
    if named_functions.is_function_name(self.loss):
      return AS_GIVEN
    return CLASSES if squeeze(self.loss).startswith('sparse') else NUMBERS

  def check_task(self, task: 'Task') -> None:
    """Raises unless the loss and the metrics are for the labels of the data.

    Args:
      task: The data.

    Raises:
      ValueError: If they are for other labels.
    """
    labels = _labels_of(task)
    named = [
      ('loss', self.loss),
      *(('metrics', m.source) for m in self.metrics),
    ]
    for setting, name in named:
      if named_functions.is_function_name(name):
        continue
      if not _fits(name, labels):
        raise ValueError(
          f'`{setting}` must be for {labels}, which `y` of the data has, found '
          f'{name}.'
        )
      if takes_logits(name) and not takes_logits(self.loss):
        raise ValueError(
          f'`{setting}` must be for the numbers that `loss` {self.loss} takes, '
          f'found {name}, which is of logits.'
        )


def takes_logits(name: str) -> bool:
  """Returns whether a loss takes logits, or a metric is of logits.

  A user's own loss may take logits.
  """
  short = squeeze(name)
  return (
    named_functions.is_function_name(name)
    or short in (_ACCURACY, 'perplexity')
    or 'categorical' in short
    or is_of_bits(name)
  )


def is_of_bits(name: str) -> bool:
  """Returns whether a loss or metric of Keras is for labels of 0 and 1."""
  short = squeeze(name)
  return short.startswith('binary') or short.endswith(_OF_BITS)


def _labels_of(task: 'Task') -> str:
  """Returns what the labels of the data are."""
  if task.num_classes is not None:
    return CLASSES
  y = np.concatenate([task.train['y'], task.test['y']])
  return _BITS if np.isin(y, (0, 1)).all() else NUMBERS


def _fits(name: str, labels: str) -> bool:
  """Returns whether a loss or metric of Keras is for these labels."""
  short = squeeze(name)
  if short == _ACCURACY:
    return labels != NUMBERS
  if short.startswith('sparse') or short == 'perplexity':
    return labels == CLASSES
  if short.startswith('categorical') or is_of_bits(name):
    return labels == _BITS
  return labels != CLASSES


def create_objective(settings: Any) -> Objective:
  """Returns the objective that settings ask for.

  Args:
    settings: They have `loss`, the name of a loss or `None`; `metrics`, names;
      and `metric_goal`, 'max', 'min' or `None`.

  Raises:
    ValueError: If a metric is there twice, or nothing says whether more of the
      first metric is better.
  """
  given = settings.metrics or ((_ACCURACY,) if settings.loss is None else ())
  metrics = []
  for source in given:
    # Of a function inside of another, what comes last.
    name = source.rpartition(':')[2].rpartition('.')[2]
    if not name.isidentifier() or name in [_LOSS, *(m.name for m in metrics)]:
      raise ValueError(
        '`metrics` must have different names, each a word for its column and '
        f'none of them loss, which is always measured, found {name!r}.'
      )
    metrics.append(Metric(name, source))
  goal = settings.metric_goal
  known = _find_goal(metrics[0].source) if metrics else MIN
  if None not in (goal, known) and goal != known:
    raise ValueError(
      f'`metric_goal` must be left out for {given[0] if given else _LOSS}, of '
      f'which it is {known}, found {goal}.'
    )
  if goal is None and known is None:
    raise ValueError(
      f'`metric_goal` must be given, max or min, for {given[0]}.'
    )
  return Objective(
    settings.loss or _CROSS_ENTROPY, tuple(metrics), str(goal or known)
  )


def _find_goal(source: str) -> str | None:
  """Returns what is better of a metric, if its name says it."""
  if named_functions.is_function_name(source):
    return None
  for goal, endings in _GOALS.items():
    if squeeze(source).endswith(endings):
      return goal
  return None


def squeeze(name: str) -> str:
  """Returns a name of Keras in the form that its class and function share."""
  short = name.replace('_', '').lower()
  return {'bce': 'binarycrossentropy', 'acc': _ACCURACY}.get(short, short)
