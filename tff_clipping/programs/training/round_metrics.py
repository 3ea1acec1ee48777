"""What the metrics of a learning process say of a round."""

import collections
from collections.abc import Collection, Iterator
from typing import Any

import numpy as np
import tree

from tff_clipping.programs.checks import records

# The columns that `summarize_updates` fills.
SUMMARY = (
  'update_norm_mean',
  'update_norm_std',
  'update_norm_max',
  'clipped_fraction',
)


def flatten_metrics(
  metrics: Any, *, is_private: bool
) -> collections.OrderedDict[str, float]:
  """Returns the scalars among the metrics of a process.

  Args:
    metrics: What `next` of a `tff.learning.templates.LearningProcess` measured.
    is_private: Whether to leave out all but what the record of the aggregator's
      mechanism lists as public: constants, and what comes from noised sums.
      Without a record, nothing is.

  Returns:
    The numbers by their paths, such as 'aggregator/clipping_norm'; 'metrics' if
    there is a single number without a name. What is not one number, such as the
    norms of all clients, is left out.
  """
  public = _public_paths(metrics) if is_private else None
  return collections.OrderedDict(
    (_name(path), float(value.item()))
    for path, value in _measured(metrics, public)
    if value.size == 1
  )


def released_values(metrics: Any) -> dict[str, float | list[float]]:
  """Returns what a private process measured and may be released, for JSON.

  These are what the record of the mechanism lists, numbers and vectors; by
  their paths.
  """
  public = _public_paths(metrics)
  return {
    _name(path): (
      float(value.item())
      if value.size == 1
      else value.astype(np.float64).tolist()
    )
    for path, value in _measured(metrics, public)
  }


def summarize_updates(metrics: Any, num_clients: int) -> dict[str, float]:
  """Returns mean, deviation and largest norm of updates, and who was clipped.

  As far as they were measured: by `build_fed_avg` with `measure_updates`, by
  `add_update_norm_measurements` or by a clip. Exact, for runs that are not
  private.

  Args:
    metrics: As for `flatten_metrics`.
    num_clients: The size of the cohort.
  """
  if not num_clients:
    return {}
  named: dict[str, np.ndarray] = {}
  for path, value in _measured(metrics):
    if path and path[0] != 'aggregate':
      named.setdefault(str(path[-1]), value)
  norms = named.get('update_norm', np.zeros(0)).astype(np.float64)
  found = {}
  if norms.size:
    found = {
      'update_norm_mean': float(norms.mean()),
      'update_norm_std': float(norms.std()),
      'update_norm_max': float(norms.max()),
    }
  if 'clipped_count' in named:
    found['clipped_fraction'] = float(named['clipped_count']) / num_clients
  return found | {name: float(named[name]) for name in SUMMARY if name in named}


def _name(path: tuple) -> str:
  return '/'.join(map(str, path)) or 'metrics'


def _measured(
  metrics: Any, paths: Collection[tuple] | None = None
) -> Iterator[tuple[tuple, np.ndarray]]:
  """Yields the numbers among the metrics with their paths, or some of these."""
  for path, leaf in tree.flatten_with_path(metrics):
    value = np.asarray(leaf)
    if value.dtype.kind in 'biuf' and (paths is None or path in paths):
      yield path, value


def _public_paths(metrics: Any) -> set[tuple[str, str]]:
  """Returns where the public measurements of a private round are."""
  record = records.read_mechanism(metrics)
  names = () if record is None else record.public
  return {('aggregator', name) for name in names}
