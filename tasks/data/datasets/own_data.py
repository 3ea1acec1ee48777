"""Data of a user's own: arrays, those of a file, or what a function returns.

docs/data.md says in full what they may hold. Nothing here needs TensorFlow.
"""

import collections
import dataclasses
import hashlib
import pathlib
import re
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

from tasks.data import task
from tasks.data.datasets import (
  data_files,
  float32,
  own_clients,
  own_files,
  padding,
)
from tasks.data.partitions import partition_config
from tasks.settings import named_functions
from tff_clipping import argument_checks

# Of data without a test set, the examples that are held out: one in so many.
_HELD_OUT = 10
_HELD_OUT_SEED = 0
# The share of test examples that may be among the clients' by chance.
_SHARED_SHARE = 0.1
# An error that names one of these is of a flag, and not of the file.
_SPLIT_SETTINGS = ('partition', 'num_clients', 'examples_per_client')
_INT32 = np.iinfo(np.int32)


def is_own(name: str) -> bool:
  """Returns whether `--task` is a file or a function, and none of ours."""
  return own_files.is_file(name) or named_functions.is_function_name(name)


def create_named_task(
  name: str, split: partition_config.PartitionConfig
) -> task.Task:
  """Creates the task of a file or a function.

  Args:
    name: A path that ends in .npz or .csv; or `module:function` or
      `FILE.py:function`, of a function that takes `split` and returns a
      `tasks.data.task.Task`, for example by `create_task`.
    split: How to split the training examples over clients.

  Raises:
    ValueError: If there is no such file or function.
    data_files.DataError: If a file does not hold what it should.
    TypeError: If the function returns something else.
  """
  if own_files.is_file(name):
    return _read_file(pathlib.Path(name).expanduser(), split)
  function = named_functions.load_function('task', name)
  return check_task(
    named_functions.call('task', function, '(split)', split), split
  )


