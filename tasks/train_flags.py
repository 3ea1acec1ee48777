"""The flags that describe a run, and the settings that they make.

A run is named by a row of `experiment_table`, its scale and its algorithm, or
described by flags alone; any flag overrides what the row says.
"""

import contextlib
import dataclasses
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from absl import flags
from absl.testing import flagsaver

from tasks import data_flags, experiment_table, named_runs, threshold
from tasks.datasets import own_data
from tasks.experiment import ExperimentConfig
from tasks.experiment_table import Value
from tasks.flags_of_settings import define_flags, read_flags

_ROW = flags.DEFINE_string(
  'row',
  None,
  'A row of the table of experiments, such as table3_mlp_mnist_noniid, which '
  'gives the settings that are not given as flags.',
)
_SCALE = flags.DEFINE_string(
  'scale', None, f'How large, with --row: {", ".join(experiment_table.SCALES)}.'
)
_VARIANTS = flags.DEFINE_list(
  'variants',
  [],
  f'What is changed, with --row: {", ".join(experiment_table.VARIANTS)}.',
)
_OUTPUT_DIR = flags.DEFINE_string(
  'output_dir',
  None,
  'The folder of the run; of a row in runs/ by default. Required without '
  '--row.',
)
_CLIPPING_NORM_FROM = flags.DEFINE_string(
  'clipping_norm_from',
  None,
  'A finished run of fed_avg: c is --clipping_factor times the mean norm of '
  "its updates. Of a row, the row's run beside --output_dir by default.",
)
_CLIPPING_FACTOR = flags.DEFINE_float(
  'clipping_factor', 0.5, 'See --clipping_norm_from; the paper has 0.5.'
)
define_flags(ExperimentConfig, required='Required without --row.')

_FIELDS = dataclasses.fields(ExperimentConfig)
# What the name of a row's run says already.
_IN_NAME = ('algorithm', 'seed')
# What the run that gives c does not have.
_NOT_OF_THRESHOLD = (
  'clipping_norm',
  'sampling',
  'target_epsilon',
  'target_delta',
  'noise_multiplier',
  'accountant',
  'mechanism',
  'min_separation',
  'noise_seed',
  'clipping',
  'smoothing',
  'target_quantile',
  'aggregation',
  'aggregator',
  'simulation_diagnostics',
  'audit_canaries',
  'audit_seed',
)


def config_from_flags(
  *, missing_clipping_norm: float | None = None
) -> ExperimentConfig:
  """Returns the settings that the flags describe.

  Args:
    missing_clipping_norm: What stands for c where the run that gives it has not
      ended; `None` to refuse that.

  Raises:
    TypeError: If a flag is of the wrong kind.
    ValueError: If a flag is missing, out of range or does not fit another.
  """
  settings = {name: value.value for name, value in _values().items()}
  task = settings['task']
  has_own_split = task is not None and own_data.is_own(task)
  required = {
    field.name: settings[field.name]
    for field in _FIELDS
    if field.default is dataclasses.MISSING
    or (field.name == 'partition' and not has_own_split)
  }
  if _ROW.value is None:
    required['output_dir'] = _OUTPUT_DIR.value
  _check_given(required)
  source = _clipping_norm_run()
  if source is not None:
    algorithm = settings['algorithm']
    known = experiment_table.ALGORITHMS.get(algorithm)
    if known is not None and known.clips == 'models':
      raise ValueError(
        f'`clipping_norm_from` must not be given for {algorithm}, whose '
        f'clipping norm is that of models and not of updates, found {source!r}.'
      )
    settings['clipping_norm'] = _given_clipping_norm(
      source, missing_clipping_norm
    )
  return ExperimentConfig(**settings)


def output_dir() -> pathlib.Path:
  """Returns the folder of the run.

  Raises:
    ValueError: If it is not given, and there is no row to name it.
  """
  if _OUTPUT_DIR.value is not None:
    return pathlib.Path(_OUTPUT_DIR.value)
  run = _named_run()
  if run is None:
    raise ValueError('`output_dir` must be given.')
  return pathlib.Path('runs') / (run.name + _changes(_IN_NAME))


def clipping_norm_source() -> str | None:
  """Returns where c comes from, `None` if it is given.

  The paper takes it from the clients' data, and does not count its cost.
  """
  if _clipping_norm_run() is None:
    return None
  return (
    f'{_CLIPPING_FACTOR.value:g} times the mean norm of the updates of a run '
    "of fed_avg: a figure of the clients' data, whose cost is not in any "
    'epsilon'
  )


def settings_text() -> str:
  """Returns the settings as text: a line each, with its source.

  Raises:
    ValueError: If there is no such row, scale or variant.
  """
  values = _values()
  source = _clipping_norm_run()
  if source is not None:
    values['clipping_norm'] = Value(
      '?', f'{_CLIPPING_FACTOR.value:g} of the mean norm of updates in {source}'
    )
  cells = [
    (name, 'not given' if value.value is None else str(value.value), value[1])
    for name, value in values.items()
  ]
  names, texts, _ = zip(*cells, strict=True)
  widths = max(map(len, names)), max(map(len, texts))
  lines = [
    f'{name:{widths[0]}}  {text:{widths[1]}}  {source}'
    for name, text, source in cells
  ]
  return '\n'.join([*_title(), *lines]) + '\n'


