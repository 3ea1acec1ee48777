r"""Draws a partition: how many examples of each class each client holds.

  python -m tasks.draw_partition --task=mnist --data_dir=DIR \
      --partition=label_skew --num_clients=480 --examples_per_client=125 \
      --output=mnist_label_skew.png

Exit codes: 0 done, 2 wrong flags or data, 130 Ctrl-C.
"""

import pathlib
from collections.abc import Sequence

from absl import flags

from tasks.data.datasets import registry
from tasks.data.partitions import partition_figure
from tasks.data.partitions.partition_config import (
  PartitionConfig,
  PartitionSettings,
)
from tasks.settings import command_line, data_flags, flags_of_settings
from tasks.settings.data_folders import DataFolders

# Listed by --helpshort as this binary's own.
flags.adopt_module_key_flags(data_flags)

_TASK = flags.DEFINE_string('task', 'embedded_digits', 'The data set.')
_PARTITION = flags.DEFINE_string(
  'partition', 'label_skew', 'The split over clients.'
)
flags_of_settings.define_flags(PartitionSettings)
_OUTPUT = flags.DEFINE_string('output', 'partition.png', 'The figure to write.')


def main(argv: Sequence[str]) -> int:
  """Draws the partition that the flags describe; returns the exit code."""
  try:
    command_line.check_flags_only(argv)
    task = registry.create_task(
      _TASK.value,
      PartitionConfig(
        _PARTITION.value, **flags_of_settings.read_flags(PartitionSettings)
      ),
      **flags_of_settings.read_flags(DataFolders),
    )
    if task.label_shape:
      raise ValueError(
        f'`task` must have one label an example, found {task.name!r}.'
      )
    pathlib.Path(_OUTPUT.value).parent.mkdir(parents=True, exist_ok=True)
    partition_figure.write_class_counts_figure(
      task.partition.class_counts(task.train['y'], task.num_classes),
      f'{task.name}, {task.summary}',
      _OUTPUT.value,
    )
  except (ValueError, TypeError, OSError, ModuleNotFoundError) as e:
    command_line.print_error(e)
    return 2
  print(f'{task.name}, {task.summary}: {_OUTPUT.value}')
  return 0


if __name__ == '__main__':
  command_line.run(main)
