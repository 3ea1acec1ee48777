"""Data of a user's own: arrays, those of a file, or what a function returns.

docs/data.md says in full what they may hold. Nothing here needs TensorFlow.
"""

import dataclasses
import hashlib
import pathlib
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from tasks import named_functions
from tasks.data import features, task
from tasks.data.datasets import (
  data_files,
  labels,
  own_arrays,
  own_classes,
  own_clients,
  own_files,
  padding,
)
from tasks.data.partitions import partition_config

# An error that names one of these is of a flag, and not of the file.
_SPLIT_SETTINGS = ('partition', 'num_clients', 'examples_per_client')


def is_own(name: str) -> bool:
  """Returns whether `--task` is a file or a function, and none of ours."""
  return own_files.is_file(name) or named_functions.is_function_name(name)


def create_named_task(
  name: str,
  split: partition_config.PartitionConfig,
  kinds: own_arrays.Kinds = labels.CLASSES,
) -> task.Task:
  """Creates the task of a file or a function.

  Args:
    name: A path that ends in .npz or .csv; or `module:function` or
      `FILE.py:function`, of a function that takes `split` and returns a
      `tasks.data.task.Task`, for example by `create_task`.
    split: How to split the training examples over clients.
    kinds: What the labels in a file are, as for `create_task`.

  Raises:
    ValueError: If there is no such file or function.
    data_files.DataError: If a file does not hold what it should.
    TypeError: If the function returns something else.
  """
  if own_files.is_file(name):
    return _read_file(pathlib.Path(name).expanduser(), split, kinds)
  function = named_functions.load_function('task', name)
  return check_task(
    named_functions.call('task', function, '(split)', split), split
  )


def create_task(
  name: str,
  split: partition_config.PartitionConfig,
  *,
  x: np.ndarray | Mapping[str, np.ndarray],
  y: np.ndarray | Mapping[str, np.ndarray],
  client: np.ndarray | None = None,
  x_test: np.ndarray | Mapping[str, np.ndarray] | None = None,
  y_test: np.ndarray | Mapping[str, np.ndarray] | None = None,
  client_test: np.ndarray | None = None,
  all_clients: np.ndarray | None = None,
  num_classes: int | Mapping[str, int] | None = None,
  has_padding: bool | None = None,
  kinds: own_arrays.Kinds = labels.CLASSES,
  source: str = 'arrays',
) -> task.Task:
  """Makes a task of arrays.

  Without a test set, a tenth of the examples, drawn at random but always the
  same, is held out as one. They are clients' data: a private run needs a test
  set of its own.

  Args:
    name: What the task is called.
    split: How to split the training examples over clients; 'natural' is by
      `client`.
    x: [n, ...] numbers. uint8 stays as it is, other integers become int32,
      floating-point numbers float32. A mapping of such arrays for a model of
      several inputs.
    y: int [n], the classes from 0; or [n, length], a label for each position;
      or what `kinds` says. A mapping for a model of several outputs.
    client: [n], whose example each is: whole numbers from 0, or strings; see
      `own_clients`.
    x_test: [m, ...], of the shape of `x`; given with `y_test`.
    y_test: int [m].
    client_test: [m], whose example each is, as `client`; not given where they
      are nobody's of these clients.
    all_clients: [k], the ids of `client` and of those who are there without an
      example; they count as clients of the natural partition.
    num_classes: One more than the largest label of all by default; given for a
      private run, unless the test set has that label. A mapping for several
      outputs.
    has_padding: Whether 0 in rows of classes fills them up, and does not count;
      not needed where no label is 0, or `x` is 0 where `y` is, at the ends of
      rows alone.
    kinds: What `y` is, one of `labels.CLASSES`, `labels.NUMBERS` (of any shape;
      [n] becomes [n, 1]) and `labels.AS_GIVEN`; a mapping for several outputs.
    source: One line on where the examples come from.

  Raises:
    TypeError: If `split` is no `PartitionConfig`.
    ValueError: If the arrays are not like this, or do not fit together.
  """
  if not isinstance(split, partition_config.PartitionConfig):
    raise TypeError(
      '`split` must be a `PartitionConfig`, for example '
      f"PartitionConfig('natural'), found {split!r}."
    )
  train = own_arrays.check_part(x, y, kinds)
  size = own_arrays.check_lengths(train)
  if client is not None:
    client = own_clients.check('client', client)
    own_arrays.check_length(train, 'client', client)
  if (x_test is None) != (y_test is None):
    raise ValueError('`x_test` and `y_test` must be given together.')
  if client_test is not None and (client is None or x_test is None):
    raise ValueError(
      '`client_test` must be given with `client` and `x_test`, found it '
      'without.'
    )
  if all_clients is not None:
    if client is None:
      raise ValueError('`all_clients` must be given with `client`.')
    all_clients = own_clients.check('all_clients', all_clients)
    if all_clients.dtype.kind != client.dtype.kind or not set(
      client.tolist()
    ) <= set(all_clients.tolist()):
      raise ValueError('`all_clients` must have each id of `client`, as there.')
  is_held_out = x_test is None
  if is_held_out:
    kept, held_out = own_arrays.held_out_rows(size)
    test = own_arrays.take(train, held_out)
    train = own_arrays.take(train, kept)
    client = None if client is None else client[kept]
  else:
    test = own_arrays.check_part(x_test, y_test, kinds, suffix='_test')
    own_arrays.check_lengths(test, suffix='_test')
    if client_test is not None:
      client_test = own_clients.check('client_test', client_test)
      own_arrays.check_length(test, 'client_test', client_test, suffix='_test')
    if list(train) != list(test):
      raise ValueError(
        f'the test set must have the features {", ".join(train)}, found '
        f'{", ".join(test)}.'
      )
    for feature, array in train.items():
      own_arrays.check_alike(feature, array, f'{feature}_test', test[feature])
  if client is not None:
    own_clients.check_all(
      client if all_clients is None else all_clients, client_test
    )
  has_padding = padding.decide(
    {
      f'{feature}{suffix}': (part.get('x', np.zeros([0])), part[feature])
      for suffix, part in (('', train), ('_test', test))
      for feature in own_arrays.class_features(train)
    },
    None if has_padding is None else np.asarray(has_padding)[()],
  )
  classes = {
    feature: own_classes.count_classes(
      feature,
      train[feature],
      test[feature],
      own_classes.num_of(feature, num_classes),
    )
    for feature in own_arrays.class_features(train)
  }
  if num_classes is not None and not classes:
    raise ValueError(
      '`num_classes` must be given for classes alone, found '
      f'{num_classes} for numbers.'
    )
  if split.name == 'natural' and client is None:
    raise ValueError(
      '`partition` must be another than natural for data without `client`, '
      'which says whose each example is: iid, for example, with `num_clients`.'
    )
  for feature, (count, is_counted, _) in classes.items():
    own_classes.warn_of_classes(
      feature, train[feature], test[feature], count, is_counted=is_counted
    )
  if not is_held_out and client_test is None:
    own_arrays.warn_of_shared_examples(train, test)
  partition = split.split(
    own_arrays.labels_to_split_by(train), client, all_clients
  )
  # Made-up clients have examples of anybody.
  whose = partition.client_ids if split.name == 'natural' else client
  return task.Task(
    name=name,
    train=train,
    partition=partition,
    test=test,
    num_classes=features.by_name(
      features.OUTPUT, train, lambda feature: classes.get(feature, [None])[0]
    ),
    source=source,
    test_is_held_out=is_held_out,
    test_is_of_clients=client_test is not None
    and bool(np.isin(client_test.astype(str), whose).any()),
    classes_are_of_clients=any(
      are_of_clients for _, _, are_of_clients in classes.values()
    ),
    has_padding=has_padding,
  )