@contextlib.contextmanager
def parsed(arguments: Sequence[str]) -> Iterator[None]:
  """Makes the flags be these, and no others, until the body ends.

  Args:
    arguments: Flags, as on a command line of `tasks.train`.
  """
  with flagsaver.flagsaver():
    for module in (__name__, data_flags.__name__):
      for flag in flags.FLAGS.get_key_flags_for_module(module):
        flag.unparse()
    flags.FLAGS(['tasks.train', *arguments])
    yield


def _check_given(values: Mapping[str, Any], where: str = '') -> None:
  """Raises if a value is `None`, and names all that are."""
  missing = [f'`{name}`' for name, value in values.items() if value is None]
  if missing:
    raise ValueError(f'{", ".join(missing)} must be given{where}.')


def _values() -> dict[str, Value]:
  """Every setting with where it comes from; `None` for what is missing."""
  values = {
    field.name: Value(
      None if field.default is dataclasses.MISSING else field.default, 'default'
    )
    for field in _FIELDS
  }
  given = read_flags(ExperimentConfig, given_only=True)
  run = _named_run()
  if run is not None:
    values |= run.values
    # One of the two sets the noise.
    if 'noise_multiplier' in given and 'target_epsilon' not in given:
      values['target_epsilon'] = Value(None, 'not with --noise_multiplier')
    if 'num_rounds' in given and 'update_rounds' not in given:
      rounds = [
        t for t in values['update_rounds'].value if t < given['num_rounds']
      ]
      values['update_rounds'] = Value(tuple(rounds), "the row's, to T")
    given = {k: v for k, v in given.items() if k not in _IN_NAME}
  return values | {name: Value(value, 'given') for name, value in given.items()}


def _named_run() -> named_runs.NamedRun | None:
  """The run of the table that the flags name; `None` without --row."""
  if _ROW.value is None:
    for flag in (_SCALE, _VARIANTS):
      if flag.value:
        raise ValueError(
          f'`{flag.name}` must be given with `row`, found {flag.value!r} '
          'without.'
        )
    return None
  given = read_flags(ExperimentConfig, given_only=True)
  _check_given(
    {'scale': _SCALE.value, 'algorithm': given.get('algorithm')}, ' with `row`'
  )
  return named_runs.get_run(
    _ROW.value,
    _SCALE.value,
    given['algorithm'],
    given.get('seed', 0),
    _VARIANTS.value,
  )


def _changes(left_out: tuple[str, ...]) -> str:
  """What the name of a run's folder says of flags that override its row's."""
  given = read_flags(ExperimentConfig, given_only=True)
  return ''.join(
    f'-{name}={_text(value)}'
    for name, value in given.items()
    if name not in left_out
  )


def _text(value: Any) -> str:
  text = ','.join(map(str, value)) if isinstance(value, tuple) else str(value)
  # It is a part of a folder's name.
  return text.replace('/', '-')


def _title() -> list[str]:
  """What a row is, and what the paper says of it; nothing without a row."""
  run = _named_run()
  if run is None:
    return []
  row = run.row
  published = ', '.join(
    f'{name} {value:g} {unit}'
    for name, value, unit in (
      ('FedAvg', row.fed_avg, '%'),
      ('clipping drop', row.clipping_drop, 'points'),
      ('DP drop', row.dp_drop, 'points'),
    )
    if value is not None
  )
  stands_for = f' in place of {row.stands_for}' if row.stands_for else ''
  return [
    f'{run.name}{_changes(_IN_NAME)}',
    f'row: {row.name}{stands_for}; published: {published or "nothing"}',
    f'scale: {run.scale.name}. {run.scale.description}',
    '',
  ]


def _clipping_norm_run() -> str | None:
  """The folder of the run that gives c; `None` if c is not from a run."""
  given = read_flags(ExperimentConfig, given_only=True)
  if _CLIPPING_NORM_FROM.value:
    if 'clipping_norm' in given:
      raise ValueError(
        '`clipping_norm` and `clipping_norm_from` exclude each other, found '
        'both.'
      )
    return _CLIPPING_NORM_FROM.value
  run = _named_run()
  if run is None or run.threshold_run is None or 'clipping_norm' in given:
    return None
  name = run.threshold_run.name + _changes(_IN_NAME + _NOT_OF_THRESHOLD)
  return str(output_dir().parent / name)


def _given_clipping_norm(source: str, missing: float | None) -> float:
  """Returns c from a run, or what stands for it."""
  try:
    _check_there(source)
    return threshold.compute_clipping_norm(source, _CLIPPING_FACTOR.value)
  except ValueError:
    if missing is None or _CLIPPING_NORM_FROM.value:
      raise
    return missing


def _check_there(run_dir: str) -> None:
  """Raises unless the run that a row takes c from by default is there."""
  if not _CLIPPING_NORM_FROM.value and not pathlib.Path(run_dir).is_dir():
    raise ValueError(
      '`clipping_norm_from` must be given, or the row be run before with '
      f'`algorithm` fed_avg, found no {run_dir}.'
    )
