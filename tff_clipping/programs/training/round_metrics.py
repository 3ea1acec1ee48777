"""The row of metrics that a training program releases of a round."""

import collections
import math
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from tff_clipping.privacy.ledger.ledger import PrivacyLedger
from tff_clipping.programs.training import process_metrics

TEST_LOSS = 'test_loss'
_OF_THE_ROUND = ('round_num', 'num_clients', 'round_seconds', 'epsilon')


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
  if ledger is not None and ledger.plan.sampling == 'paper':
    # `epsilon` does not hold for these cohorts.
    row['actual_epsilon'] = ledger.actual_epsilon
  row.update((name, math.nan) for name in process_metrics.SUMMARY_FIELDS)
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
