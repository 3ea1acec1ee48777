"""Data as arrays, a .npz or .csv file, or a user's function."""

import collections
import functools
import pathlib
import re
import zipfile
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from tasks.checks import check
from tasks.data import client_ids
from tasks.data.partitions import PartitionConfig
from tasks.data.task import Task, warn
from tff_clipping import argument_checks, id_forms

CLASSES = 'classes'
"""Labels from 0: int32 [n]; or [n, length], one for each position."""

NUMBERS = 'numbers'
"""Labels that are measured: float32 [n, ...], at least [n, 1]."""

AS_GIVEN = 'as_given'
"""Integers are classes, and other labels are numbers."""

SUFFIXES = ('.npz', '.csv')

_ARRAYS = (
  *('x', 'y', 'client', 'x_test', 'y_test', 'client_test'),
  *('all_clients', 'num_classes', 'has_padding'),
)
# The columns of a table that are no features.
_COLUMNS = ('y', 'client', 'is_test')
# Of data without a test set, one example in so many is held out.
_HELD_OUT = 10
_HELD_OUT_SEED = 0
# The share of test examples that may be among the clients' by chance.
_SHARED_SHARE = 0.1
# Beyond, float32 does not have all whole numbers; beyond the second, a number
# of float64 is whole by its size.
_ALL_APART, _ALL_WHOLE = 2**24, 2**53
_INT32 = np.iinfo(np.int32)


def create_task(
  name: str,
  split: PartitionConfig,
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
  kinds: str = CLASSES,
  source: str = 'arrays',
) -> Task:
  """Makes a task of arrays, of which docs/data.md says what they hold.

  The examples of held-out clients are the test set, in place of a given one.
  Without either, a tenth of the examples, drawn at random but always the same,
  is held out. These are clients' data: a private run refuses them.

  Args:
    name: What the task is called.
    split: How to split the training examples over clients; 'natural' is by
      `client`.
    x: [n, ...] numbers.
    y: [n, ...], what `kinds` says.
    client: [n], whose example each is; see `client_ids`.
    x_test: [m, ...], of the shape of `x`; given with `y_test`.
    y_test: As `y`, [m, ...].
    client_test: [m], as `client`; not given where no test example is of a
      client of the training set.
    all_clients: [k], the ids of `client` and of clients without an example.
    num_classes: One more than the largest label of all by default.
    has_padding: Whether 0 in rows of classes fills short rows up.
    kinds: What `y` is: `CLASSES`, `NUMBERS` or `AS_GIVEN`.
    source: One line on where the examples come from.

  Raises:
    TypeError: If `split` is no `PartitionConfig`.
    ValueError: If the arrays are not like this, or do not fit together.
  """
  if not isinstance(split, PartitionConfig):
    raise TypeError(
      '`split` must be a `PartitionConfig`, for example '
      f"PartitionConfig('natural'), found {split!r}."
    )
  given = dict(client=client, x_test=x_test, y_test=y_test)
  for argument, value, needed in (
    ('x_test', x_test, ['y_test']),
    ('y_test', y_test, ['x_test']),
    ('client_test', client_test, ['client', 'x_test']),
    ('all_clients', all_clients, ['client']),
  ):
    missing = [name for name in needed if given[name] is None]
    holds = value is None or not missing
    must = f'must be given with {" and ".join(needed)}'
    check(argument, holds, must, f'no {" and ".join(missing)}')
  train = _convert('', x, y, client, kinds)
  test = None
  if x_test is not None:
    test = _convert('_test', x_test, y_test, client_test, kinds)
  is_held_out = test is None and split.held_out_clients is None
  if is_held_out:
    train, test = _hold_out(train)
  if all_clients is not None:
    all_clients = client_ids.check('all_clients', all_clients)
    others = sorted({*train.client.tolist()} - {*all_clients.tolist()})
    must = 'must have each id of `client`, as there'
    is_kind = all_clients.dtype.kind == train.client.dtype.kind
    check('all_clients', is_kind and not others, must, f'none of {others[:3]}')
  client_ids.check_all(
    train.client, all_clients, None if test is None else test.client
  )
  # Labels that are no classes have nothing that a partition could deal by.
  partition = split.split(train.y, train.client, all_clients)
  if split.held_out_clients is not None:
    # Test examples of clients are what this replaces.
    if test is not None and not _is_of(test, train.client):
      warn(
        f'The given test set of {len(test.x)} examples is not used: the test '
        'set is that of `held_out_clients`.'
      )
    test = train.take(partition.held_out)
  elif not is_held_out and client_test is None:
    _warn_of_shared_examples(train, test)
  are_of_clients = False
  if num_classes is not None:
    # A file has arrays without dimensions.
    num_classes = argument_checks.check_integer(
      'num_classes', np.asarray(num_classes)[()]
    )
    must = 'must not be given for a `loss` of numbers, which are no classes'
    check('num_classes', train.y.dtype.kind == 'i', must, num_classes)
  elif train.y.dtype.kind == 'i':
    num_classes = int(max(train.y.max(), test.y.max())) + 1
    are_of_clients = bool(test.y.max() + 1 < num_classes)
  if has_padding is not None:
    has_padding = np.asarray(has_padding)[()]
  # Made-up clients have examples of anybody.
  whose = partition.client_ids if split.name == 'natural' else train.client
  return Task(
    name=name,
    train=collections.OrderedDict(x=train.x, y=train.y),
    partition=partition,
    test=collections.OrderedDict(x=test.x, y=test.y),
    num_classes=num_classes,
    source=source,
    test_is_held_out=is_held_out,
    test_is_of_clients=client_test is not None and _is_of(test, whose),
    classes_are_of_clients=are_of_clients,
    has_padding=has_padding,
  )


