"""What a process must be like for a ledger to charge for what it releases.

Its types tell what it is made of, and the numbers that it measures and keeps,
where there are any, how much noise it adds to what. Of an aggregator of one's
own that measures neither, no check tells that.
"""

import collections
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow_federated as tff
import tree

from tff_clipping.aggregators import private_reports
from tff_clipping.privacy import BasePlan, CorrelatedNoisePlan, PrivacyPlan

# Of the clients' work, what `learning.build_fed_avg` keeps to measure angles:
# a model that was released.
_RELEASED = 'previous_model'
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


def check_process(
  process: tff.learning.templates.LearningProcess, plan: BasePlan
) -> None:
  """Raises if a plan does not charge for what a process releases.

  Args:
    process: The process.
    plan: The plan that is charged.

  Raises:
    ValueError: If the aggregator of the process adds no noise, or noise of
      another kind than the plan's; if it has no clip, divides by the clients
      that took part, or adapts a norm that no noise covers; or if its clients'
      work keeps a second aggregate of the clients, such as the mean gradient of
      Mime.
  """
  state = process.state_type.member
  # What noises something else than the updates is no noise of the plan's.
  aggregate = getattr(state, 'aggregator', state)
  if not private_reports.adds_noise(aggregate):
    raise ValueError(
      '`process` must add noise where a ledger is charged, found the state '
      f'{aggregate}. It has the state of no factory of ours or of TFF that '
      'does; one of your own has a field `privacy_noise`: empty where the '
      'noise is fresh in each round, and else with a `draw`, or with `slots` '
      'where it is correlated between rounds.'
    )
  if private_reports.divides_by_cohort(aggregate, _measurements(process)):
    raise ValueError(
      '`process` must divide by a public number where a ledger is charged, '
      f'found a mean over the clients that took part, in the state {aggregate} '
      'or in what it measures: the noise on it tells their number, and so does '
      'a sum of weights. Use `fixed_denominator_mean_factory`, or '
      '`dp_mean_factory`, in an unweighted algorithm.'
    )
  if not private_reports.clips(aggregate):
    raise ValueError(
      '`process` must clip what a client sends where a ledger is charged, '
      f'found the state {aggregate}, which is that of no clip of ours or of '
      'TFF; one of your own has a field `clipping_norm`, empty where it is a '
      'constant.'
    )
  private_reports.check_norms_are_charged('process', aggregate)
  is_correlated = private_reports.correlates_noise(aggregate)
  if is_correlated and isinstance(plan, CorrelatedNoisePlan):
    _check_strategy(aggregate, plan)
  elif is_correlated or isinstance(plan, CorrelatedNoisePlan):
    raise ValueError(
      "`process` must have the plan's kind of noise, found noise that is "
      f'{"" if is_correlated else "not "}correlated between rounds, and a '
      f'{type(plan).__name__}.'
    )
  _check_work(getattr(state, 'client_work', None))


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


def _measurements(process: tff.templates.IterativeProcess) -> tff.Type:
  """Returns the type of what the aggregator of a process measures."""
  result = process.next.type_signature.result
  if not hasattr(result, 'metrics'):
    return result.measurements  # An aggregation process.
  metrics = result.metrics.member
  return getattr(metrics, 'aggregator', metrics)


def _check_strategy(aggregate: tff.Type, plan: CorrelatedNoisePlan) -> None:
  """Raises if the state of the noise is that of another strategy."""
  expected = plan.strategy.recurrence.read_weights.shape[1]
  for name, kept in private_reports.named_types(aggregate):
    if name == private_reports.TREE:
      raise ValueError(
        "`process` must have the noise of the plan's strategy, as "
        "`correlated_noise_factory` adds it, found TFF's tree."
      )
    found = {t.shape[0] for t in _tensors(kept) if t.shape}
    if name == private_reports.SLOTS and found - {expected}:
      raise ValueError(
        "`process` must have the noise of the plan's strategy, which keeps "
        f'{expected} earlier noises, found one that keeps {found.pop()}.'
      )


def _check_work(work: tff.Type | None) -> None:
  """Raises if the state of the clients' work may hold data of clients."""
  # Numbers are learning rates and rounds.
  arrays = [
    str(kept)
    for kept in _tensors(work)
    if np.issubdtype(kept.dtype, np.floating) and len(kept.shape)
  ]
  if arrays or (work is not None and private_reports.adds_noise(work)):
    raise ValueError(
      "`process` must keep no second aggregate of the clients' data, for which "
      "the plan does not charge, found the state of the clients' work "
      f'{work}: whether its arrays come from clients, no type tells. Constants '
      'belong into the computation, not into the state.'
    )


def _tensors(kept: tff.Type | None) -> Iterator[tff.TensorType]:
  """Yields the tensors of a state, but for the model that was released."""
  if isinstance(kept, tff.TensorType):
    yield kept
  elif isinstance(kept, tff.StructType):
    for name, element in tff.structure.iter_elements(kept):
      if name != _RELEASED:
        yield from _tensors(element)


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
