"""What a run minimises, what it measures on the test set, and what decides.

By default an example has a class, or a row of them: the loss is the
cross-entropy of logits, and the accuracy decides. TensorFlow, which makes the
losses and metrics that are named here, is not imported:
`tasks.models.losses_and_metrics` does that.
"""

import dataclasses
import difflib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from tasks import named_functions
from tasks.data import features
from tasks.data.datasets.labels import AS_GIVEN, CLASSES, NUMBERS
from tasks.settings.setting_fields import one_of, setting

if TYPE_CHECKING:
  from tasks.data.task import Task

# Numbers of which each is 0 or 1.
ZEROS_AND_ONES = 'zeros_and_ones'

# What labels are called in a message.
_LABELS = {
  CLASSES: 'classes',
  ZEROS_AND_ONES: 'labels of 0 and 1',
  NUMBERS: 'numbers',
}

MAX, MIN = 'max', 'min'

_CROSS_ENTROPY = 'sparse_categorical_crossentropy'
_BINARY_CROSS_ENTROPY = 'binary_crossentropy'

LOSSES: Mapping[str, str] = {
  _CROSS_ENTROPY: CLASSES,
  _BINARY_CROSS_ENTROPY: ZEROS_AND_ONES,
  'binary_focal_crossentropy': ZEROS_AND_ONES,
  **dict.fromkeys(
    (
      'mean_squared_error',
      'mean_absolute_error',
      'mean_absolute_percentage_error',
      'mean_squared_logarithmic_error',
      'huber',
      'log_cosh',
      'poisson',
      'cosine_similarity',
    ),
    NUMBERS,
  ),
}
"""The losses with a name, Keras's, and the labels that they are for.

Cross-entropies are of logits.
"""


class NamedMetric(NamedTuple):
  """A metric with a name.

  Attributes:
    labels: What the labels are that it is for.
    goal: `MAX` if more is better, `MIN` if less is.
  """

  labels: str
  goal: str


METRICS: Mapping[str, NamedMetric] = {
  'accuracy': NamedMetric(CLASSES, MAX),
  'sparse_top_k_categorical_accuracy': NamedMetric(CLASSES, MAX),
  'perplexity': NamedMetric(CLASSES, MIN),
  'binary_accuracy': NamedMetric(ZEROS_AND_ONES, MAX),
  'auc': NamedMetric(ZEROS_AND_ONES, MAX),
  'precision': NamedMetric(ZEROS_AND_ONES, MAX),
  'recall': NamedMetric(ZEROS_AND_ONES, MAX),
  'mean_squared_error': NamedMetric(NUMBERS, MIN),
  'root_mean_squared_error': NamedMetric(NUMBERS, MIN),
  'mean_absolute_error': NamedMetric(NUMBERS, MIN),
  'mean_absolute_percentage_error': NamedMetric(NUMBERS, MIN),
  'mean_squared_logarithmic_error': NamedMetric(NUMBERS, MIN),
  'r2_score': NamedMetric(NUMBERS, MAX),
  'cosine_similarity': NamedMetric(NUMBERS, MAX),
}
"""The metrics with a name: Keras's, and perplexity.

Those of classes and of zeros and ones are of logits.
"""

# What is meant by what Keras takes as well.
_SHORT = {
  'mse': 'mean_squared_error',
  'mae': 'mean_absolute_error',
  'mape': 'mean_absolute_percentage_error',
  'msle': 'mean_squared_logarithmic_error',
  'rmse': 'root_mean_squared_error',
  'acc': 'accuracy',
}
# The metric of runs that ask for no loss and for none.
_ACCURACY = 'accuracy'
# What decides where a loss is asked for, and no metric.
_LOSS = 'loss'


@dataclasses.dataclass(frozen=True, kw_only=True)
class ObjectiveSettings:
  """The settings of an objective."""

  loss: str | None = setting(
    f'What clients minimise: {", ".join(LOSSES)}; or your own: module:function '
    'or FILE.py:function, a loss of Keras or a function of (y_true, y_pred). '
    'Of several outputs, OUTPUT=LOSS with + between them. By default the '
    'cross-entropy of classes; see docs/training.md.',
    None,
  )
  metrics: tuple[str, ...] = setting(
    'What is measured on the test set, with commas, the one that decides '
    f'first: {", ".join(METRICS)}; or your own, as --loss. Of several outputs, '
    'OUTPUT=METRIC. By default accuracy, and with --loss the loss alone.',
    (),
  )
  metric_goal: str | None = setting(
    'max or min: what is better, of a first metric of your own.',
    None,
    check=one_of(MAX, MIN),
  )


