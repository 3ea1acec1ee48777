"""The row of metrics that a training program releases of a round."""

import collections
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from tff_clipping.privacy.ledger.ledger import PrivacyLedger
from tff_clipping.programs.training import process_metrics
from tff_clipping.programs.training.update_records import SUMMARY_FIELDS

_EVALUATED = ('test_accuracy', 'test_loss')
_OF_THE_ROUND = ('round_num', 'num_clients', 'round_seconds', 'epsilon')


def new_row(
  round_num: int,
  ledger: PrivacyLedger | None,
  *,
  num_clients: float = math.nan,
  seconds: float = math.nan,
) -> collections.OrderedDict[str, float]:
  """Returns the row of a round before anything is measured.

  Args:
    round_num: The number of the round.
    ledger: The ledger that has charged for it, if it is private.
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
  row.update((name, math.nan) for name in _EVALUATED)
  if ledger is not None and ledger.plan.sampling == 'paper':
    # `epsilon` does not hold for these cohorts.
    row['actual_epsilon'] = ledger.actual_epsilon
  row.update((name, math.nan) for name in SUMMARY_FIELDS)
  return row


def measured(
  metrics: Any, num_clients: int, *, is_private: bool
) -> collections.OrderedDict[str, float]:
  """Returns what a process measured, and of a private round what is public.

  Args:
    metrics: What `next` of a `tff.learning.templates.LearningProcess` measured.
    num_clients: The size of the cohort.
    is_private: Whether to leave out the exact figures of the clients.
  """
  found = process_metrics.flatten_metrics(metrics, is_private=is_private)
  if not is_private:
    found |= process_metrics.summarize_updates(metrics, num_clients)
  return found


def check_evaluated(found: Any) -> None:
  """Raises if what `evaluate` of a program returned has no place in a row.

  Raises:
    ValueError: If it lacks a column, has one of the round, or its accuracy or
      loss is no number.
  """
  if not isinstance(found, Mapping) or not found.keys() >= set(_EVALUATED):
    raise ValueError(
      f'`evaluate` must return a dict with {" and ".join(_EVALUATED)}, a NaN '
      f'accuracy if there is none, found {found!r}'
    )
  for name, value in found.items():
    if name in _OF_THE_ROUND:
      raise ValueError(
        f'`evaluate` must not return `{name}`, which is a metric of the '
        f'round, found {value!r}'
      )
    if name in _EVALUATED and np.asarray(value).dtype.kind not in 'biuf':
      raise ValueError(
        f'`evaluate` must return numbers, found `{name}` {value!r}'
      )
