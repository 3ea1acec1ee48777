"""A run as flags ask for it: by a row of the table, by settings, or by both."""

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from absl import flags
from absl.testing import flagsaver

from tasks import config, experiments

# How a run is watched, and where: not another experiment.
NOT_OF_THE_ROW = frozenset(
  (
    *config.OF_THE_MACHINE,
    *('rounds_per_evaluation', 'test_examples', 'rounds_per_checkpoint'),
    *('update_rounds', 'algorithm', 'seed'),
  )
)


def define() -> None:
  """Defines the flags of a run; called once a process."""
  config.define_flags()
  row = (
    'A row of the table of experiments, which gives the settings that are not '
    'given as flags; python -m tasks.experiments lists them.'
  )
  scale = f'How large, with --row: {", ".join(experiments.SCALES)}.'
  variants = 'What is changed, with --row.'
  flags.DEFINE_string('row', None, row, module_name='run')
  flags.DEFINE_string('scale', None, scale, module_name='run')
  flags.DEFINE_list('variants', [], variants, module_name='run')


def names() -> list[str]:
  """Returns the names of all flags of a run."""
  return [
    flag.name
    for group in config.GROUPS
    for flag in flags.FLAGS.get_key_flags_for_module(group)
  ]


def read() -> tuple[config.Config, Mapping[str, Any] | None]:
  """Returns the settings, and which run of the table they are, if one.

  Raises:
    TypeError: If a setting is of the wrong kind.
    ValueError: If one is missing or out of range, or there is no such row.
  """
  given = config.read_flags()
  row, scale, variants = (
    flags.FLAGS[name].value for name in ('row', 'scale', 'variants')
  )
  if row is None:
    if scale or variants:
      raise ValueError('`scale` and `variants` must be given with `row` only.')
    return config.Config(**given), None
  for name in ('scale', 'algorithm'):
    if flags.FLAGS[name].value is None:
      raise ValueError(f'`{name}` must be given with `row`.')
  run = experiments.NamedRun(
    row, scale, given['algorithm'], given.get('seed', 0), variants
  )
  settings = run.settings
  # One of the two sets the noise.
  if 'noise_multiplier' in given:
    settings.pop('target_epsilon', None)
  if 'clipping_norm_from' in given:
    settings.pop('clipping_norm', None)
  settings |= given
  if 'update_rounds' not in given:
    rounds = settings.get('update_rounds', ())
    settings['update_rounds'] = [
      t for t in rounds if t < settings['num_rounds']
    ]
  settings.setdefault('output_dir', str(pathlib.Path('runs') / run.name))
  name = dataclasses.asdict(run) if NOT_OF_THE_ROW.issuperset(given) else None
  return config.Config(**settings), name


def parse(
  arguments: Sequence[str],
) -> tuple[config.Config, Mapping[str, Any] | None]:
  """Returns what `read` does for these flags, and leaves those of the process.

  Raises:
    absl.flags.Error: If there is no such flag, or it cannot be read.
    TypeError, ValueError: As `read`.
  """
  with flagsaver.flagsaver():
    for name in names():
      flags.FLAGS[name].unparse()
    flags.FLAGS(['tasks.train', *arguments])
    return read()
