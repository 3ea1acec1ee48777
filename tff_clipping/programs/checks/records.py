"""Compares the record of an aggregator with the plan that is charged."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow_federated as tff

from tff_clipping import adaptive_noise
from tff_clipping.aggregators import server_noise
from tff_clipping.mechanism import ADAPTS, MECHANISM, Mechanism
from tff_clipping.privacy import BasePlan, CorrelatedNoisePlan, PrivacyPlan

# The caveat of a run whose aggregator has no record.
UNCHECKED = (
  'nobody has checked that this aggregator clips to c and adds the noise of '
  'its plan'
)

# Both noise multipliers went through the same arithmetic, perhaps on different
# processors.
_TOLERANCE = 1e-9
# c of all tensors, or of each.
_NORMS = ('clipping_norm', 'clipping_norms')
_NOTHING_IS_CHARGED = 'The round is not released, and nothing is charged.'


def has_record(process: Any) -> bool:
  """Returns whether a learning or aggregation process measures a record.

  Only the type is known here; the record's content, after a round.
  """
  result = process.next.type_signature.result
  measured = getattr(result, 'measurements', None)
  if measured is None:
    measured = getattr(getattr(result, 'metrics', None), 'member', None)
    measured = getattr(measured, 'aggregator', None)
  measured = getattr(measured, 'member', measured)
  found = getattr(measured, MECHANISM, None)
  return isinstance(found, tff.TensorType) and found.dtype.type is np.str_


def read_mechanism(metrics: Any) -> Mechanism | None:
  """Returns the record in the metrics of a round; `None` if there is none.

  Raises:
    ValueError: If the measurement of this name is no record.
  """
  if not isinstance(metrics, Mapping):
    return None
  measured = metrics.get('aggregator')
  if not isinstance(measured, Mapping) or MECHANISM not in measured:
    return None
  found = measured[MECHANISM]
  return Mechanism.from_json(
    np.asarray(found).item() if np.ndim(found) == 0 else repr(found)
  )


def check_mechanism(metrics: Any, plan: BasePlan) -> Mechanism | None:
  """Returns the record of a round, if it agrees with the plan, or `None`.

  The kind of the noise, the noise multiplier, the denominator and the strategy
  of correlated noise must be equal. If clients add the noise, the plan's
  cohorts must lie within the bounds of the record; for noise in integers the
  accountant must be 'rdp', since nobody has proved 'pld' for it. A plan has no
  clipping norm: c and the noise that were measured are compared with the
  record, as somebody else's figures may have taken their names.

  Args:
    metrics: The metrics of a learning process in a round.
    plan: The plan that charges for the round.

  Raises:
    ValueError: If the record differs from the plan, or from what is public.
  """
  try:
    record = read_mechanism(metrics)
  except ValueError as e:
    raise ValueError(f'{e} {_NOTHING_IS_CHARGED}') from e
  if record is None:
    return None
  is_correlated = isinstance(plan, CorrelatedNoisePlan)
  if (record.kind == 'correlated') != is_correlated:
    raise _other('kind', f'that of a {type(plan).__name__}', record.kind)
  z = plan.noise_multiplier
  if not math.isclose(record.noise_multiplier, z, rel_tol=_TOLERANCE):
    raise _other('noise_multiplier', z, record.noise_multiplier)
  if record.clients_per_round != plan.clients_per_round:
    raise _other(
      'clients_per_round', plan.clients_per_round, record.clients_per_round
    )
  if isinstance(plan, CorrelatedNoisePlan):
    expected = server_noise.strategy_digest(plan.strategy.recurrence)
    if record.strategy != expected:
      raise _other(
        'strategy',
        f'the digest {expected}',
        f'{record.strategy}: give the aggregator the `strategy` of the plan in '
        'the ledger; one that was optimised anew is another',
      )
  _check_bounds(record, plan)
  _check_public(record, metrics['aggregator'])
  return record


def _check_bounds(record: Mechanism, plan: BasePlan) -> None:
  """Raises if clients bring the noise, and a cohort may have too little."""
  if record.min_clients is None or record.max_clients is None:
    return
  if not isinstance(plan, PrivacyPlan):
    raise _other('kind', f'that of a {type(plan).__name__}', record.kind)
  if record.kind == 'distributed' and plan.accountant != 'rdp':
    raise ValueError(
      "`accountant` of the plan must be 'rdp' for a mechanism in integers, of "
      f'which no other is proved, found {plan.accountant!r}. '
      f'{_NOTHING_IS_CHARGED}'
    )
  # A least cohort below the plan's has larger shares, and a largest above the
  # plan's more of them: more noise than is charged for.
  shares = plan.share_parameters
  least = shares.min_clients_per_round
  largest = shares.max_clients_per_round
  if record.min_clients > least:
    raise _other('min_clients', f'at most {least}', record.min_clients)
  if record.max_clients < largest:
    raise _other('max_clients', f'at least {largest}', record.max_clients)


def _check_public(record: Mechanism, measured: Mapping[str, Any]) -> None:
  """Raises if another figure is measured under the name of c or the noise."""
  public = {
    name: float(np.linalg.norm(np.asarray(measured[name], np.float64)))
    for name in (*_NORMS, 'noise_stddev', 'bits_noise_stddev')
    if name in record.public and name in measured
  }
  c: Any = record.clipping_norm
  z, tolerance = record.noise_multiplier, 1e-6
  if record.kind == 'distributed':
    # On a grid of integers, c is a little larger.
    c = public.get('clipping_norm', c)
    z *= math.sqrt((record.max_clients or 1) / (record.min_clients or 1))
  elif c == ADAPTS:
    if not {'clipping_norm', 'bits_noise_stddev'} <= public.keys():
      return
    c = public['clipping_norm']
    z = adaptive_noise.split_noise_multiplier(
      noise_multiplier=z, below_count_stddev=public['bits_noise_stddev']
    )
    # The noise is larger where it pays for the rounding of a secure sum.
    tolerance = 0.05
  expected = {**dict.fromkeys(_NORMS, c), 'noise_stddev': z * c}
  for name, value in expected.items():
    found = public.get(name, value)
    if not math.isclose(found, value, rel_tol=tolerance):
      raise ValueError(
        f'`aggregator` must measure the `{name}` of its mechanism record, '
        f'{value:g}, found {found:g}: another figure has taken the name. '
        f'{_NOTHING_IS_CHARGED}'
      )


def _other(name: str, expected: Any, found: Any) -> ValueError:
  return ValueError(
    f"`process` must have the plan's `{name}`, {expected}, in its mechanism "
    f'record, found {found}. {_NOTHING_IS_CHARGED}'
  )