def create_task(
  name: str,
  split: partition_config.PartitionConfig,
  *,
  x: np.ndarray,
  y: np.ndarray,
  client: np.ndarray | None = None,
  x_test: np.ndarray | None = None,
  y_test: np.ndarray | None = None,
  client_test: np.ndarray | None = None,
  all_clients: np.ndarray | None = None,
  num_classes: int | None = None,
  has_padding: bool | None = None,
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
      floating-point numbers float32.
    y: int [n], the classes from 0; or [n, length], a label for each position.
    client: [n], whose example each is: whole numbers from 0, or strings; see
      `own_clients`.
    x_test: [m, ...], of the shape of `x`; given with `y_test`.
    y_test: int [m].
    client_test: [m], whose example each is, as `client`; not given where they
      are nobody's of these clients.
    all_clients: [k], the ids of `client` and of those who are there without an
      example; they count as clients of the natural partition.
    num_classes: One more than the largest label of all by default; given for a
      private run, unless the test set has that label.
    has_padding: Whether 0 in rows of labels fills them up, and does not count;
      not needed where no label is 0, or `x` is 0 where `y` is, at the ends of
      rows alone.
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
  x, y = _check_x('x', x), _check_y('y', y)
  _check_lengths('x', x, 'y', y)
  if client is not None:
    client = own_clients.check('client', client)
    _check_lengths('x', x, 'client', client)
  if (x_test is None) != (y_test is None):
    raise ValueError('`x_test` and `y_test` must be given together.')
  if client_test is not None:
    if client is None or x_test is None:
      raise ValueError(
        '`client_test` must be given with `client` and `x_test`, found it '
        'without.'
      )
    client_test = own_clients.check('client_test', client_test)
    _check_lengths('x_test', np.asarray(x_test), 'client_test', client_test)
  if all_clients is not None:
    if client is None:
      raise ValueError('`all_clients` must be given with `client`.')
    all_clients = own_clients.check('all_clients', all_clients)
    if all_clients.dtype.kind != client.dtype.kind or not set(
      client.tolist()
    ) <= set(all_clients.tolist()):
      raise ValueError('`all_clients` must have each id of `client`, as there.')
  if client is not None:
    own_clients.check_all(
      client if all_clients is None else all_clients, client_test
    )
  if x_test is None:
    train, test = _held_out_rows(len(y))
    x_test, y_test = x[test], y[test]
    x, y = x[train], y[train]
    client = None if client is None else client[train]
    is_held_out = True
  else:
    x_test, y_test = _check_x('x_test', x_test), _check_y('y_test', y_test)
    _check_lengths('x_test', x_test, 'y_test', y_test)
    is_held_out = False
    _check_alike('x', x, 'x_test', x_test)
    _check_alike('y', y, 'y_test', y_test)
  has_padding = padding.decide(
    dict(y=(x, y), y_test=(x_test, y_test)),
    None if has_padding is None else np.asarray(has_padding)[()],
  )
  largest = int(max(y.max(), y_test.max()))
  classes_are_of_clients = num_classes is None and y_test.max() < largest
  is_counted = num_classes is None
  if is_counted:
    num_classes = largest + 1
  else:
    num_classes = argument_checks.check_integer(
      # A file has an array without dimensions.
      *('num_classes', np.asarray(num_classes)[()])
    )
  if num_classes < 2:
    raise ValueError(
      '`y` must have at least two classes, found only 0 (`num_classes` '
      f'{num_classes}).'
    )
  if largest >= num_classes:
    raise ValueError(
      f'`y` must be below `num_classes`, {num_classes}, found {largest}.'
    )
  if split.name == 'natural' and client is None:
    raise ValueError(
      '`partition` must be another than natural for data without `client`, '
      'which says whose each example is: iid, for example, with `num_clients`.'
    )
  _warn_of_classes(y, y_test, num_classes, is_counted=is_counted)
  if not is_held_out and client_test is None:
    _warn_of_shared_examples((x, y), (x_test, y_test))
  partition = split.split(y, client, all_clients)
  # Made-up clients have examples of anybody.
  whose = partition.client_ids if split.name == 'natural' else client
  return task.Task(
    name=name,
    train=collections.OrderedDict(x=x, y=y),
    partition=partition,
    test=collections.OrderedDict(x=x_test, y=y_test),
    num_classes=num_classes,
    source=source,
    test_is_held_out=is_held_out,
    test_is_of_clients=client_test is not None
    and bool(np.isin(client_test.astype(str), whose).any()),
    classes_are_of_clients=bool(classes_are_of_clients),
    has_padding=has_padding,
  )


def _warn_of_classes(
  y: np.ndarray, y_test: np.ndarray, num_classes: int, *, is_counted: bool
) -> None:
  """Warns of labels that nothing learns; tokens are never all there."""
  if y.ndim > 1:
    return
  trained = np.unique(y)
  if trained[0] > 0:
    warnings.warn(
      '`y` has no example of class 0, and the model has an output for each of '
      f'{num_classes} classes. If yours count from 1, subtract 1.',
      data_files.DataWarning,
      stacklevel=3,
    )
  if is_counted and 2 * len(trained) < num_classes:
    warnings.warn(
      f'`y` has examples of {len(trained)} of {num_classes} classes, and the '
      'model has an output for each. `numpy.searchsorted(numpy.unique(y), '
      '...)` of `y` and of `y_test` numbers those that `y` has.',
      data_files.DataWarning,
      stacklevel=3,
    )
  unknown = np.setdiff1d(y_test, trained)
  if unknown.size:
    warnings.warn(
      f'`y_test` has examples of class {unknown[0]}, and `y` has none: the '
      'model cannot learn it.',
      data_files.DataWarning,
      stacklevel=3,
    )


def _warn_of_shared_examples(
  train: tuple[np.ndarray, np.ndarray], test: tuple[np.ndarray, np.ndarray]
) -> None:
  """Warns of a test set that is nobody's, but looks like clients' examples.

  No more than a warning: that a client has an example like a public one must
  not show in the files of a private run.
  """
  tests = list(_each_example(*test))
  wanted = frozenset(tests)
  found = collections.Counter(
    example for example in _each_example(*train) if example in wanted
  )
  # What is there more than once is of few different values, by chance.
  shared = sum(found[example] == 1 for example in tests)
  if shared > _SHARED_SHARE * len(tests):
    warnings.warn(
      f'`x_test` has {shared} of its {len(tests)} examples in common with `x`. '
      'If they are the same people, `client_test` has to say so: what a '
      'private run measures on them is not private.',
      data_files.DataWarning,
      stacklevel=3,
    )


def _each_example(x: np.ndarray, y: np.ndarray) -> Iterator[bytes]:
  for inputs, label in zip(x, y, strict=True):
    yield inputs.tobytes() + label.tobytes()


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
    for key, check in (('x', _check_x), ('y', _check_y)):
      array = examples[key]
      checked = check(f'{part}[{key!r}]', array)
      if array.dtype != checked.dtype:
        raise ValueError(
          f'`{part}[{key!r}]` must be {checked.dtype}, found {array.dtype}.'
        )
    if examples['y'].max() >= found.num_classes:
      raise ValueError(
        f"`{part}['y']` must be below the {found.num_classes} classes, found "
        f'{examples["y"].max()}.'
      )
  for key in ('x', 'y'):
    _check_alike(
      *(f'train[{key!r}]', found.train[key]),
      *(f'test[{key!r}]', found.test[key]),
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
      f"{part}['y']": (examples['x'], examples['y'])
      for part, examples in (('train', found.train), ('test', found.test))
    },
    found.has_padding,
  )
  return dataclasses.replace(
    found, digest=found.compute_digest(), has_padding=has_padding
  )


