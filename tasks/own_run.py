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
from collections.abc import Sequence
from typing import Any

from tasks import config, named_functions
from tasks.data import own
from tasks.data.partitions import PARTITIONS, PartitionConfig
from tasks.data.task import Task
from tasks.running.run import run
from tff_clipping.programs.training.training_program import TrainingResult


def train(
  *,
  task: Task | str,
  output_dir: str | os.PathLike,
  metrics: Sequence[Any] = (),
  **settings: Any,
) -> TrainingResult:
  """Runs an experiment, or goes on with it where it stopped.

  Args:
    task: The data with their split, for example by `own.create_task`; or
      what `--task` takes.
    output_dir: The folder of the run.
    metrics: What is measured, the one that decides first: metrics of Keras or
      functions, or what `--metrics` takes.
    **settings: All other settings, by the names of their flags. `model`,
      `aggregator`, `local_step` and `loss` may be the functions, or the loss of
      Keras, themselves. The split is that of the task.

  Returns:
    How the run ended.

  Raises:
    TypeError: If an argument is of the wrong kind.
    ValueError: If one is out of range, does not fit the others, or the folder
      holds another run. Nothing has been overwritten.
    OSError: If a file cannot be written, or is damaged.
  """
  functions: dict[str, Any] = {}

  def name_of(argument: str, given: Any) -> Any:
    if given is None or isinstance(given, str):
      return given
    if not callable(given):
      raise TypeError(
        f'`{argument}` must be a function or its name, found {given!r}.'
      )
    name = named_functions.name_of(given)
    functions[name] = given
    return name

  for argument in ('model', 'aggregator', 'local_step', 'loss'):
    if argument in settings:
      settings[argument] = name_of(argument, settings[argument])
  settings['metrics'] = [name_of('metrics', metric) for metric in metrics]
  data = None
  if not isinstance(task, str):
    for argument in ('partition', 'num_clients', 'examples_per_client'):
      if argument in settings:
        raise TypeError(
          f'`{argument}` must be left to the task, found '
          f'{settings[argument]!r}.'
        )
    data = own.check_task(task, PartitionConfig('natural'))
    settings['num_clients'] = data.num_clients
    if data.partition.name in PARTITIONS:
      settings['partition'] = data.partition.name
    task = f'python:{data.name}'
  created = config.Config(task=task, output_dir=str(output_dir), **settings)
  return run(created, task=data, functions=functions)
