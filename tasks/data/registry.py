"""Tasks by the names that --task takes: public data sets, and own data."""

import collections
import os
import pathlib
from typing import Any

from tasks import named_functions
from tasks.data import own, public
from tasks.data.partitions import PartitionConfig
from tasks.data.task import Task

TASKS = tuple(public.READERS)
"""The names of public data sets."""


def is_own(name: str) -> bool:
  """Returns whether a name is that of a user's file or function."""
  return _is_file(name) or named_functions.is_function_name(name)


def check_task_name(argument: str, name: Any) -> None:
  """Raises unless a setting names one of `TASKS`, a file or a function.

  Args:
    argument: The setting.
    name: Its value.

  Raises:
    TypeError: If it is not a string.
    ValueError: If it can be none of these. Nothing is opened or imported.
  """
  if not isinstance(name, str):
    raise TypeError(f'`{argument}` must be a string, found {name!r}.')
  if name not in TASKS and not is_own(name):
    raise ValueError(
      f'`{argument}` must be one of {", ".join(TASKS)}, a file '
      f'{" or ".join(own.SUFFIXES)}, or FILE.py:function, found {name!r}.'
    )


def create_task(
  name: str,
  split: PartitionConfig,
  *,
  data_dir: str | os.PathLike | None = None,
  kinds: str = own.CLASSES,
) -> Task:
  """Creates a task by its name.

  Args:
    name: One of `TASKS`; a path that ends in .npz or .csv; or FILE.py:function,
      of a function that takes `split` and returns a `Task`, for example by
      `own.create_task`.
    split: How to split the training examples over clients.
    data_dir: Folder of the data's files; `None` downloads public data. A
      user's file is looked for in this folder.
    kinds: What the labels in a user's file are, as for `own.create_task`.

  Raises:
    TypeError: If a user's function returns something else.
    ValueError: If there is no such task, or files are missing or hold
      something else.
  """
  check_task_name('task', name)
  if _is_file(name):
    path = pathlib.Path(data_dir or '', pathlib.Path(name).expanduser())
    return own.read_file(path.expanduser(), split, kinds)
  if named_functions.is_function_name(name):
    function = named_functions.load_function('task', name)
    made = named_functions.call('task', function, '(split)', split)
    return own.check_task(made, split)
  data = public.READERS[name](data_dir)
  return Task(
    name=name,
    train=collections.OrderedDict(x=data.x, y=data.y),
    partition=split.split(data.y, data.owners),
    test=collections.OrderedDict(x=data.x_test, y=data.y_test),
    num_classes=data.num_classes,
    source=data.source,
    test_is_of_clients=data.test_is_of_clients,
    has_padding=data.has_padding,
  )


def _is_file(name: str) -> bool:
  return name.lower().endswith(own.SUFFIXES)
