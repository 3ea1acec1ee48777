"""Whether the noise of a round is that which a plan charges for.

The check reads the numbers that the aggregator measured. An aggregator that
measures none cannot be checked.
"""

import dataclasses
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tree

from tff_clipping.aggregators import correlated_noise, secure_sum
from tff_clipping.aggregators.parts import (
  composition_rules,
  inspect_process,
)
from tff_clipping.privacy import (
  BasePlan,
  CorrelatedNoisePlan,
  PrivacyPlan,
  ShareParameters,
)

# What is measured and kept is rounded to `float32`, a few times.
_TOLERANCE = 3e-7
_CLIPS = frozenset({'clipping_norm', 'clipping_norms'})
# Measured where each client brings a share of the noise.
SHARE = 'share_noise_stddev'
# And where its sum clamps what is beyond.
_BOUND = 'secure_sum_bound'
_NAMES = _CLIPS | {
  _BOUND,
  'bits_noise_stddev',
  'max_clients_per_round',
  'min_clients_per_round',
  'noise_stddev',
  SHARE,
}
# How far a client moves the sum of the bits, which are centred.
_BIT = 0.5


@dataclasses.dataclass(frozen=True, eq=False)
class _Measured:
  """A measurement of a clip, or of noise.

  Attributes:
    place: The names of the factories around it, from the outermost.
    name: Its name.
    values: What was measured, a vector that is not empty.
  """

  place: tuple
  name: str
  values: np.ndarray


def check_noise(state: Any, metrics: Any, plan: BasePlan) -> None:
  """Raises if a round had less noise than a plan charges for.

  Where an aggregator treats parts of an update one by one, each with noise of
  its own, a client is in all of them: what counts is what they are together. A
  clip around all of them bounds each, and not their squares together, because
  nothing tells that the parts have no element in common.

  Args:
    state: The state of the process before the round.
    metrics: What the process measured in it.
    plan: The plan that is charged.

  Raises:
    ValueError: If the noise is less than the plan's noise multiplier times the
      clipping norm, by what the aggregator measured: `noise_stddev`, which is
      that on the sum of what clients send, together with that on the bits that
      adapt the norm, and each client's share, where the noise comes in shares.
      Or if a cohort of the plan may be out of the bounds that shares were made
      for, a secure sum clamps the shares, or the noise is of another strategy
      than the plan's, or that of TFF's factory, whose tails end. Noise with no
      clip around or inside it counts as none, if there is a clip elsewhere. Of
      a process that measures neither, nothing is checked.
  """
  leaves = tree.flatten_with_path(state)
  composition_rules.check_their_clip(
    {name for path, _ in leaves for name in path},
    [np.asarray(leaf).dtype for _, leaf in leaves],
  )
  if any(inspect_process.QUERY in path for path, _ in leaves):
    raise ValueError(
      f'`process` must {composition_rules.TAILS} The round is not released, '
      'and nothing is charged.'
    )
  _check_strategy(metrics, plan)
  measured = _measured(metrics)
  found = []
  of_sum = _multiplier(measured, 'noise_stddev')
  if of_sum is not None:
    found.append((of_sum, plan.noise_multiplier))
  if any(each.name == SHARE for each in measured):
    share = share_parameters(plan)
    _check_bounds(measured, share)
    _check_room(measured)
    of_shares = _multiplier(measured, SHARE)
    if of_shares is not None:
      found.append((of_shares, share.share_multiplier))
  for multiplier, least in found:
    if not multiplier >= least * (1.0 - _TOLERANCE):
      raise ValueError(
        '`process` must add the noise of the plan, a standard deviation of at '
        f'least {least:g} times the clipping norm, found {multiplier:g} times. '
        'The round is not released, and nothing is charged. A `noise_stddev` '
        'that is measured must be that on the sum, before it is divided.'
      )


def share_parameters(plan: BasePlan) -> ShareParameters:
  """Returns what noise in shares has to be.

  Raises:
    ValueError: If no shares can be that of the plan.
  """
  if not isinstance(plan, PrivacyPlan):
    raise ValueError(
      f'`process` must not add noise in shares under a {type(plan).__name__}.'
    )
  return plan.share_parameters


def _check_strategy(metrics: Any, plan: BasePlan) -> None:
  """Raises if correlated noise is of another strategy than the plan's."""
  if not isinstance(plan, CorrelatedNoisePlan):
    return
  expected = correlated_noise.strategy_digest(plan.strategy.recurrence)
  for path, leaf in tree.flatten_with_path(metrics):
    if path and path[-1] == inspect_process.STRATEGY:
      found = np.asarray(leaf).item()
      found = found.decode() if isinstance(found, bytes) else found
      if found != expected:
        raise ValueError(
          "`process` must have the noise of the plan's strategy, whose digest "
          f'is {expected}, found {found}: give the aggregator the `strategy` '
          "of the ledger's plan; one that was optimised anew is another. The "
          'round is not released, and nothing is charged.'
        )