def check_task(found: Any, split: PartitionConfig) -> Task:
  """Returns what a user's function made, if it is a task of this split.

  Raises:
    TypeError: If it is no task.
    ValueError: If it has numbers that are not finite, or another split.
  """
  if not isinstance(found, Task):
    raise TypeError(
      '`task` must be a function that returns a `tasks.data.task.Task`, found '
      f'{type(found).__name__}.'
    )
  # An update that is not finite would count as zero, in silence.
  for part, examples in (('train', found.train), ('test', found.test)):
    for feature, array in examples.items():
      if array.dtype == np.float32:
        _to_float32(f'{feature} of {part}', array)
  by_default = PartitionConfig('natural').settings
  for argument, asked in split.settings.items():
    has = found.split_settings[argument]
    must = f'must be what the task was split by, {has}'
    check(argument, asked in (by_default[argument], has), must, asked)
  return found


def read_file(path: pathlib.Path) -> dict[str, Any]:
  """Returns the arrays of a file, by the names that `create_task` takes.

  It is a .npz file of these arrays; or a .csv file with the columns `y`,
  `client` and `is_test` (1 in the rows of the test set), and a column for each
  feature.

  Raises:
    ValueError: If there is no such file, or it does not hold what it should.
  """
  check('task', path.is_file(), 'must be a file that is there', f'no {path}')
  if path.suffix.lower() == '.csv':
    try:
      return _read_csv(path)
    except (OSError, ValueError) as e:
      raise ValueError(f'{path} cannot be read: {e}') from e
  found = read_npz(path)
  if not {'x', 'y'} <= set(found) <= set(_ARRAYS):
    raise ValueError(
      f'{path} must have the arrays `x` and `y`, may have '
      f'{", ".join(_ARRAYS[2:])}, found {", ".join(found) or "none"}.'
    )
  return found


def read_npz(path: pathlib.Path) -> dict[str, np.ndarray]:
  """Returns the arrays of a .npz file, read without pickles.

  Raises:
    ValueError: If it cannot be read.
  """
  if not zipfile.is_zipfile(path):
    raise ValueError(f'{path} is no .npz file, as `numpy.savez` writes it.')
  try:
    with np.load(path, allow_pickle=False) as file:
      if len(set(file.files)) < len(file.files):
        raise ValueError(f'it has two arrays of one name, {file.files}')
      return {name: file[name] for name in file.files}
  except (OSError, ValueError, EOFError, zipfile.BadZipFile) as e:
    raise ValueError(f'{path} cannot be read: {e}') from e


