"""Files of a user's own data, as arrays.

A `.npz` file has the arrays of `FIELDS`, a `.csv` file a column for each of
`y`, `client` and `is_test` and all others for the features. Of several inputs
or outputs, a `.npz` file has `x_NAME` and `y_NAME` in place of `x` and `y`. A
table has features `x_NAME:FEATURE` for several inputs; of several numbers to
learn it has columns `y_NAME`, which make one row.
"""

import pathlib
import re
import warnings
import zipfile
from typing import Any

import numpy as np

from tasks.data.datasets import data_files, float32
from tff_clipping import id_forms

SUFFIXES = ('.npz', '.csv')
FIELDS = (
  *('x', 'y', 'client', 'x_test', 'y_test', 'client_test'),
  *('all_clients', 'num_classes', 'has_padding'),
)

# Those that may be of several inputs or outputs, the longer names first.
_OF_SEVERAL = ('x_test', 'y_test', 'num_classes', 'x', 'y')
# The columns of a table that are no features.
_COLUMNS = ('y', 'client', 'is_test')
# A feature of one of several inputs.
_OF_AN_INPUT = re.compile(r'x_(\w+):.+')
# What to do with text where there must be numbers.
_TEXT_HINTS = {
  'y': 'Of names of classes, `pandas.factorize(table["y"])[0]` makes numbers.',
  'is_test': 'It is 1 in the rows of the test set, and 0 in the others.',
  'x': (
    'Of categories, `pandas.get_dummies` makes columns of 0 and 1. The column '
    'with the ids of the clients is called `client`.'
  ),
}


def is_file(name: str) -> bool:
  """Returns whether a name is that of such a file, by its suffix."""
  return name.lower().endswith(SUFFIXES)


def read_arrays(path: pathlib.Path) -> dict[str, Any]:
  """Returns what a file holds, by the names of `FIELDS`.

  Of several inputs or outputs, it is a dictionary by their names.

  Args:
    path: A file with one of `SUFFIXES`.

  Raises:
    ValueError: If it is not what its suffix says, or has other arrays.
    OSError: If it cannot be read.
  """
  read = _read_npz if path.suffix.lower() == '.npz' else _read_csv
  return read(path)


def _read_npz(path: pathlib.Path) -> dict[str, Any]:
  """Returns the arrays of a file, by their names."""
  if not zipfile.is_zipfile(path):
    raise ValueError('it is no .npz file, as `numpy.savez` writes it.')
  arrays = {}
  with np.load(path, allow_pickle=False) as file:
    _check_names(file.files)
    if len(set(file.files)) != len(file.files):
      raise ValueError(
        f'it must have each array once, found {", ".join(file.files)}.'
      )
    for name in file.files:
      try:
        arrays[name] = file[name]
      except (ValueError, zipfile.BadZipFile) as e:
        raise ValueError(
          f'`{name}` must be an array of numbers, or of strings for `client`, '
          f'of one shape: {e}. Strings of pandas: `.to_numpy(str)`.'
        ) from e
  return _group(arrays)


def _read_csv(path: pathlib.Path) -> dict[str, Any]:
  """Returns the arrays of a table; `is_test` says which rows are test data."""
  import pandas as pd

  try:
    heading = pd.read_csv(
      path,
      header=None,
      nrows=1,
      dtype=str,
      keep_default_na=False,
      encoding='utf-8-sig',
    )
    _check_heading(heading.iloc[0].tolist())
    table = pd.read_csv(
      path,
      # As it is written: an id may be 01, or NA.
      converters={'client': str},
      skipinitialspace=True,
    )
  except (pd.errors.ParserError, pd.errors.EmptyDataError) as e:
    raise ValueError(f'it is no table with a heading: {e}.') from e
  except UnicodeDecodeError as e:
    raise ValueError(f'it must be text in UTF-8: {e}.') from e
  if table.empty and len(table.columns):
    raise ValueError('it must have rows below its heading, found none.')
  if not isinstance(table.index, pd.RangeIndex):
    raise ValueError('it is no table: its rows are longer than its heading.')
  features = [c for c in table if c not in _COLUMNS]
  unnamed = [c for c in features if str(c).startswith('Unnamed: ')]
  if unnamed:
    place = list(table).index(unnamed[0]) + 1
    raise ValueError(
      f'its columns must have names, found none for column {place}: of a '
      'pandas table, leave out the row numbers, `to_csv(..., index=False)`.'
    )
  # Of several numbers to learn; where there is `y`, they are features.
  outputs = [c for c in features if str(c).startswith('y_')]
  outputs = ['y'] if 'y' in table else outputs
  features = [c for c in features if c not in outputs]
  if not outputs or not features:
    raise ValueError(
      'it must have the columns `y` and at least one feature, with commas '
      f'between them, found {", ".join(map(str, table))}.'
    )
  for column in (*outputs, *features, 'client', 'is_test'):
    if column not in table:
      continue
    missing = (table[column].isna() | (table[column] == '')).to_numpy()
    if missing.any():
      row = int(missing.argmax())
      raise ValueError(
        f'`{column}` must have a value in every row, found none in row '
        f'{row + 1} of the data.'
      )
    if column != 'client' and table[column].dtype.kind not in 'biuf':
      raise ValueError(
        f'`{column}` must be numbers, found {table[column].iloc[0]!r}. '
        + _TEXT_HINTS.get(column, _TEXT_HINTS['x'])
      )
    if table[column].dtype.kind == 'f':
      with np.errstate(over='ignore'):
        finite = np.isfinite(table[column].to_numpy(np.float32))
      if not finite.all():
        row = int(finite.argmin())
        raise ValueError(
          f'`{column}` must be finite in float32, found '
          f'{table[column].iloc[row]} in row {row + 1} of the data.'
        )
  inputs = _group_features(features)
  x = {name: _stack(table, columns) for name, columns in inputs.items()}
  y = (
    table['y'].to_numpy()
    if 'y' in table
    else table[outputs].to_numpy(np.float64)
  )
  client = table['client'].to_numpy(str) if 'client' in table else None
  if client is None:
    warnings.warn(
      'The table has no column `client`, which says whose each example is: its '
      f'features are {", ".join(map(str, features))}.',
      data_files.DataWarning,
      stacklevel=2,
    )
  if 'is_test' not in table:
    return dict(x=_of_one(x), y=y, client=client)
  is_test = table['is_test'].to_numpy()
  if not np.isin(is_test, (0, 1)).all() or len(np.unique(is_test)) != 2:
    raise ValueError(
      '`is_test` must be 1 in the rows of the test set and 0 in the others, '
      f'found {", ".join(map(str, np.unique(is_test)[:3]))}.'
    )
  test = is_test.astype(bool)
  return dict(
    x=_of_one({name: rows[~test] for name, rows in x.items()}),
    y=y[~test],
    client=None if client is None else client[~test],
    x_test=_of_one({name: rows[test] for name, rows in x.items()}),
    y_test=y[test],
    client_test=None if client is None else client[test],
  )


