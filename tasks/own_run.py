"""Trains with data, a model and an aggregator that are Python objects.

  from tasks import own_run
  from tasks.data import own
  from tasks.data.partitions import PartitionConfig

  own_run.train(
    task=own.create_task('mine', PartitionConfig('natural'), x=..., ...),
    model=create_model,
    output_dir='runs/mine',
    algorithm='fed_avg',
    ...
  )

What `tasks.train` does, for a notebook or a program of one's own; see
docs/your_own.md.
"""

import os
from typing import Any

from tasks import config
from tasks.data import own
from tasks.data.partitions import PartitionConfig
from tasks.data.task import Task
from tasks.running.run import run
from tff_clipping.programs.training.training_program import TrainingResult


def train(
  *, task: Task | str, output_dir: str | os.PathLike, **settings: Any
) -> TrainingResult:
  """Runs an experiment, or goes on with it where it stopped.

  Args:
    task: The data with their split, for example by `own.create_task`; or
      what `--task` takes.
    output_dir: The folder of the run.
    **settings: All other settings, by the names of their flags. `model`,
      `aggregator`, `local_step`, `loss` and each of `metrics` may be the
      function, or the loss or metric of Keras, itself; a run that goes on
      knows these by their names alone. The split is that of the task, and so
      are its held-out clients.

  Returns:
    How the run ended.

  Raises:
    TypeError: If an argument is of the wrong kind.
    ValueError: If one is out of range, does not fit the others, or the folder
      holds another run. Nothing has been overwritten.
    OSError: If a file cannot be written, or is damaged.
    privacy.DamagedLedgerError: If the ledger is not as it was written.
  """
  folder, data, split = str(output_dir), None, {}
  if not isinstance(task, str):
    data = own.check_task(task, PartitionConfig('natural'))
    task, split = f'python:{data.name}', data.split_settings
  created = config.Config(task=task, output_dir=folder, **split, **settings)
  return run(created, task=data)