class Metric(NamedTuple):
  """A metric of a run.

  Attributes:
    name: What it is called: its column is `test_` and this.
    source: One of `METRICS`, or the name of a user's function.
    output: Whose metric it is; `None` of the only one, or of all together.
  """

  name: str
  source: str
  output: str | None


@dataclasses.dataclass(frozen=True)
class Objective:
  """What a run minimises and measures.

  Attributes:
    losses: By output, one of `LOSSES` or the name of a user's function. The key
      `None` is the only output, or with a user's function all together.
    metrics: What is measured on the test set beside the loss.
    metric: The name of the metric that decides; 'loss' is the loss.
    goal: `MAX` if more of it is better, `MIN` if less is.
  """

  losses: Mapping[str | None, str]
  metrics: tuple[Metric, ...]
  metric: str
  goal: str

  @property
  def column(self) -> str:
    """The column of metrics.csv that decides."""
    return f'test_{self.metric}'

  def describe(self, value: float) -> str:
    """Returns a value of the metric that decides, for people."""
    source = self.metrics[0].source if self.metrics else _LOSS
    is_share = source in METRICS and source.endswith(_ACCURACY)
    return f'{value:.1%}' if is_share else f'{value:.4g}'

  @property
  def user_functions(self) -> tuple[tuple[str, str], ...]:
    """The names of a user's functions, each after the setting that has it."""
    named = [
      *(('loss', source) for source in self.losses.values()),
      *(('metrics', metric.source) for metric in self.metrics),
    ]
    return tuple(
      (setting, name)
      for setting, name in named
      if named_functions.is_function_name(name)
    )

  @property
  def kinds(self) -> str | Mapping[str | None, str]:
    """What labels are in the data, as `own_data.create_task` takes it."""
    found = {
      output: NUMBERS if labels == ZEROS_AND_ONES else labels
      for output, labels in (
        (output, self.labels_of(output)) for output in self.losses
      )
    }
    return found[None] if None in found else found

  def labels_of(self, output: str | None) -> str:
    """Returns what the labels of an output are, by its loss.

    Args:
      output: Its name; `None` for the only one.
    """
    source = self.losses.get(output, self.losses.get(None, ''))
    return LOSSES.get(source, AS_GIVEN)

  def check_task(self, task: 'Task') -> None:
    """Raises unless the outputs are those of the data, and of their kinds.

    Args:
      task: The data.

    Raises:
      ValueError: If it is for other outputs, or for other labels.
    """
    outputs = task.outputs
    found = ', '.join(f'y_{name}' for name in outputs if name) or 'y alone'
    together = None in self.losses and self.labels_of(None) == AS_GIVEN
    if not together and set(self.losses) != set(outputs):
      raise ValueError(
        '`loss` must be of each output of the data, OUTPUT=LOSS with + between '
        'them, or a function of your own of all together, found '
        f'{_text(self.losses)} for {found}.'
      )
    for metric in self.metrics:
      if metric.output not in outputs and not (
        metric.output is None
        and named_functions.is_function_name(metric.source)
      ):
        raise ValueError(
          f'`metrics` must be of the outputs of the data, OUTPUT=METRIC, found '
          f'{metric.name} for {found}.'
        )
    for output in outputs:
      self._check_output(task, output)

  def _check_output(self, task: 'Task', output: str | None) -> None:
    """Raises unless the loss and the metrics of an output fit its labels."""
    feature = features.feature_of(features.OUTPUT, output)
    has_classes = task.num_classes_of(output) is not None
    found = 'classes' if has_classes else 'numbers'
    labels = self.labels_of(output)
    if labels != AS_GIVEN and has_classes != (labels == CLASSES):
      raise ValueError(
        f'`loss` must be one for {found}, which `{feature}` of the data has, '
        f'found {_text(self.losses)}.'
      )
    if labels == ZEROS_AND_ONES:
      for part in (task.train, task.test):
        wrong = (part[feature] != 0) & (part[feature] != 1)
        if wrong.any():
          raise ValueError(
            f'`{feature}` must be 0 or 1 for `loss` {_text(self.losses)}, '
            f'found {part[feature][wrong][0]:g}.'
          )
    for metric in self.metrics:
      if metric.output != output or metric.source not in METRICS:
        continue
      wanted = METRICS[metric.source].labels
      if labels == AS_GIVEN:
        fits = has_classes == (wanted == CLASSES)
      else:
        fits = wanted == labels
      if not fits:
        what = (
          f'{found}, which `{feature}` has'
          if labels == AS_GIVEN
          else f'{_LABELS[labels]}, as `loss` {_text(self.losses)} is'
        )
        raise ValueError(
          f'`metrics` must be for {what}, found {metric.source}, which is for '
          f'{_LABELS[wanted]}.'
        )