def _check_bounds(
  measured: Iterable[_Measured], share: ShareParameters
) -> None:
  """Raises if a round may fail, which tells how large its cohort is."""
  least, largest = share.min_clients_per_round, share.max_clients_per_round
  for each in measured:
    if (
      each.name == 'min_clients_per_round' and np.any(each.values > least)
    ) or (
      each.name == 'max_clients_per_round' and np.any(each.values < largest)
    ):
      raise ValueError(
        f"`process` must have the plan's bounds of a cohort, {least} and "
        f'{largest}, where the noise comes in shares, found `{each.name}` '
        f'{each.values[0]:g}: a round whose cohort is out of bounds fails, '
        'which tells how large it is. Nothing is charged.'
      )


def _check_room(measured: Sequence[_Measured]) -> None:
  """Raises if a secure sum would clamp noise that clients brought."""
  clips = [each for each in measured if each.name in _CLIPS]
  for share, bound in itertools.product(measured, repeat=2):
    if (share.name, bound.name) != (SHARE, _BOUND) or not _is_in(
      bound.place, share.place
    ):
      continue
    norm = _norm(_around(bound.place, clips))
    least = secure_sum.NOISE_STDDEVS * np.max(share.values)
    # A clip that is not ours may measure nothing.
    least += norm if math.isfinite(norm) else 0.0
    found = np.min(bound.values)
    if not found >= least * (1.0 - _TOLERANCE):
      raise ValueError(
        '`process` must leave room for the noise in its secure sum, a bound of '
        f'at least {least:g}, found {found:g}: it would clamp the noise. The '
        'round is not released, and nothing is charged. Use '
        '`secure_sum_factory(clipping_norm, local_noise_stddev=...)`.'
      )


def _measured(metrics: Any) -> list[_Measured]:
  """Returns what the aggregator measured of its clips and its noise."""
  if isinstance(metrics, Mapping) and 'aggregator' in metrics:
    metrics = metrics['aggregator']
  found = []
  for path, leaf in tree.flatten_with_path(metrics):
    if path and path[-1] in _NAMES:
      values = np.ravel(np.asarray(leaf))
      if values.size and values.dtype.kind in 'biuf':
        found.append(_Measured(path[:-1], path[-1], values.astype(np.float64)))
  return found


def _multiplier(measured: Sequence[_Measured], name: str) -> float | None:
  """Returns the noise multiplier of all noise of a name; None if not known.

  Args:
    measured: What was measured.
    name: That of the standard deviations.
  """
  noises = [each for each in measured if each.name == name]
  clips = [each for each in measured if each.name in _CLIPS]
  releases = []
  for place in _innermost(noises):
    # What is noised once more, outside, is one release with both.
    stddev = math.hypot(*(np.min(n.values) for n in _around(place, noises)))
    inside = [clip for clip in clips if _is_in(clip.place, place)]
    outside = [clip for clip in _around(place, clips) if clip not in inside]
    releases.append((_norm(outside + inside), stddev))
  # A clip that is not ours may measure nothing.
  multiplier = _combine(releases) if clips else None
  if multiplier is None:
    return None
  bits = [
    (_BIT, float(np.min(each.values)))
    for each in measured
    if each.name == 'bits_noise_stddev' and name == 'noise_stddev'
  ]
  return _combine([(1.0, multiplier), *bits])


def _norm(clips: Sequence[_Measured]) -> float:
  """Returns what bounds the norm of what a client adds to a sum.

  Args:
    clips: Those around and inside the sum. Of none, it is infinite.
  """
  places = _innermost(clips)
  if not places:
    return math.inf
  parts = math.hypot(*(_fold(_around(place, clips)) for place in places))
  common = [c for c in clips if all(_is_in(p, c.place) for p in places)]
  return min(parts, _fold(common))


def _fold(clips: Iterable[_Measured]) -> float:
  """Returns the norm that clips in each other leave."""
  norm = math.inf
  for clip in clips:
    if clip.name == 'clipping_norm':
      norm = min(norm, float(np.min(clip.values)))
    else:
      norm = min(norm, float(np.linalg.norm(clip.values)))
  return norm


def _innermost(measured: Iterable[_Measured]) -> list[tuple]:
  """Returns the places that have no other one inside."""
  places = list(dict.fromkeys(each.place for each in measured))
  return [
    place
    for place in places
    if not any(_is_in(other, place) for other in places if other != place)
  ]


def _around(place: tuple, measured: Iterable[_Measured]) -> list[_Measured]:
  """Returns what is at a place, and around it."""
  return [each for each in measured if _is_in(place, each.place)]


def _is_in(place: tuple, outer: tuple) -> bool:
  """Returns whether a place is another one, or inside it."""
  return place[: len(outer)] == outer


def _combine(releases: Iterable[tuple[float, float]]) -> float | None:
  """Returns the noise multiplier of Gaussian releases of a round together.

  Args:
    releases: Of each, the sensitivity and the standard deviation. Of none, the
      noise multiplier is not known.
  """
  releases = list(releases)
  if not releases:
    return None
  if any(not stddev > 0.0 for _, stddev in releases):
    return 0.0
  total = math.hypot(*(norm / stddev for norm, stddev in releases))
  return math.inf if total == 0.0 else 1.0 / total