def _read_csv(path: pathlib.Path) -> dict[str, Any]:
  """Returns the arrays of a table."""
  read = functools.partial(pd.read_csv, path, encoding='utf-8-sig')
  # As the heading is written: pandas numbers columns of one name.
  heading = read(header=None, nrows=1, dtype=str, keep_default_na=False)
  _check_heading(heading.iloc[0].tolist())
  # An id as it is written: 01, or NA.
  table = read(converters={'client': str}, skipinitialspace=True)
  if not isinstance(table.index, pd.RangeIndex):
    raise ValueError('its rows must not be longer than its heading.')
  features = [c for c in table if c not in _COLUMNS]
  if 'y' not in table or not features or table.empty:
    raise ValueError(
      'it must have rows with the columns `y` and at least one feature, found '
      f'{len(table)} with {", ".join(table)}.'
    )
  for column, values in table.items():
    missing = (values.isna() | (values == '')).to_numpy()
    found = f'none in row {missing.argmax() + 1} of the data'
    check(column, not missing.any(), 'must have a value in every row', found)
    if column != 'client' and values.dtype.kind not in 'biuf':
      row = pd.to_numeric(values, errors='coerce').isna().to_numpy().argmax()
      raise ValueError(
        f'`{column}` must be numbers, as all but the ids of clients, `client`, '
        f'found {values.iloc[row]!r} in row {row + 1} of the data.'
      )
  x = [_to_float32(c, table[c].to_numpy()) for c in features]
  arrays = dict(x=np.stack(x, axis=1), y=table['y'].to_numpy())
  if 'client' in table:
    arrays['client'] = table['client'].to_numpy(str)
  # A column of another name, or of a misspelt one, is a feature.
  lacking = [f'`{c}`' for c in ('client', 'is_test') if c not in table]
  if lacking:
    shown = features
    if len(features) > 20:
      shown = [*features[:10], '...', *features[-10:]]
    warn(
      f'The table has no column {" and no ".join(lacking)}; its features are '
      f'{", ".join(shown)}.',
    )
  if 'is_test' not in table:
    return arrays
  is_test = table['is_test'].to_numpy()
  values = np.unique(is_test).tolist()
  must = 'must be 1 in the rows of the test set and 0 in the others'
  check('is_test', values == [0, 1], must, values[:3])
  train = {name: array[is_test == 0] for name, array in arrays.items()}
  test = {f'{name}_test': a[is_test == 1] for name, a in arrays.items()}
  return train | test


def _check_heading(found: list[str]) -> None:
  """Raises unless each column has a name, and `_COLUMNS` are written so, once.

  None of them may become a feature by its writing, nor by being there twice.
  """
  # 'y.1' is how pandas writes a second 'y'.
  short = [
    re.sub(r'[\W_]+|(?<=\.)\d+$', '', id_forms.normal_form(name)).casefold()
    for name in found
  ]
  if '' in map(id_forms.normal_form, found):
    raise ValueError(
      'its columns must have names, found one without. A pandas table without '
      'its row numbers: `to_csv(..., index=False)`.'
    )
  for column in _COLUMNS:
    same = [
      name
      for name, form in zip(found, short, strict=True)
      if form == column.replace('_', '')
    ]
    if len(same) > 1 or (same and same[0].lstrip(' ') != column):
      raise ValueError(
        f'its column {column!r} must be written so, and be there once, found '
        f'{", ".join(map(repr, same))}.'
      )


class _Part(NamedTuple):
  """The training examples, or the test examples."""

  x: np.ndarray
  y: np.ndarray
  client: np.ndarray | None

  def take(self, rows: np.ndarray) -> '_Part':
    return _Part(*(None if a is None else a[rows] for a in self))


def _convert(suffix: str, x: Any, y: Any, client: Any, kinds: str) -> _Part:
  """Returns a part in the types that are trained on."""
  part = _Part(
    _convert_x(f'x{suffix}', np.asarray(x)),
    _convert_y(f'y{suffix}', np.asarray(y), kinds),
    None if client is None else client_ids.check(f'client{suffix}', client),
  )
  for name, array in (('y', part.y), ('client', part.client)):
    size = len(part.x) if array is None else len(array)
    must = f'must have as many examples as `x{suffix}`, {len(part.x)}'
    check(f'{name}{suffix}', size == len(part.x), must, size)
  return part


def _convert_x(name: str, x: np.ndarray) -> np.ndarray:
  """Returns examples as uint8, int32 or float32."""
  are_numbers = x.ndim > 1 and x.size and x.dtype.kind in 'biuf'
  must = 'must be numbers [examples, ...] of at least one example'
  check(name, are_numbers, must, f'{x.dtype}{list(x.shape)}')
  if x.dtype == np.uint8:
    return x
  # Whole numbers become float32 in the first layer of most models.
  converted = _to_float32(name, x)
  return converted if x.dtype.kind == 'f' else _to_int32(name, x)


