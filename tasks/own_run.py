"""Trains with data, a model and an aggregator that are Python objects.

  from tasks import own_run
  from tasks.data.datasets import own_data
  from tasks.data.partitions.partition_config import PartitionConfig

  own_run.train(
    task=own_data.create_task('mine', PartitionConfig('natural'), x=..., ...),
    model=create_model,
    output_dir='runs/mine',
    algorithm='fed_avg',
    ...
  )

What `tasks.train` does for `--task`, `--model` and `--aggregator`, for a
notebook or a program of one's own; see docs/your_own.md.
"""

import dataclasses
import difflib
import os
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

from tasks import named_functions
from tasks.algorithms.experiment import ExperimentConfig
from tasks.data.datasets import own_data
from tasks.data.partitions import partition_config
from tasks.data.task import Task
from tasks.running import runner
from tasks.running.execution import Execution
from tasks.running.run_folder import RunFolder
from tasks.running.user_parts import UserParts
from tff_clipping.programs.training.training_program import TrainingResult


def train(
  *,
  task: Task | str,
  model: Callable[..., tf.keras.Model] | str,
  output_dir: str | os.PathLike,
  aggregator: (
    Callable[..., tff.aggregators.UnweightedAggregationFactory] | str | None
  ) = None,
  loss: Any = None,
  metrics: Sequence[Any] = (),
  resume: bool = True,
  cache_dir: str | None = None,
  checkpoints_to_keep: int = 2,
  execution: Execution | None = None,
  **settings: Any,
) -> TrainingResult:
  """Runs an experiment, or goes on with it where it stopped.

  Args:
    task: The data with their split, for example by `own_data.create_task`; or
      what `--task` takes.
    model: Returns a Keras model from the shape of an example and the number of
      outputs, which are its classes; or what `--model` takes.
    output_dir: The folder of the run.
    aggregator: Returns what aggregates in place of the algorithm's aggregator;
      or what `--aggregator` takes.
    loss: A loss of Keras, a function of (y_true, y_pred), or what `--loss`
      takes; `None` for the cross-entropy of classes.
    metrics: What is measured, the one that decides first: metrics of Keras or
      functions, as for `loss`, or what `--metrics` takes.
    resume: Whether to go on with a run of the same settings and data.
    cache_dir: The folder of client stores, `None` for the user's cache folder.
    checkpoints_to_keep: How many checkpoints to keep, at least 1.
    execution: Where the rounds are computed; `None` for this process. The three
      arguments before take the place of its own.
    **settings: All other settings, as `ExperimentConfig` has them. The split is
      that of the task.

  Returns:
    How the run ended.

  Raises:
    TypeError: If an argument is of the wrong kind.
    ValueError: If one is out of range, does not fit the others, or the folder
      holds another run. Nothing has been overwritten.
    OSError: If a file cannot be written, or is damaged.
  """
  known = [field.name for field in dataclasses.fields(ExperimentConfig)]
  for name in settings:
    if name not in known:
      near = [k for k in known if k.endswith(f'_{name}')]
      near = near or difflib.get_close_matches(name, known, n=1)
      raise TypeError(
        f'`{name}` is no setting of `ExperimentConfig`'
        f'{": is it " + " or ".join(near) + "?" if near else "."}'
      )
  parts: dict[str, Any] = {}
  if isinstance(task, str):
    settings['task'] = task
  else:
    for name in ('partition', 'num_clients', 'examples_per_client'):
      if name in settings:
        raise TypeError(
          f'`{name}` must be left to the task, found {settings[name]!r}.'
        )
    parts['task'] = own_data.check_task(
      task, partition_config.PartitionConfig('natural')
    )
    settings['task'] = f'python:{task.name}'
    settings['num_clients'] = task.num_clients
    if task.partition.name in partition_config.PARTITIONS:
      settings['partition'] = task.partition.name
  for name, function in (('model', model), ('aggregator', aggregator)):
    if function is None or isinstance(function, str):
      settings[name] = function
      continue
    if not callable(function):
      raise TypeError(
        f'`{name}` must be a function or its name, found {function!r}.'
      )
    settings[name] = named_functions.name_of(function)
    parts[f'create_{name}'] = function
  functions: dict[str, Any] = {}
  settings['loss'] = loss and _named(loss, 'loss', functions)
  settings['metrics'] = tuple(
    _named(metric, 'metrics', functions) for metric in metrics
  )
  parts['functions'] = functions
  return runner.run(
    ExperimentConfig(**settings),
    RunFolder(output_dir),
    dataclasses.replace(
      execution or Execution(),
      resume=resume,
      cache_dir=cache_dir,
      checkpoints_to_keep=checkpoints_to_keep,
    ),
    user=UserParts(**parts),
  )


def _named(given: Any, argument: str, functions: dict[str, Any]) -> str:
  """Returns the name of a loss or a metric; keeps what it stands for."""
  if isinstance(given, str):
    return given
  if not callable(given):
    raise TypeError(
      f'`{argument}` must be a function, an object of Keras or a name, found '
      f'{given!r}.'
    )
  name = named_functions.name_of(given)
  functions[name] = given
  return name
