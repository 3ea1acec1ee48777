"""A run as flags ask for it: by a row of the table, by settings, or by both.

A run is named by a row of `experiment_table`, its scale and its algorithm, or
described by settings alone; any setting overrides what the row says. The values
of flags are those of a whole process: they become a `RunRequest` here, and
nothing else of `tasks` asks for them.
"""

import dataclasses
import functools
import pathlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from absl import flags
from absl.testing import flagsaver

from tasks.algorithms import builders
from tasks.algorithms.algorithm import names_of
from tasks.algorithms.experiment import ExperimentConfig
from tasks.data.datasets import own_data
from tasks.experiments import experiment_table, named_runs
from tasks.experiments.experiment_table import Value
from tasks.running import threshold
from tasks.running.execution import Execution
from tasks.settings import data_flags
from tasks.settings.data_folders import DataFolders
from tasks.settings.flags_of_settings import define_flags, read_flags
from tasks.settings.setting_fields import setting

# Of `tasks.train`, and of the commands that plan runs.
PRINT_SETTINGS = flags.DEFINE_bool(
  'print_settings', False, 'Print every setting with its source; do not train.'
)

_FIELDS = dataclasses.fields(ExperimentConfig)
# What the name of a row's run says already.
_IN_NAME = ('algorithm', 'seed')
# Of the paper: c is half of the mean norm (Sec. 4).
_FACTOR = 0.5
# What the run that gives c does not have.
_NOT_OF_THRESHOLD = names_of(builders.Settings) | {
  'sampling',
  'min_separation',
  'accountant',
  'simulation_diagnostics',
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunRequest:
  """What is asked for; all but the first two are flags of `tasks.train` too.

  Attributes:
    given: Settings of an `ExperimentConfig`, by name; the others are those of
      the row, or have their defaults.
    execution: How the run is executed.
  """

  given: Mapping[str, Any]
  execution: Execution
  row: str | None = setting(
    'A row of the table of experiments, such as table3_mlp_mnist_noniid, which '
    'gives the settings that are not given as flags.',
    None,
  )
  scale: str | None = setting(
    f'How large, with --row: {", ".join(experiment_table.SCALES)}.', None
  )
  variants: tuple[str, ...] = setting(
    f'What is changed, with --row: {", ".join(experiment_table.VARIANTS)}.', ()
  )
  output_dir: str | None = setting(
    'The folder of the run; of a row in runs/ by default. Required without '
    '--row.',
    None,
  )
  clipping_norm_from: str | None = setting(
    'A finished run of fed_avg: c is --clipping_factor times the mean norm of '
    "its updates. Of a row, the row's run beside --output_dir by default.",
    None,
  )
  clipping_factor: float = setting(
    'See --clipping_norm_from; the paper has 0.5.', _FACTOR
  )

  def __post_init__(self):
    if self.row is None:
      for name in ('scale', 'variants'):
        value = getattr(self, name)
        if value:
          raise ValueError(
            f'`{name}` must be given with `row`, found {value!r} without.'
          )
    else:
      needed = {'scale': self.scale, 'algorithm': self.given.get('algorithm')}
      _check_given(needed, ' with `row`')
    if self.clipping_norm_from:
      if 'clipping_norm' in self.given:
        raise ValueError(
          '`clipping_norm` and `clipping_norm_from` exclude each other, found '
          'both.'
        )

  def config(
    self, *, missing_clipping_norm: float | None = None
  ) -> ExperimentConfig:
    """Returns the settings.

    Args:
      missing_clipping_norm: What stands for c where the run that gives it has
        not ended; `None` to refuse that.

    Raises:
      TypeError: If a setting is of the wrong kind.
      ValueError: If a setting is missing, out of range or does not fit another.
    """
    settings = {name: value.value for name, value in self._values.items()}
    has_own_split = own_data.is_own(settings['task'] or '')
    required = {
      field.name: settings[field.name]
      for field in _FIELDS
      if field.default is dataclasses.MISSING
      or (field.name == 'partition' and not has_own_split)
    }
    if self.row is None:
      required['output_dir'] = self.output_dir
    _check_given(required)
    if self._clipping_norm_run is not None:
      algorithm = settings['algorithm']
      if any(
        b.name == algorithm and b.clips == 'models' for b in builders.BUILDERS
      ):
        raise ValueError(
          f'`clipping_norm_from` must not be given for {algorithm}, whose '
          'clipping norm is that of models and not of updates, found '
          f'{self._clipping_norm_run!r}.'
        )
      settings['clipping_norm'] = self._clipping_norm(missing_clipping_norm)
    config = ExperimentConfig(**settings)
    if self.clipping_norm_from:
      threshold.warn_of_other_settings(
        self.clipping_norm_from, config.to_json()
      )
    return config

  @property
  def folder(self) -> pathlib.Path:
    """The folder of the run.

    Raises:
      ValueError: If it is not given, and there is no row to name it.
    """
    if self.output_dir is not None:
      return pathlib.Path(self.output_dir)
    if self._named is None:
      raise ValueError('`output_dir` must be given.')
    return pathlib.Path('runs') / self._name

  @property
  def run_name(self) -> named_runs.NamedRun | None:
    """The run of the table that this is.

    `None` without a row, and where a setting that is more than a way to watch
    the run, or the share that c is of the norms, is not the table's.
    """
    own = {*_IN_NAME, *named_runs.WATCHING}
    if self.clipping_factor != _FACTOR or not own.issuperset(self.given):
      return None
    return self._named

  @property
  def clipping_norm_source(self) -> str | None:
    """Where c comes from; `None` if it is given.

    The paper takes it from the clients' data, and does not count its cost.
    """
    if self._clipping_norm_run is None:
      return None
    return (
      f'{self.clipping_factor:g} times the mean norm of the updates of a run '
      "of fed_avg: a figure of the clients' data, whose cost is not in any "
      'epsilon'
    )

  def describe(self) -> str:
    """Returns the settings as text: a line each, with its source."""
    values = dict(self._values)
    source = self._clipping_norm_run
    if source is not None:
      values['clipping_norm'] = Value(
        '?', f'{self.clipping_factor:g} of the mean norm of updates in {source}'
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
    return '\n'.join([*self._title(), *lines]) + '\n'

  @functools.cached_property
  def _named(self) -> named_runs.NamedRun | None:
    """The run of the table; `None` without a row."""
    if self.row is None:
      return None
    return named_runs.get_run(
      self.row,
      self.scale,
      self.given['algorithm'],
      self.given.get('seed', 0),
      self.variants,
    )

  @functools.cached_property
  def _values(self) -> Mapping[str, Value]:
    """Every setting with where it comes from; `None` for what is missing."""
    values = {
      field.name: Value(
        None if field.default is dataclasses.MISSING else field.default,
        'default',
      )
      for field in _FIELDS
    }
    given = self.given
    if self._named is not None:
      values |= self._named.values
      # One of the two sets the noise.
      if 'noise_multiplier' in given and 'target_epsilon' not in given:
        values['target_epsilon'] = Value(None, 'not with --noise_multiplier')
      if 'num_rounds' in given and 'update_rounds' not in given:
        rounds = [
          t for t in values['update_rounds'].value if t < given['num_rounds']
        ]
        values['update_rounds'] = Value(tuple(rounds), "the row's, to T")
      given = {k: v for k, v in given.items() if k not in _IN_NAME}
    return values | {
      name: Value(value, 'given') for name, value in given.items()
    }

  @property
  def _name(self) -> str:
    """What the folder of a row's run is called."""
    return self._named.name + self._changes(_IN_NAME)

  @property
  def _clipping_norm_run(self) -> str | None:
    """The folder of the run that gives c; `None` if c is not from a run."""
    if self.clipping_norm_from:
      return self.clipping_norm_from
    run = self._named
    if run is None or run.threshold_run is None:
      return None
    if 'clipping_norm' in self.given:
      return None
    name = run.threshold_run.name + self._changes(
      _NOT_OF_THRESHOLD.union(_IN_NAME)
    )
    return str(self.folder.parent / name)

  def _clipping_norm(self, missing: float | None) -> float:
    """Returns c from a run, or what stands for it."""
    source = self._clipping_norm_run
    try:
      if not self.clipping_norm_from and not pathlib.Path(source).is_dir():
        raise ValueError(
          '`clipping_norm_from` must be given, or the row be run before with '
          f'`algorithm` fed_avg, found no {source}.'
        )
      return threshold.compute_clipping_norm(source, self.clipping_factor)
    except ValueError:
      if missing is None or self.clipping_norm_from:
        raise
      return missing

  def _changes(self, left_out: Collection[str]) -> str:
    """What the name of a run's folder says of what overrides its row."""
    return ''.join(
      f'-{name}={_text(value)}'
      for name, value in self.given.items()
      if name not in left_out
    )

  def _title(self) -> list[str]:
    """What a row is, and what the paper says of it; nothing without a row."""
    run = self._named
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
      self._name,
      f'row: {row.name}{stands_for}; published: {published or "nothing"}',
      f'scale: {run.scale.name}. {run.scale.description}',
      '',
    ]


define_flags(RunRequest)
define_flags(ExperimentConfig, required='Required without --row.')
# Of this module too, for whoever adopts its flags.
flags.adopt_module_key_flags(data_flags)
define_flags(Execution, but=DataFolders)


def read() -> RunRequest:
  """Returns what the flags of this process ask for.

  Raises:
    TypeError: If a flag is of the wrong kind.
    ValueError: If a flag is out of range or does not fit another.
  """
  return RunRequest(
    given=read_flags(ExperimentConfig, given_only=True),
    execution=Execution(**read_flags(Execution)),
    **read_flags(RunRequest),
  )


def parse(arguments: Sequence[str]) -> RunRequest:
  """Returns what these flags ask for, and leaves those of the process alone.

  Args:
    arguments: Flags, as on a command line of `tasks.train`.

  Raises:
    absl.flags.Error: If there is no such flag, or it cannot be read.
    TypeError: If a flag is of the wrong kind.
    ValueError: If a flag is out of range or does not fit another.
  """
  with flagsaver.flagsaver():
    for flag in flags.FLAGS.get_key_flags_for_module(__name__):
      flag.unparse()
    flags.FLAGS(['tasks.train', *arguments])
    return read()


def _check_given(values: Mapping[str, Any], where: str = '') -> None:
  """Raises if a value is `None`, and names all that are."""
  missing = [f'`{name}`' for name, value in values.items() if value is None]
  if missing:
    raise ValueError(f'{", ".join(missing)} must be given{where}.')


def _text(value: Any) -> str:
  text = ','.join(map(str, value)) if isinstance(value, tuple) else str(value)
  # It is a part of a folder's name.
  return text.replace('/', '-')