def _convert_y(name: str, y: np.ndarray, kinds: str) -> np.ndarray:
  """Returns classes as int32, and numbers as float32."""
  if kinds == AS_GIVEN:
    kinds = CLASSES if y.dtype.kind in 'iu' else NUMBERS
  are_numbers = y.ndim and y.size and y.dtype.kind in 'biuf'
  must = (
    'must be numbers [examples, ...]; of names of classes, `numpy.unique(y, '
    'return_inverse=True)[1]`'
  )
  check(name, are_numbers, must, f'{y.dtype}{list(y.shape)}')
  if kinds == NUMBERS:
    # As models give them: a loss of a user's own broadcasts nothing.
    return _to_float32(name, y[:, None] if y.ndim == 1 else y)
  if y.dtype.kind not in 'iu':
    raise ValueError(
      f'`{name}` must be integers, the classes from 0, found {y.dtype}, for '
      f'example {y.flat[np.argmax(y != np.floor(y))]}. Whole numbers of '
      'another type: `.astype(int)`. Numbers are learned with a `loss` for '
      'numbers, such as mean_squared_error.'
    )
  check(name, y.min() >= 0, 'must be classes from 0', y.min())
  return _to_int32(name, y)


def _to_int32(name: str, array: np.ndarray) -> np.ndarray:
  """Returns integers as int32; raises if one does not fit."""
  least, most = array.min(), array.max()
  fits = least >= _INT32.min and most <= _INT32.max
  check(name, fits, 'must fit into int32', f'{least} to {most}')
  return array.astype(np.int32, copy=False)


def _to_float32(name: str, array: np.ndarray) -> np.ndarray:
  """Returns finite float32; warns of whole numbers that lose digits."""
  with np.errstate(over='ignore', invalid='ignore'):
    converted = array.astype(np.float32, copy=False)
  if not np.isfinite(converted).all():
    place = tuple(np.argwhere(~np.isfinite(converted))[0].tolist())
    raise ValueError(
      f'`{name}` must be finite in float32, found {array[place]} at '
      f'{list(place)}.'
    )
  is_large = (array > _ALL_APART) | (array < -_ALL_APART)
  if array.dtype.kind == 'f' and is_large.any():
    is_large &= (abs(array) < _ALL_WHOLE) & (array == np.floor(array))
  places = np.argwhere(is_large)
  # Wide enough for every integer.
  given, found = (a[is_large].astype(np.longdouble) for a in (array, converted))
  if (given != found).any():
    first = (given != found).argmax()
    warn(
      f'`{name}` should be whole numbers up to 2**24, as float32 has them: '
      f'{int(given[first])} at {places[first].tolist()} becomes '
      f'{int(found[first])}. Leave ids out; from large numbers, subtract one '
      'that they have in common.',
    )
  return converted


def _hold_out(part: _Part) -> tuple[_Part, _Part]:
  """Returns the examples to train on, and those that are held out."""
  num_examples = len(part.x)
  must = 'must have at least 2 examples, one of which is held out'
  check('x', num_examples > 1, must, num_examples)
  order = np.random.default_rng(_HELD_OUT_SEED).permutation(num_examples)
  num_test = max(1, num_examples // _HELD_OUT)
  return (
    part.take(np.sort(order[num_test:])),
    part.take(np.sort(order[:num_test])),
  )


def _is_of(part: _Part, ids: Any) -> bool:
  """Returns whether an example is of a client with one of these ids."""
  if part.client is None:
    return False
  return bool(np.isin(part.client.astype(str), np.asarray(ids, str)).any())


def _warn_of_shared_examples(train: _Part, test: _Part) -> None:
  """Warns of a test set that no client has, but looks like clients' examples.

  No more than a warning: that a client has an example like a public one must
  not show in the files of a private run.
  """
  seen, tested = (
    [
      hash(x.tobytes() + y.tobytes())
      for x, y in zip(part.x, part.y, strict=True)
    ]
    for part in (train, test)
  )
  counts = collections.Counter(seen)
  # What is there more than once is of few different values, by chance.
  shared = sum(counts[example] == 1 for example in tested)
  if shared > _SHARED_SHARE * len(tested):
    warn(
      f'`x_test` has {shared} of its {len(tested)} examples in common with '
      '`x`. If they are of the same people, give `client_test`: what a private '
      'run measures on them is not private.',
    )
