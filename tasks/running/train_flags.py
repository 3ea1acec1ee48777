"""The flags that say what is run, where and how, and what they ask for.

The values of flags are those of a whole process. Here they become a `Command`,
and nothing else of `tasks` asks for them.
"""

import dataclasses
from collections.abc import Sequence

from absl import flags
from absl.testing import flagsaver

from tasks.algorithms.experiment import ExperimentConfig
from tasks.experiments import experiment_table
from tasks.running.execution import Execution
from tasks.running.run_request import RunRequest
from tasks.settings import data_flags
from tasks.settings.flags_of_settings import define_flags, read_flags

# Of this module too, for whoever adopts its flags.
flags.adopt_module_key_flags(data_flags)

RESUME = flags.DEFINE_bool(
  'resume', True, 'Go on with a run of the same settings in --output_dir.'
)
CHECKPOINTS_TO_KEEP = flags.DEFINE_integer(
  'checkpoints_to_keep', 2, 'How many checkpoints to keep.', lower_bound=1
)
PRINT_SETTINGS = flags.DEFINE_bool(
  'print_settings', False, 'Print every setting with its source; do not train.'
)
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
define_flags(Execution)


@dataclasses.dataclass(frozen=True)
class Command:
  """What a command line asks for.

  Attributes:
    request: The run.
    execution: Where and with what the run computes.
    data_dir: The folder of the data's official files; `None` to download them.
    cache_dir: The folder of downloads and client stores; `None` for the user's
      cache folder.
  """

  request: RunRequest
  execution: Execution
  data_dir: str | None
  cache_dir: str | None


def read() -> Command:
  """Returns what the flags of this process ask for.

  Raises:
    TypeError: If a flag is of the wrong kind.
    ValueError: If a flag is out of range or does not fit another.
  """
  return Command(
    RunRequest(
      given=read_flags(ExperimentConfig, given_only=True),
      row=_ROW.value,
      scale=_SCALE.value,
      variants=tuple(_VARIANTS.value),
      output_dir=_OUTPUT_DIR.value,
      clipping_norm_from=_CLIPPING_NORM_FROM.value,
      clipping_factor=_CLIPPING_FACTOR.value,
    ),
    Execution(**read_flags(Execution)),
    data_flags.DATA_DIR.value,
    data_flags.CACHE_DIR.value,
  )


def parse(arguments: Sequence[str]) -> Command:
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
