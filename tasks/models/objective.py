"""What a run minimises, what it measures on the test set, and what decides.

By default an example has a class, or a row of classes: the loss is the
cross-entropy of logits, and the accuracy decides. Here are the names;
`tasks.models.losses_and_metrics` makes what Keras calls so.
"""

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

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
# How the names of metrics end or begin that are for labels of 0 and 1.
_OF_ZEROS_AND_ONES = ('auc', 'precision', 'recall')


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
    is_share = self.metrics and squeeze(self.metrics[0].source).endswith(
      _ACCURACY
    )
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

  @property
  def is_of_zeros_and_ones(self) -> bool:
    """Whether the loss is for labels of 0 and 1, and takes their logits."""
    return squeeze(self.loss).startswith('binary')

  def check_task(self, task: 'Task') -> None:
    """Raises unless the loss and the metrics are for the labels of the data.

    Args:
      task: The data.

    Raises:
      ValueError: If they are for other labels.
    """
    has_classes = task.num_classes is not None
    found = 'classes' if has_classes else 'numbers'
    if self.kinds != AS_GIVEN and has_classes != (self.kinds == CLASSES):
      raise ValueError(
        f'`loss` must be one for {found}, which `y` of the data has, found '
        f'{self.loss}.'
      )
    is_binary = self.is_of_zeros_and_ones
    for metric in self.metrics:
      if named_functions.is_function_name(metric.source):
        continue
      of_bits = is_of_zeros_and_ones(metric.source)
      fits = has_classes == is_of_classes(metric.source)
      if metric.source == _ACCURACY and not has_classes:
        fits = of_bits = not is_of_numbers_alone(self.loss)
      elif of_bits and self.kinds == NUMBERS:
        fits = is_binary
      if not fits:
        raise ValueError(
          f'`metrics` must be for {found}, which `y` of the data has, and for '
          f'`loss` {self.loss}, found {metric.source}.'
        )
      is_binary |= of_bits
    if is_binary:
      for y in (task.train['y'], task.test['y']):
        wrong = (y != 0) & (y != 1)
        if wrong.any():
          raise ValueError(
            f'`y` must be 0 or 1 for `loss` {self.loss} and `metrics` '
            f'{", ".join(m.name for m in self.metrics)}, found '
            f'{y[wrong][0]:g}.'
          )


def is_of_classes(source: str) -> bool:
  """Returns whether a metric of Keras is for classes."""
  name = squeeze(source)
  return name in (_ACCURACY, 'perplexity') or name.startswith('sparse')


def is_of_zeros_and_ones(source: str) -> bool:
  """Returns whether a metric of Keras is for labels of 0 and 1."""
  name = squeeze(source)
  return name.startswith('binary') or name.endswith(_OF_ZEROS_AND_ONES)


def is_of_numbers_alone(loss: str) -> bool:
  """Returns whether a loss of Keras is neither for classes nor for 0 and 1."""
  name = squeeze(loss)
  return not named_functions.is_function_name(loss) and not name.startswith(
    ('sparse', 'binary', 'categorical')
  )


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
  return name.replace('_', '').lower()
