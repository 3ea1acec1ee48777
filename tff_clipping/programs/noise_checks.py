"""Whether the noise of a round is that which a plan charges for.

Told from the numbers that the aggregator measured, or that the state of TFF's
factory holds. Of an aggregator of one's own that has neither, nothing tells it.
"""

import collections
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tree

from tff_clipping.aggregators import private_reports
from tff_clipping.privacy import BasePlan, PrivacyPlan

# What is measured and kept is rounded to `float32`.
_TOLERANCE = 1e-5
_MEASURED = frozenset(
  {
    'bits_noise_stddev',
    'clipping_norm',
    'clipping_norms',
    'noise_stddev',
    'share_noise_stddev',
    'smoothing',
  }
)
# How far a client moves the sum of the bits, which are centred.
_BIT = 0.5


def check_noise(state: Any, metrics: Any, plan: BasePlan) -> None:
  """Raises if a round had less noise than a plan charges for.

  Args:
    state: The state of the process before the round.
    metrics: What the process measured in it.
    plan: The plan that is charged.

  Raises:
    ValueError: If the noise is less than the plan's noise multiplier times the
      clipping norm, by what the aggregator measured or what the state of TFF's
      `DifferentiallyPrivateFactory` says: `noise_stddev`, which is that on the
      sum of what clients send, together with that on the bits that adapt the
      norm, and each client's share, where the noise comes in shares. Nothing is
      said of what has neither.
  """
  measured = _measured(metrics)
  norm = _norm(measured)
  found = []
  if norm is not None and 'noise_stddev' in measured:
    releases = [(norm, float(np.max(measured['noise_stddev'])))]
    if 'bits_noise_stddev' in measured:
      releases.append((_BIT, float(np.min(measured['bits_noise_stddev']))))
    found.append((_combine(releases), plan.noise_multiplier))
  if norm is not None and 'share_noise_stddev' in measured:
    share = float(np.min(measured['share_noise_stddev']))
    found.append((_combine([(norm, share)]), _share_multiplier(plan)))
  queries = list(_noise_of_queries(state))
  if queries:
    found.append((_combine(queries), plan.noise_multiplier))
  for multiplier, least in found:
    if not multiplier >= least * (1.0 - _TOLERANCE):
      raise ValueError(
        '`process` must add the noise of the plan, a standard deviation of at '
        f'least {least:g} times the clipping norm, found {multiplier:g} times. '
        'The round is not released, and nothing is charged. A `noise_stddev` '
        'that is measured must be that on the sum, before it is divided.'
      )


def _share_multiplier(plan: BasePlan) -> float:
  """Returns the least noise of a client's share over the norm."""
  if not isinstance(plan, PrivacyPlan):
    raise ValueError(
      f'`process` must not add noise in shares under a {type(plan).__name__}.'
    )
  return plan.share_parameters.share_multiplier


def _measured(metrics: Any) -> dict[str, np.ndarray]:
  """Returns by name what the aggregator measured of its clip and noise."""
  if isinstance(metrics, Mapping) and 'aggregator' in metrics:
    metrics = metrics['aggregator']
  named = collections.defaultdict(list)
  for path, leaf in tree.flatten_with_path(metrics):
    if path and path[-1] in _MEASURED:
      value = np.ravel(np.asarray(leaf))
      if value.size and value.dtype.kind in 'biuf':
        named[path[-1]].append(value.astype(np.float64))
  return {name: np.concatenate(found) for name, found in named.items()}


def _norm(measured: Mapping[str, np.ndarray]) -> float | None:
  """Returns what bounds the norm of what a client adds to the sum."""
  if 'smoothing' in measured:
    # Its values have norms below 1, however short a clip before it made them.
    return 1.0
  norms = []
  if 'clipping_norm' in measured:
    # Of clips in each other, the shortest.
    norms.append(float(np.min(measured['clipping_norm'])))
  if 'clipping_norms' in measured:
    norms.append(float(np.linalg.norm(measured['clipping_norms'])))
  return min(norms, default=None)


def _combine(releases: Sequence[tuple[float, float]]) -> float:
  """Returns the noise multiplier of Gaussian releases of a round together.

  Args:
    releases: Of each, the sensitivity and the standard deviation.
  """
  if any(stddev <= 0.0 for _, stddev in releases):
    return 0.0
  return 1.0 / math.hypot(*(norm / stddev for norm, stddev in releases))


def _noise_of_queries(
  state: Any, *, is_inside: bool = False
) -> Iterator[tuple[float, float]]:
  """Yields norm and noise of the Gaussian queries in a state of TFF's."""
  if isinstance(state, Mapping):
    fields = dict(state)
  elif hasattr(state, '_asdict'):
    fields = state._asdict()
  elif hasattr(state, '__attrs_attrs__'):
    fields = {a.name: getattr(state, a.name) for a in state.__attrs_attrs__}
  elif isinstance(state, (list, tuple)):
    fields = dict(enumerate(state))
  else:
    return
  if is_inside and {'l2_norm_clip', 'stddev'} <= fields.keys():
    yield float(fields['l2_norm_clip']), float(fields['stddev'])
  for name, element in fields.items():
    yield from _noise_of_queries(
      element, is_inside=is_inside or name == private_reports.QUERY
    )
