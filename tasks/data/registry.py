"""Tasks by the names that --task takes: public data sets, and own data."""

import os
import pathlib
import re

from tasks import named_functions
from tasks.checks import check
from tasks.data import own, public
from tasks.data.partitions import PartitionConfig
from tasks.data.task import Task


def create_task(
  name: str,
  split: PartitionConfig,
  *,
  data_dir: str | os.PathLike | None = None,
  kinds: str = own.CLASSES,
) -> Task:
  """Creates a task by its name.

  Args:
    name: One of `public.READERS`; a path that ends in .npz or .csv; or
      FILE.py:function, of a function that takes `split` and returns a `Task`,
      for example by `own.create_task`.
    split: How to split the training examples over clients.
    data_dir: Folder of the data's files, a user's too; `None` downloads public
      data.
    kinds: What the labels in a user's file are, as for `own.create_task`.

  Raises:
    TypeError: If a user's function returns something else.
    ValueError: If there is no such task, or files are missing or hold
      something else.
  """
  if named_functions.is_own(name):
    function = named_functions.find('task', name)
    made = named_functions.call('task', function, split)
    return own.check_task(made, split)
  if name in public.READERS:
    return own.create_task(name, split, **public.READERS[name](data_dir))
  must = (
    f'must be one of {", ".join(public.READERS)}, a file '
    f'{" or ".join(own.SUFFIXES)}, or FILE.py:function'
  )
  check('task', name.lower().endswith(own.SUFFIXES), must, repr(name))
  path = pathlib.Path(
    data_dir or '', pathlib.Path(name).expanduser()
  ).expanduser()
  return own.create_task(
    # The client store's folder is called by it.
    re.sub(r'\W+', '_', path.stem),
    split,
    **own.read_file(path),
    kinds=kinds,
    source=path.name,
  )
