"""The metrics of a round: what a process measured, and the row of the round."""

import collections
import math
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import tree

from tff_clipping.privacy.ledger.ledger import PrivacyLedger
from tff_clipping.programs.checks import records

TEST_LOSS = 'test_loss'
_OF_THE_ROUND = ('round_num', 'num_clients', 'round_seconds', 'epsilon')
# How `summarize_updates` names the columns that it fills.
_SUMMARY = (
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
  public = _public_paths(metrics) if is_private else None
  return collections.OrderedDict(
    ('/'.join(map(str, path)) or 'metrics', float(value.reshape(())))
    for path, value in _measured(metrics)
    if value.size == 1 and (public is None or path in public)
  )


def released_values(metrics: Any) -> dict[str, float | list[float]]:
  """Returns what a private process measured and may be released.

  Args:
    metrics: As for `flatten_metrics`.

  Returns:
    Numbers and vectors by their paths, for a file of JSON.
  """
  public = _public_paths(metrics) | {_CANARY_PRODUCTS}
  return {
    '/'.join(map(str, path)): (
      float(value.reshape(()))
      if value.size == 1
      else value.astype(np.float64).tolist()
    )
    for path, value in _measured(metrics)
    if path in public
  }


def summarize_updates(
  metrics: Any, num_clients: int
) -> collections.OrderedDict[str, float]:
  """Returns what the metrics of a process say of the norms of its updates.

  Args:
    metrics: As for `flatten_metrics`, of a run that is not private.
    num_clients: The size of the cohort.

  Returns:
    Mean, deviation and largest norm, and the share of clipped clients, as far
    as they were measured: by `build_fed_avg` with `measure_updates`, by
    `add_update_norm_measurements` or by a clip.
  """
  named: dict[str, np.ndarray] = {}
  for path, value in _measured(metrics):
    if path and path[0] != 'aggregate':
      named.setdefault(str(path[-1]), value)
  found: collections.OrderedDict[str, float] = collections.OrderedDict()
  if not num_clients:
    return found
  norms = named.get('update_norm')
  for name in ('mean', 'std', 'max'):
    if norms is not None and norms.size:
      of_all = getattr(norms.astype(np.float64), name)()
      found[f'update_norm_{name}'] = float(of_all)
    if f'update_norm_{name}' in named:
      found[f'update_norm_{name}'] = float(named[f'update_norm_{name}'])
  if 'clipped_fraction' in named:
    found['clipped_fraction'] = float(named['clipped_fraction'])
  elif 'clipped_count' in named:
    found['clipped_fraction'] = float(named['clipped_count']) / num_clients
  return found


def new_row(
  round_num: int,
  ledger: PrivacyLedger | None,
  *,
  evaluated: Sequence[str],
  num_clients: float = math.nan,
  seconds: float = math.nan,
) -> collections.OrderedDict[str, float]:
  """Returns the row of a round before anything is measured.

  Args:
    round_num: The number of the round.
    ledger: The ledger that has charged for it, if it is private.
    evaluated: The columns of what is measured on a test set.
    num_clients: The size of the cohort; NaN where it is not to be shown.
    seconds: How long the round took; NaN where it is not to be shown.

  Returns:
    All columns that every run has, NaN where nothing was measured, and of a
    private run what has been spent.
  """
  row = collections.OrderedDict(
    round_num=round_num,
    num_clients=num_clients,
    round_seconds=seconds,
    epsilon=math.nan if ledger is None else ledger.epsilon,
  )
  row.update((name, math.nan) for name in evaluated)
  row.update((name, math.nan) for name in _SUMMARY)
  return row


def check_added(
  source: str,
  found: Any,
  *,
  columns: Collection[str],
  reserved: Collection[str],
) -> None:
  """Raises if what somebody adds to a row has no place in it.

  Args:
    source: Who returned it, as the subject of a sentence.
    found: A mapping of names to numbers.
    columns: The columns that it must have.
    reserved: The columns that nobody else may return.

  Raises:
    ValueError: If it lacks a column, has one of the round or of others, or its
      value of one that it must have is no number.
  """
  if not isinstance(found, collections.abc.Mapping) or not (
    found.keys() >= set(columns)
  ):
    kind = 'a dict of numbers'
    if columns:
      kind = f'a dict with {" and ".join(columns)}'
      if 'test_accuracy' in columns:
        kind += ', a NaN accuracy if there is none'
    raise ValueError(f'{source} must return {kind}, found {found!r}')
  for name, value in found.items():
    if name in {*_OF_THE_ROUND, *reserved}.difference(columns):
      raise ValueError(
        f'{source} must not return `{name}`, which is a metric of the round, '
        f'found {value!r}'
      )
    if name in columns and np.asarray(value).dtype.kind not in 'biuf':
      raise ValueError(
        f'{source} must return numbers, found `{name}` {value!r}'
      )


def _measured(metrics: Any) -> list[tuple[tuple, np.ndarray]]:
  """Returns the numbers among the metrics, by their paths."""
  leaves = [
    (path, np.asarray(leaf)) for path, leaf in tree.flatten_with_path(metrics)
  ]
  return [(path, value) for path, value in leaves if value.dtype.kind in 'biuf']


def _public_paths(metrics: Any) -> set[tuple[str, str]]:
  """Returns where the public measurements of a private round are."""
  record = records.read_mechanism(metrics)
  names = () if record is None else record.public
  return {('aggregator', name) for name in names}
