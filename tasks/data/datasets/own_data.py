"""Data of a user's own: arrays, those of a file, or what a function returns.

docs/data.md says in full what they may hold. Nothing here needs TensorFlow.
"""

import collections
import dataclasses
import hashlib
import pathlib
import re
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from tasks.data import features, task
from tasks.data.datasets import (
  data_files,
  float32,
  labels,
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

Kinds = str | Mapping[str | None, str]
"""What labels are: of all outputs, or by their names."""


def is_own(name: str) -> bool:
  """Returns whether `--task` is a file or a function, and none of ours."""
  return own_files.is_file(name) or named_functions.is_function_name(name)


def create_named_task(
  name: str,
  split: partition_config.PartitionConfig,
  kinds: Kinds = labels.CLASSES,
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
  kinds: Kinds = labels.CLASSES,
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
  train = _check_part(x, y, kinds)
  size = _check_lengths(train)
  if client is not None:
    client = own_clients.check('client', client)
    _check_length(train, 'client', client)
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
    kept, held_out = _held_out_rows(size)
    test = _take(train, held_out)
    train = _take(train, kept)
    client = None if client is None else client[kept]
  else:
    test = _check_part(x_test, y_test, kinds, suffix='_test')
    _check_lengths(test, suffix='_test')
    if client_test is not None:
      client_test = own_clients.check('client_test', client_test)
      _check_length(test, 'client_test', client_test, suffix='_test')
    if list(train) != list(test):
      raise ValueError(
        f'the test set must have the features {", ".join(train)}, found '
        f'{", ".join(test)}.'
      )
    for feature, array in train.items():
      _check_alike(feature, array, f'{feature}_test', test[feature])
  if client is not None:
    own_clients.check_all(
      client if all_clients is None else all_clients, client_test
    )
  has_padding = padding.decide(
    {
      f'{feature}{suffix}': (part.get('x', np.zeros([0])), part[feature])
      for suffix, part in (('', train), ('_test', test))
      for feature in _class_features(train)
    },
    None if has_padding is None else np.asarray(has_padding)[()],
  )
  classes = {
    feature: _count_classes(
      feature, train[feature], test[feature], _num_of(feature, num_classes)
    )
    for feature in _class_features(train)
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
    _warn_of_classes(
      feature, train[feature], test[feature], count, is_counted=is_counted
    )
  if not is_held_out and client_test is None:
    _warn_of_shared_examples(train, test)
  partition = split.split(_labels_to_split_by(train), client, all_clients)
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


def _check_part(
  x: Any, y: Any, kinds: Kinds, *, suffix: str = ''
) -> collections.OrderedDict[str, np.ndarray]:
  """Returns the features of a part, by their flat names."""
  part = collections.OrderedDict()
  for feature, array in features.flatten(features.INPUT, x).items():
    part[feature] = _check_x(f'{feature}{suffix}', array)
  for feature, array in features.flatten(features.OUTPUT, y).items():
    (output,) = features.names_of(features.OUTPUT, [feature])
    kind = kinds if isinstance(kinds, str) else kinds.get(output)
    if kind is None:
      raise ValueError(
        f'`loss` must be of each output of the data, OUTPUT=LOSS, found none '
        f'of `{feature}`.'
      )
    part[feature] = labels.check(f'{feature}{suffix}', array, kind)
  return part


def _class_features(part: Mapping[str, np.ndarray]) -> list[str]:
  """Returns the outputs that are classes."""
  return [
    feature
    for feature, array in part.items()
    if features.names_of(features.OUTPUT, [feature]) and array.dtype.kind == 'i'
  ]


def _labels_to_split_by(part: Mapping[str, np.ndarray]) -> np.ndarray:
  """Returns the labels, if they are classes of the only output.

  Others have no single label that a partition could deal by, as rows have none.
  """
  if part.get(features.OUTPUT, np.zeros([0])).dtype.kind == 'i':
    return part[features.OUTPUT]
  return np.zeros([len(next(iter(part.values()))), 2], np.int32)


def _num_of(
  feature: str, num_classes: int | Mapping[str, int] | None
) -> int | None:
  """Returns what is given for an output."""
  if not isinstance(num_classes, Mapping):
    return num_classes
  (output,) = features.names_of(features.OUTPUT, [feature])
  return num_classes.get(output or '')


def _count_classes(
  feature: str, y: np.ndarray, y_test: np.ndarray, given: int | None
) -> tuple[int, bool, bool]:
  """Returns how many classes there are, and how that is known.

  Returns:
    The number; whether it was counted; and whether that took the clients'
    labels, since the test set has fewer.
  """
  largest = int(max(y.max(), y_test.max()))
  count = largest + 1
  if given is not None:
    count = argument_checks.check_integer(
      # A file has an array without dimensions.
      *('num_classes', np.asarray(given)[()])
    )
  if count < 2:
    raise ValueError(
      f'`{feature}` must have at least two classes, found only 0 '
      f'(`num_classes` {count}).'
    )
  if largest >= count:
    raise ValueError(
      f'`{feature}` must be below `num_classes`, {count}, found {largest}.'
    )
  return count, given is None, given is None and bool(y_test.max() < largest)


def _warn_of_classes(
  feature: str,
  y: np.ndarray,
  y_test: np.ndarray,
  num_classes: int,
  *,
  is_counted: bool,
) -> None:
  """Warns of labels that nothing learns; tokens are never all there."""
  if y.ndim > 1:
    return
  trained = np.unique(y)
  if trained[0] > 0:
    warnings.warn(
      f'`{feature}` has no example of class 0, and the model has an output for '
      f'each of {num_classes} classes. If yours count from 1, subtract 1.',
      data_files.DataWarning,
      stacklevel=3,
    )
  if is_counted and 2 * len(trained) < num_classes:
    warnings.warn(
      f'`{feature}` has examples of {len(trained)} of {num_classes} classes, '
      'and the model has an output for each. `numpy.searchsorted(numpy.unique('
      'y), ...)` of `y` and of `y_test` numbers those that `y` has.',
      data_files.DataWarning,
      stacklevel=3,
    )
  unknown = np.setdiff1d(y_test, trained)
  if unknown.size:
    warnings.warn(
      f'`{feature}_test` has examples of class {unknown[0]}, and `{feature}` '
      'has none: the model cannot learn it.',
      data_files.DataWarning,
      stacklevel=3,
    )


def _warn_of_shared_examples(
  train: Mapping[str, np.ndarray], test: Mapping[str, np.ndarray]
) -> None:
  """Warns of a test set that is nobody's, but looks like clients' examples.

  No more than a warning: that a client has an example like a public one must
  not show in the files of a private run.
  """
  tests = list(_each_example(test))
  wanted = frozenset(tests)
  found = collections.Counter(
    example for example in _each_example(train) if example in wanted
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


def _each_example(part: Mapping[str, np.ndarray]) -> Iterator[bytes]:
  for rows in zip(*part.values(), strict=True):
    yield b''.join(row.tobytes() for row in rows)


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
        _check_x(name, array)
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
      _check_alike(
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
      for feature in _class_features(examples)
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
  path: pathlib.Path, split: partition_config.PartitionConfig, kinds: Kinds
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

  def name_of(place: tuple[int, ...]) -> str:
    return f'`{name}[:, {", ".join(map(str, place))}]`'

  if array.dtype.kind == 'f':
    return labels.to_finite_float32(name, array, name_of)
  # Whole numbers become float32 in the first layer of most models.
  float32.convert(array, name_of)
  return labels.to_int32(name, array)


def _check_lengths(part: Mapping[str, np.ndarray], *, suffix: str = '') -> int:
  """Returns how many examples a part has, the same of all features."""
  first = next(iter(part))
  for feature, array in part.items():
    _check_length(part, f'{feature}{suffix}', array, suffix=suffix)
  return len(part[first])


def _check_length(
  part: Mapping[str, np.ndarray], name: str, array: Any, *, suffix: str = ''
) -> None:
  first = next(iter(part))
  if len(part[first]) != len(array):
    raise ValueError(
      f'`{first}{suffix}` and `{name}` must have as many examples, found '
      f'{len(part[first])} and {len(array)}.'
    )


def _take(
  part: Mapping[str, np.ndarray], rows: np.ndarray
) -> collections.OrderedDict[str, np.ndarray]:
  return collections.OrderedDict(
    (feature, array[rows]) for feature, array in part.items()
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
