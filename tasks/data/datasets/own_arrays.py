"""The arrays of a user's own data: what they may be, and how they are taken.

A part, training or test, is a mapping of arrays by the flat names of features.
"""

import collections
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from tasks.data import features
from tasks.data.datasets import data_files, float32, labels

# Of data without a test set, the examples that are held out: one in so many.
_HELD_OUT = 10
_HELD_OUT_SEED = 0
# The share of test examples that may be among the clients' by chance.
_SHARED_SHARE = 0.1

Kinds = str | Mapping[str | None, str]
"""What labels are: of all outputs, or by their names."""


def check_part(
  x: Any, y: Any, kinds: Kinds, *, suffix: str = ''
) -> collections.OrderedDict[str, np.ndarray]:
  """Returns the features of a part, by their flat names."""
  part = collections.OrderedDict()
  for feature, array in features.flatten(features.INPUT, x).items():
    part[feature] = check_x(f'{feature}{suffix}', array)
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


def check_x(name: str, array: Any) -> np.ndarray:
  """Returns an input as it is trained on: uint8, int32 or float32."""
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


def check_lengths(part: Mapping[str, np.ndarray], *, suffix: str = '') -> int:
  """Returns how many examples a part has, the same of all features."""
  first = next(iter(part))
  for feature, array in part.items():
    check_length(part, f'{feature}{suffix}', array, suffix=suffix)
  return len(part[first])


def check_length(
  part: Mapping[str, np.ndarray], name: str, array: Any, *, suffix: str = ''
) -> None:
  """Raises unless an array has as many examples as a part."""
  first = next(iter(part))
  if len(part[first]) != len(array):
    raise ValueError(
      f'`{first}{suffix}` and `{name}` must have as many examples, found '
      f'{len(part[first])} and {len(array)}.'
    )


def check_alike(name: str, a: np.ndarray, other: str, b: np.ndarray) -> None:
  """Raises unless the examples of two arrays have one shape and dtype."""
  if a.shape[1:] != b.shape[1:] or a.dtype != b.dtype:
    raise ValueError(
      f'`{other}` must hold examples like those of `{name}`, '
      f'{a.dtype}{list(a.shape[1:])}, found {b.dtype}{list(b.shape[1:])}.'
    )


def take(
  part: Mapping[str, np.ndarray], rows: np.ndarray
) -> collections.OrderedDict[str, np.ndarray]:
  """Returns some examples of a part."""
  return collections.OrderedDict(
    (feature, array[rows]) for feature, array in part.items()
  )


def held_out_rows(num_examples: int) -> tuple[np.ndarray, np.ndarray]:
  """Returns the rows to train on, and those that are held out, in order."""
  if num_examples < 2:
    raise ValueError(
      '`x` must have at least 2 examples, one of which is held out, found '
      f'{num_examples}.'
    )
  order = np.random.default_rng(_HELD_OUT_SEED).permutation(num_examples)
  num_test = max(1, num_examples // _HELD_OUT)
  return np.sort(order[num_test:]), np.sort(order[:num_test])


def class_features(part: Mapping[str, np.ndarray]) -> list[str]:
  """Returns the outputs that are classes."""
  return [
    feature
    for feature, array in part.items()
    if features.names_of(features.OUTPUT, [feature]) and array.dtype.kind == 'i'
  ]


def labels_to_split_by(part: Mapping[str, np.ndarray]) -> np.ndarray:
  """Returns the labels, if they are classes of the only output.

  Others have no single label that a partition could deal by, as rows have none.
  """
  if part.get(features.OUTPUT, np.zeros([0])).dtype.kind == 'i':
    return part[features.OUTPUT]
  return np.zeros([len(next(iter(part.values()))), 2], np.int32)


def warn_of_shared_examples(
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