def _read_file(
  path: pathlib.Path, split: partition_config.PartitionConfig
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


def _check_x(name: str, array: Any) -> np.ndarray:
  array = np.asarray(array)
  if array.ndim < 2 or not array.size or array.dtype.kind not in 'biuf':
    hint = ' `x[:, None]` makes two dimensions of one.'
    raise ValueError(
      f'`{name}` must be numbers of the shape [examples, ...], of at least one '
      f'example, found {array.dtype}{list(array.shape)}.'
      f'{hint if array.ndim == 1 else ""}'
    )
  if array.dtype == np.uint8:
    return array
  given = array
  # Whole numbers become float32 in the first layer of most models.
  array = float32.convert(
    given, lambda place: f'`{name}[:, {", ".join(map(str, place))}]`'
  )
  if given.dtype.kind == 'f':
    if not np.isfinite(array).all():
      place = np.argwhere(~np.isfinite(array))[0]
      raise ValueError(
        f'`{name}` must be finite in float32, found {given[tuple(place)]} at '
        f'`{name}{place.tolist()}`.'
      )
    return array
  return _to_int32(name, given)


def _is_one_hot(array: np.ndarray) -> bool:
  return array.dtype.kind in 'biuf' and bool(
    np.isin(array, (0, 1)).all() and np.all(array.sum(axis=1) == 1)
  )


def _check_y(name: str, array: Any) -> np.ndarray:
  array = np.asarray(array)
  if array.ndim not in (1, 2) or not array.size:
    raise ValueError(
      f'`{name}` must be labels [examples] or [examples, length], '
      f'found the shape {list(array.shape)}.'
    )
  if array.ndim == 2 and array.shape[1] > 1 and _is_one_hot(array):
    raise ValueError(
      f'`{name}` must be labels [examples], found a row of 0 with one 1 for '
      'each example: `.argmax(axis=1)` makes labels of it.'
    )
  if array.dtype.kind not in 'iu':
    raise ValueError(
      f'`{name}` must be integers, the classes from 0, found {array.dtype}, '
      f'for example {_not_whole(array)!r}. Names of classes: `numpy.unique(y, '
      'return_inverse=True)[1]`; whole numbers of another type: '
      '`.astype(int)`. A regression takes a program of your own: '
      'docs/recipes.md.'
    )
  if array.ndim == 2 and array.shape[1] == 1:
    raise ValueError(
      f'`{name}` must be labels [examples], found the shape '
      f'{list(array.shape)}: `.ravel()` makes it so.'
    )
  if array.min() < 0:
    raise ValueError(f'`{name}` must be classes from 0, found {array.min()}.')
  return _to_int32(name, array)


def _not_whole(array: np.ndarray) -> Any:
  """Returns the first number that is not whole, or the first of all."""
  if array.dtype.kind == 'f':
    found = array[array != np.floor(array)]
    if found.size:
      return found.flat[0]
  return array.flat[0]


def _to_int32(name: str, array: np.ndarray) -> np.ndarray:
  if array.min() < _INT32.min or array.max() > _INT32.max:
    raise ValueError(
      f'`{name}` must fit into int32, found {array.min()} to {array.max()}.'
    )
  return array.astype(np.int32, copy=False)


def _check_lengths(name: str, a: np.ndarray, other: str, b: np.ndarray) -> None:
  if len(a) != len(b):
    raise ValueError(
      f'`{name}` and `{other}` must have as many examples, found {len(a)} and '
      f'{len(b)}.'
    )


def _check_alike(name: str, a: np.ndarray, other: str, b: np.ndarray) -> None:
  if a.shape[1:] != b.shape[1:] or a.dtype != b.dtype:
    raise ValueError(
      f'`{other}` must hold examples like those of `{name}`, '
      f'{a.dtype}{list(a.shape[1:])}, found {b.dtype}{list(b.shape[1:])}.'
    )


def _held_out_rows(num_examples: int) -> tuple[np.ndarray, np.ndarray]:
  """Returns the rows to train on, and those that are held out, in order."""
  if num_examples < 2:
    raise ValueError(
      '`x` must have at least 2 examples, one of which is held out, found '
      f'{num_examples}.'
    )
  order = np.random.default_rng(_HELD_OUT_SEED).permutation(num_examples)
  num_test = max(1, num_examples // _HELD_OUT)
  return np.sort(order[num_test:]), np.sort(order[:num_test])