def create_objective(settings: ObjectiveSettings) -> Objective:
  """Returns the objective that settings ask for.

  Args:
    settings: Those of the run.

  Raises:
    ValueError: If a loss or a metric is none, is there twice, or nothing says
      whether more of the first metric is better.
  """
  losses: dict[str | None, str] = {}
  for part in (settings.loss or _CROSS_ENTROPY).split('+'):
    output, source = _split(part)
    _check_name('loss', source, LOSSES)
    if output in losses or (None in losses) or (losses and output is None):
      raise ValueError(
        f'`loss` must be one, or one of each output, found {settings.loss!r}.'
      )
    losses[output] = source
  given = settings.metrics or ((_ACCURACY,) if settings.loss is None else ())
  metrics = [_create_metric(text) for text in given]
  names = [metric.name for metric in metrics]
  for name in names:
    if names.count(name) > 1 or name == _LOSS:
      raise ValueError(
        '`metrics` must have different names, none of them loss, which is '
        f'always measured, found {", ".join(given)}.'
      )
  return Objective(
    losses,
    tuple(metrics),
    names[0] if names else _LOSS,
    _find_goal(metrics, settings.metric_goal),
  )


def _create_metric(text: str) -> Metric:
  output, source = _split(text)
  _check_name('metrics', source, METRICS)
  # Of a function inside of another, what comes last.
  name = source.rpartition(':')[2].rpartition('.')[2]
  if not name.isidentifier():
    raise ValueError(
      f'`metrics` must have names, which their columns get, found {name!r}.'
    )
  return Metric(name if output is None else f'{output}_{name}', source, output)


def _find_goal(metrics: list[Metric], given: str | None) -> str:
  """Returns what is better of the first metric, or of the loss."""
  known: str | None = MIN
  if metrics:
    named = METRICS.get(metrics[0].source)
    known = None if named is None else named.goal
  if known is not None and given is not None:
    raise ValueError(
      '`metric_goal` must be given with a first metric of your own alone, '
      f'found {given} for {metrics[0].name if metrics else _LOSS}, of which it '
      f'is {known}.'
    )
  if known is None and given is None:
    raise ValueError(
      '`metric_goal` must be given, max or min, for a first metric of your '
      f'own, found none for {metrics[0].name}.'
    )
  return str(known or given)


def _split(text: str) -> tuple[str | None, str]:
  """Returns the output and the name in OUTPUT=NAME, or `None` and NAME."""
  output, equals, name = text.strip().partition('=')
  if not equals:
    return None, output
  return output, name


def _check_name(setting_name: str, name: str, known: Iterable[str]) -> None:
  """Raises unless it is one of those that are known, or of a function."""
  if name in known:
    return
  if named_functions.is_function_name(name):
    named_functions.check_form(setting_name, name)
    return
  near = difflib.get_close_matches(
    _SHORT.get(name.lower(), name.lower()), known, n=1
  )
  meant = f' Did you mean {near[0]}?' if near else ''
  raise ValueError(
    f'`{setting_name}` must be of {", ".join(known)}, module:function or '
    f'FILE.py:function, found {name!r}.{meant}'
  )


def _text(losses: Mapping[str | None, str]) -> str:
  return ' + '.join(
    source if output is None else f'{output}={source}'
    for output, source in losses.items()
  )
