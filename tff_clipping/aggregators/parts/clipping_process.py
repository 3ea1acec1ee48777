"""The process around a clip, shared by the factories that clip.

It connects a norm, constant or estimated, the clip at the clients, the inner
process, and the counts, for weighted and unweighted aggregation alike.
"""

import collections
import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow_federated as tff

from tff_clipping.aggregators.parts import l2_clip, type_checks


@dataclasses.dataclass(frozen=True)
class Clip:
  """A clip of clients' values.

  Attributes:
    build: Returns the clip of values of a type, a function in a graph of a
      value, and of the norm if it is estimated.
    norm_name: What the measurement of the norm is called.
    norm: The constant that is measured, or the process that estimates it.
    count_name: What the count of clipped values is called.
  """

  build: Callable[[tff.Type], Callable[..., l2_clip.Clipped]]
  norm_name: str
  norm: np.ndarray | np.generic | tff.templates.EstimationProcess
  count_name: str


def clipping_wrapper(
  inner_agg_factory: tff.aggregators.AggregationFactory | None,
  clip: Clip,
  count_sum_factory: tff.aggregators.UnweightedAggregationFactory | None,
) -> tff.aggregators.AggregationFactory:
  """Returns a factory that clips before `inner_agg_factory` aggregates.

  Args:
    inner_agg_factory: Aggregates the clipped values, weighted or not. `None` is
      `tff.aggregators.SumFactory()`.
    clip: The clip.
    count_sum_factory: Sums the counts; `None` to measure none.

  Returns:
    A factory, weighted if `inner_agg_factory` is.

  Raises:
    TypeError: If an argument is no factory, or that of the counts has weights.
  """
  if inner_agg_factory is None:
    inner_agg_factory = tff.aggregators.SumFactory()
  type_checks.check_factory('inner_agg_factory', inner_agg_factory)
  if count_sum_factory is not None:
    type_checks.check_unweighted_factory('count_sum_factory', count_sum_factory)
  if isinstance(inner_agg_factory, tff.aggregators.WeightedAggregationFactory):
    return _WeightedClippingFactory(inner_agg_factory, clip, count_sum_factory)
  return _UnweightedClippingFactory(inner_agg_factory, clip, count_sum_factory)


class _UnweightedClippingFactory(tff.aggregators.UnweightedAggregationFactory):
  """Clips, then aggregates without weights."""

  def __init__(self, inner_agg_factory, clip, count_sum_factory):
    self._inner_agg_factory = inner_agg_factory
    self._clip = clip
    self._count_sum_factory = count_sum_factory

  def create(self, value_type: Any) -> tff.templates.AggregationProcess:
    """Creates the process for values of `value_type`; see the base class."""
    type_checks.check_float_leaves(value_type)
    inner = self._inner_agg_factory.create(value_type)
    initialize, trace = _build(
      self._clip, value_type, inner, self._count_sum_factory
    )

    @tff.federated_computation(
      initialize.type_signature.result,
      tff.FederatedType(value_type, tff.CLIENTS),
    )
    def next_fn(state, value):
      return trace(state, value)

    return tff.templates.AggregationProcess(initialize, next_fn)


class _WeightedClippingFactory(tff.aggregators.WeightedAggregationFactory):
  """Clips, then aggregates with weights, which the clip does not touch."""

  def __init__(self, inner_agg_factory, clip, count_sum_factory):
    self._inner_agg_factory = inner_agg_factory
    self._clip = clip
    self._count_sum_factory = count_sum_factory

  def create(
    self, value_type: Any, weight_type: Any
  ) -> tff.templates.AggregationProcess:
    """Creates the process for `value_type`; see the base class."""
    type_checks.check_float_leaves(value_type)
    inner = self._inner_agg_factory.create(value_type, weight_type)
    initialize, trace = _build(
      self._clip, value_type, inner, self._count_sum_factory
    )

    @tff.federated_computation(
      initialize.type_signature.result,
      tff.FederatedType(value_type, tff.CLIENTS),
      tff.FederatedType(weight_type, tff.CLIENTS),
    )
    def next_fn(state, value, weight):
      return trace(state, value, weight)

    return tff.templates.AggregationProcess(initialize, next_fn)


def _build(clip, value_type, inner, count_sum_factory):
  """Returns the initial state of the process, and what traces a round."""
  is_estimated = isinstance(clip.norm, tff.templates.EstimationProcess)
  clip_at_client = _build_clip(clip, value_type, is_estimated)
  counts_type = clip_at_client.type_signature.result[2]
  counts = None
  if count_sum_factory is not None:
    counts = count_sum_factory.create(counts_type)

  @tff.federated_computation
  def initialize():
    nothing = tff.federated_value((), tff.SERVER)
    state = collections.OrderedDict()
    state[clip.norm_name] = clip.norm.initialize() if is_estimated else nothing
    state['inner_agg'] = inner.initialize()
    state['count_agg'] = nothing if counts is None else counts.initialize()
    return tff.federated_zip(state)

  def trace(state, value, *weight):
    new_state = collections.OrderedDict(
      (name, state[name]) for name in (clip.norm_name, 'inner_agg', 'count_agg')
    )
    if is_estimated:
      norm = clip.norm.report(state[clip.norm_name])
      clipped, norms, is_counted = tff.federated_map(
        clip_at_client, (value, tff.federated_broadcast(norm))
      )
      new_state[clip.norm_name] = clip.norm.next(state[clip.norm_name], norms)
    else:
      norm = tff.federated_value(clip.norm, tff.SERVER)
      clipped, _, is_counted = tff.federated_map(clip_at_client, value)
    output = inner.next(state['inner_agg'], clipped, *weight)
    new_state['inner_agg'] = output.state
    measurements = collections.OrderedDict(clipping=output.measurements)
    measurements[clip.norm_name] = norm
    if counts is not None:
      count_output = counts.next(state['count_agg'], is_counted)
      new_state['count_agg'] = count_output.state
      for name in tff.structure.name_list(counts_type):
        measurements[name] = count_output.result[name]
    return tff.templates.MeasuredProcessOutput(
      state=tff.federated_zip(new_state),
      result=output.result,
      measurements=tff.federated_zip(measurements),
    )

  return initialize, trace


def _build_clip(clip, value_type, is_estimated):
  """Returns the computation of a clipped value, its norm, and its counts."""
  clip_value = clip.build(value_type)

  def with_counts(clipped):
    counts = collections.OrderedDict()
    counts[clip.count_name] = clipped.was_clipped
    counts['zeroed_count'] = clipped.was_zeroed
    return clipped.value, clipped.norm, counts

  if is_estimated:

    @tff.tensorflow.computation(value_type, np.float32)
    def clip_to_estimate(value, norm):
      return with_counts(clip_value(value, norm))

    return clip_to_estimate

  @tff.tensorflow.computation(value_type)
  def clip_to_constant(value):
    return with_counts(clip_value(value))

  return clip_to_constant
