"""How many classes a user's own labels have."""

import warnings
from collections.abc import Mapping

import numpy as np

from tasks.data import features
from tasks.data.datasets import data_files
from tff_clipping import argument_checks


def num_of(
  feature: str, num_classes: int | Mapping[str, int] | None
) -> int | None:
  """Returns what is given for an output."""
  if not isinstance(num_classes, Mapping):
    return num_classes
  (output,) = features.names_of(features.OUTPUT, [feature])
  return num_classes.get(output or '')


def count_classes(
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


def warn_of_classes(
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
