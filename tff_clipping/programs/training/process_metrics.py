"""What a learning process measures of a round, as numbers with names."""

import collections
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff
import tree

from tff_clipping.programs.checks import records

# How `summarize_updates` names the columns that it fills.
SUMMARY_FIELDS = (
  'update_norm_mean',
  'update_norm_std',
  'update_norm_max',
  'clipped_fraction',
)
# What `add_canary_products` measures of the release, for an audit.
_CANARY_PRODUCTS = ('aggregator', 'canary_products')


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
  flat = collections.OrderedDict()
  public = _public_paths(metrics) if is_private else None
  for path, leaf in tree.flatten_with_path(metrics):
    if public is not None and path not in public:
      continue
    value = np.asarray(leaf)
    if value.size == 1 and value.dtype.kind in 'biuf':
      flat['/'.join(map(str, path)) or 'metrics'] = float(value.reshape(()))
  return flat


def released_values(metrics: Any) -> dict[str, float | list[float]]:
  """Returns what a private process measured and may be released.

  Args:
    metrics: As for `flatten_metrics`.

  Returns:
    Numbers and vectors by their paths, for a file of JSON.
  """
  found = {}
  public = _public_paths(metrics) | {_CANARY_PRODUCTS}
  for path, leaf in tree.flatten_with_path(metrics):
    value = np.asarray(leaf)
    if path in public and value.dtype.kind in 'biuf':
      numbers = value.astype(np.float64)
      found['/'.join(map(str, path))] = (
        float(numbers.reshape(())) if numbers.size == 1 else numbers.tolist()
      )
  return found


def warn_of_vectors(process: tff.learning.templates.LearningProcess) -> None:
  """Warns of metrics that `flatten_metrics` leaves out, but for the clients'.

  Args:
    process: The process whose metrics they are.
  """
  if not isinstance(process, tff.learning.templates.LearningProcess):
    return  # It need not have types.
  measured = process.next.type_signature.result.metrics.member
  found = list(_vectors(measured, ()))
  if found:
    warnings.warn(
      f'The metrics {", ".join(found)} are no numbers and are left out of the '
      'rows of metrics. `evaluate` may return vectors; a metric may report '
      'numbers, such as the mean.',
      stacklevel=4,
    )


def _vectors(found: tff.Type, path: tuple[str, ...]) -> Iterator[str]:
  """Yields the names of arrays whose size does not depend on the cohort."""
  if isinstance(found, tff.StructType):
    for place, (name, part) in enumerate(tff.structure.iter_elements(found)):
      yield from _vectors(part, (*path, name or str(place)))
  elif isinstance(found, tff.TensorType):
    shape = tf.TensorShape(found.shape)
    if shape.is_fully_defined() and shape.num_elements() != 1:
      yield '/'.join(path)


def summarize_updates(
  metrics: Any, num_clients: int
) -> collections.OrderedDict[str, float]:
  """Returns what the metrics of a process say of the norms of its updates.

  Args:
    metrics: As for `flatten_metrics`, of a run that is not private.
    num_clients: The size of the cohort.

  Returns:
    Those of `SUMMARY_FIELDS` that were measured: by `build_fed_avg` with
    `measure_updates`, by `add_update_norm_measurements` or by a clip.
  """
  named: dict[str, np.ndarray] = {}
  for path, leaf in tree.flatten_with_path(metrics):
    value = np.asarray(leaf)
    if path and path[0] != 'aggregate' and value.dtype.kind in 'biuf':
      named.setdefault(str(path[-1]), value)
  found = collections.OrderedDict()
  norms = named.get('update_norm')
  if norms is not None and norms.size:
    norms = norms.astype(np.float64)
    found['update_norm_mean'] = float(np.mean(norms))
    found['update_norm_std'] = float(np.std(norms))
    found['update_norm_max'] = float(np.max(norms))
  for name in ('mean', 'std', 'max'):
    if f'update_norm_{name}' in named and num_clients:
      found[f'update_norm_{name}'] = float(named[f'update_norm_{name}'])
  if num_clients:
    if 'clipped_fraction' in named:
      found['clipped_fraction'] = float(named['clipped_fraction'])
    elif 'clipped_count' in named:
      found['clipped_fraction'] = float(named['clipped_count']) / num_clients
  return found


def _public_paths(metrics: Any) -> set[tuple[str, str]]:
  """Returns where the public measurements of a private round are."""
  record = records.read_mechanism(metrics)
  names = () if record is None else record.public
  return {('aggregator', name) for name in names}