def check_task(
  found: Any, split: partition_config.PartitionConfig
) -> task.Task:
  """Returns what a user's function made, with a digest, if it is a task.

  Args:
    found: What it returned.
    split: What it was asked for.

  Raises:
    TypeError: If it is no task.
    ValueError: If its arrays cannot be trained on, or its split is another.
  """
  if not isinstance(found, task.Task):
    raise TypeError(
      '`task` must be a function that returns a `tasks.data.task.Task`, found '
      f'{type(found).__name__}.'
    )
  for part, examples in (('train', found.train), ('test', found.test)):
    for feature, array in examples.items():
      name = f'{part}[{feature!r}]'
      checked = (
        own_arrays.check_x(name, array)
        if features.names_of(features.INPUT, [feature])
        else labels.check(name, array, _kind_of(found, feature))
      )
      if array.dtype != checked.dtype:
        raise ValueError(
          f'`{name}` must be {checked.dtype}, found {array.dtype}.'
        )
      if array.shape != checked.shape:
        raise ValueError(
          f'`{name}` must be numbers {list(checked.shape)}, found the shape '
          f'{list(array.shape)}.'
        )
      own_arrays.check_alike(
        *(f'train[{feature!r}]', found.train[feature]),
        *(f'test[{feature!r}]', found.test[feature]),
      )
    for output in found.outputs:
      classes = found.num_classes_of(output)
      feature = features.feature_of(features.OUTPUT, output)
      largest = examples[feature].max()
      if classes is not None and largest >= classes:
        raise ValueError(
          f'`{part}[{feature!r}]` must be below the {classes} classes, found '
          f'{largest}.'
        )
  if split.name not in ('natural', found.partition.name):
    raise ValueError(
      f'`partition` must be what the task was split by, '
      f'{found.partition.name}, found {split.name}.'
    )
  if split.num_clients not in (None, found.num_clients):
    raise ValueError(
      f'`num_clients` must be what the task has, {found.num_clients}, found '
      f'{split.num_clients}.'
    )
  has_padding = padding.decide(
    {
      f'{part}[{feature!r}]': (
        examples.get('x', np.zeros([0])),
        examples[feature],
      )
      for part, examples in (('train', found.train), ('test', found.test))
      for feature in own_arrays.class_features(examples)
    },
    found.has_padding,
  )
  return dataclasses.replace(
    found, digest=found.compute_digest(), has_padding=has_padding
  )


def _kind_of(found: task.Task, feature: str) -> str:
  (output,) = features.names_of(features.OUTPUT, [feature])
  has_classes = found.num_classes_of(output) is not None
  return labels.CLASSES if has_classes else labels.NUMBERS


def _read_file(
  path: pathlib.Path,
  split: partition_config.PartitionConfig,
  kinds: own_arrays.Kinds,
) -> task.Task:
  """Reads the task of a file; its digest is the SHA-256 of the file."""
  if not path.is_file():
    raise data_files.DataError(
      f'`task` must be a file that is there, found {str(path)!r}.'
    )
  try:
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    created = create_task(
      # The client store's folder is called by it.
      re.sub(r'\W+', '_', path.stem),
      split,
      **own_files.read_arrays(path),
      kinds=kinds,
      source=f'{path.name}, SHA-256 {digest}',
    )
  except OSError as e:
    raise data_files.DataError(
      f'{path} cannot be read: {e.strerror or e}.'
    ) from e
  except (TypeError, ValueError) as e:
    if any(f'`{setting}`' in str(e) for setting in _SPLIT_SETTINGS):
      raise
    raise data_files.DataError(f'{path} cannot be used: {e}') from e
  return dataclasses.replace(created, digest=digest)