def _group_features(features: list[str]) -> dict[str, list[str]]:
  """Returns the features of each input; of a single one, under ''."""
  inputs: dict[str, list[str]] = {}
  for feature in features:
    found = _OF_AN_INPUT.fullmatch(str(feature))
    inputs.setdefault(found[1] if found else '', []).append(feature)
  if '' in inputs and len(inputs) > 1:
    raise ValueError(
      'all of its features must be `x_NAME:FEATURE` where there are several '
      f'inputs, found `{inputs[""][0]}`.'
    )
  return inputs


def _of_one(inputs: dict[str, np.ndarray]) -> Any:
  """Returns the array of a single input, or the dictionary."""
  return inputs.get('', inputs)


def _stack(table: Any, columns: list[str]) -> np.ndarray:
  """Returns columns side by side, in float32."""
  return np.stack(
    [
      float32.convert(
        table[column].to_numpy(), lambda _, name=column: f'`{name}`'
      )
      for column in columns
    ],
    axis=1,
  )


def _check_heading(found: list[str]) -> None:
  """Raises if a column that is no feature has its name in another writing.

  Also one that pandas has numbered: it is there twice.
  """
  named: list[str] = []
  for name in found:
    form = re.sub(r'[\W_]+', '', id_forms.normal_form(name)).casefold()
    form = re.sub(r'(?<=\D)\d+$', '', form) if '.' in name else form
    for column in _COLUMNS:
      if form != column.replace('_', ''):
        continue
      if name.lstrip(' ') != column:
        raise ValueError(
          f'its columns must not be called {name!r}, which is {column!r} in '
          'another writing. Write it so, or give the feature another name.'
        )
      if column in named:
        raise ValueError(f'it must have the column {column!r} once.')
      named.append(column)


def _group(arrays: dict[str, np.ndarray]) -> dict[str, Any]:
  """Returns arrays with those of several inputs and outputs together."""
  grouped: dict[str, Any] = {}
  for name, array in arrays.items():
    field, part = _field_of(name)
    if part is None:
      grouped[field] = array
    else:
      grouped.setdefault(field, {})[part] = array
  return grouped


def _field_of(name: str) -> tuple[str, str | None]:
  """Returns which of `FIELDS` an array is of, and of which input or output."""
  if name not in FIELDS:
    for field in _OF_SEVERAL:
      prefix, _, suffix = field.partition('_test')
      suffix = '_test' if field.endswith('_test') else suffix
      part = name.removeprefix(f'{prefix}_').removesuffix(suffix)
      if f'{prefix}_{part}{suffix}' == name and part.isidentifier():
        return field, part
  return name, None


def _check_names(found: list[str]) -> None:
  """Raises unless a file has arrays of `FIELDS` alone, `x` and `y` of them."""
  fields = [_field_of(name) for name in found]
  known = {field for field, _ in fields}
  wrong = known - set(FIELDS)
  twice = [field for field, part in fields if part and (field, None) in fields]
  if wrong or twice or not {'x', 'y'} <= known:
    raise ValueError(
      'it must have the arrays `x` and `y`, and may have '
      f'{", ".join(FIELDS[2:])}, found {", ".join(found) or "none"}. Several '
      'inputs or outputs are x_NAME or y_NAME in place of `x` or `y`.'
    )
