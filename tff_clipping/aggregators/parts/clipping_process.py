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

from tff_clipping.aggregators.parts import (
  composition_rules,
  inspect_process,
  type_checks,
)


@dataclasses.dataclass(frozen=True)
class Clip:
  """A clip for values of one type.

  Attributes:
    computation: From the value, and the norm if it is estimated, to the clipped
      value, its norm before the clip (`float32`), and an `OrderedDict` of
      counts.
    norm_name: What the measurement of the norm is called.
    norm: The constant that is measured, or the process that estimates it.
  """

  computation: tff.Computation
  norm_name: str
  norm: np.ndarray | tff.templates.EstimationProcess

  @property
  def is_estimated(self) -> bool:
    """Whether the norm changes from round to round."""
    return isinstance(self.norm, tff.templates.EstimationProcess)


def clipping_wrapper(
  inner_agg_factory: tff.aggregators.AggregationFactory | None,
  make_clip: Callable[[tff.Type], Clip],
  count_sum_factory: tff.aggregators.UnweightedAggregationFactory | None,
) -> tff.aggregators.AggregationFactory:
  """Returns a factory that clips before `inner_agg_factory` aggregates.

  Args:
    inner_agg_factory: Aggregates the clipped values, weighted or not. `None` is
      `tff.aggregators.SumFactory()`.
    make_clip: Makes the clip for a value type that has been checked.
    count_sum_factory: Sums the counts. `None` is a plain sum, or no counts if
      anything inside `inner_agg_factory` adds noise.

  Returns:
    A factory, weighted if `inner_agg_factory` is. Its `create` raises a
    `TypeError` if that is both weighted and adds noise, and a `ValueError` if
    `count_sum_factory` is given where that adds noise.

  Raises:
    TypeError: If an argument is no factory, or that of the counts has weights.
  """
  if inner_agg_factory is None:
    inner_agg_factory = tff.aggregators.SumFactory()
  type_checks.check_factory('inner_agg_factory', inner_agg_factory)
  if count_sum_factory is not None:
    type_checks.check_unweighted_factory('count_sum_factory', count_sum_factory)
  if isinstance(inner_agg_factory, tff.aggregators.WeightedAggregationFactory):
    return _WeightedClippingFactory(
      inner_agg_factory, make_clip, count_sum_factory
    )
  return _UnweightedClippingFactory(
    inner_agg_factory, make_clip, count_sum_factory
  )


class _UnweightedClippingFactory(tff.aggregators.UnweightedAggregationFactory):
  """Clips, then aggregates without weights."""

  def __init__(self, inner_agg_factory, make_clip, count_sum_factory):
    self._inner_agg_factory = inner_agg_factory
    self._make_clip = make_clip
    self._count_sum_factory = count_sum_factory

  def create(self, value_type: Any) -> tff.templates.AggregationProcess:
    """Creates the process for values of `value_type`; see the base class."""
    type_checks.check_float_leaves(value_type)
    inner = self._inner_agg_factory.create(value_type)
    composition_rules.check_keeps_norms(self._inner_agg_factory, inner)
    parts = _Parts(self._make_clip(value_type), inner, self._count_sum_factory)
    initialize = parts.initialize_computation()

    @tff.federated_computation(
      initialize.type_signature.result,
      tff.FederatedType(value_type, tff.CLIENTS),
    )
    def next_fn(state, value):
      return parts.next(state, value)

    return tff.templates.AggregationProcess(initialize, next_fn)


class _WeightedClippingFactory(tff.aggregators.WeightedAggregationFactory):
  """Clips, then aggregates with weights, which the clip does not touch."""

  def __init__(self, inner_agg_factory, make_clip, count_sum_factory):
    self._inner_agg_factory = inner_agg_factory
    self._make_clip = make_clip
    self._count_sum_factory = count_sum_factory

  def create(
    self, value_type: Any, weight_type: Any
  ) -> tff.templates.AggregationProcess:
    """Creates the process for `value_type`; see the base class."""
    type_checks.check_float_leaves(value_type)
    inner = self._inner_agg_factory.create(value_type, weight_type)
    if inspect_process.adds_noise(inner.state_type):
      raise TypeError(
        '`inner_agg_factory` must be unweighted where noise is added, found '
        f'{type(self._inner_agg_factory).__name__}: weights, such as example '
        'counts, change how much one client can move the result.'
      )
    parts = _Parts(self._make_clip(value_type), inner, self._count_sum_factory)
    initialize = parts.initialize_computation()

    @tff.federated_computation(
      initialize.type_signature.result,
      tff.FederatedType(value_type, tff.CLIENTS),
      tff.FederatedType(weight_type, tff.CLIENTS),
    )
    def next_fn(state, value, weight):
      return parts.next(state, value, weight)

    return tff.templates.AggregationProcess(initialize, next_fn)


class _Parts:
  """The computations of one clipping process."""

  def __init__(self, clip, inner, count_sum_factory):
    self._clip = clip
    self._inner = inner
    if inspect_process.adds_noise(inner.state_type):
      if count_sum_factory is not None:
        raise ValueError(
          '`count_sum_factory` must be `None` where noise is added, since the '
          f'counts are exact, found {type(count_sum_factory).__name__}.'
        )
      if clip.is_estimated:
        raise composition_rules.uncharged_norm(
          clip.norm_name, 'an estimation process'
        )
    elif count_sum_factory is None:
      count_sum_factory = tff.aggregators.SumFactory()
    self._counts = None
    if count_sum_factory is not None:
      self._counts = count_sum_factory.create(
        clip.computation.type_signature.result[2]
      )

  def initialize_computation(self):
    """Returns the computation of the initial state."""

    @tff.federated_computation
    def initialize():
      nothing = tff.federated_value((), tff.SERVER)
      state = collections.OrderedDict()
      state[self._clip.norm_name] = (
        self._clip.norm.initialize() if self._clip.is_estimated else nothing
      )
      state['inner_agg'] = self._inner.initialize()
      state['count_agg'] = (
        nothing if self._counts is None else self._counts.initialize()
      )
      return tff.federated_zip(state)

    return initialize

  def next(self, state, value, *weight):
    """Traces one round."""
    clip = self._clip
    if clip.is_estimated:
      norm = clip.norm.report(state[clip.norm_name])
      clipped, norms, counts = tff.federated_map(
        clip.computation, (value, tff.federated_broadcast(norm))
      )
      norm_state = clip.norm.next(state[clip.norm_name], norms)
    else:
      norm = tff.federated_value(clip.norm, tff.SERVER)
      clipped, _, counts = tff.federated_map(clip.computation, value)
      norm_state = state[clip.norm_name]
    inner_output = self._inner.next(state['inner_agg'], clipped, *weight)
    new_state = collections.OrderedDict()
    new_state[clip.norm_name] = norm_state
    new_state['inner_agg'] = inner_output.state
    new_state['count_agg'] = state['count_agg']
    measurements = collections.OrderedDict(clipping=inner_output.measurements)
    measurements[clip.norm_name] = norm
    if self._counts is not None:
      count_output = self._counts.next(state['count_agg'], counts)
      new_state['count_agg'] = count_output.state
      for name in tff.structure.name_list(
        clip.computation.type_signature.result[2]
      ):
        measurements[name] = count_output.result[name]
    return tff.templates.MeasuredProcessOutput(
      state=tff.federated_zip(new_state),
      result=inner_output.result,
      measurements=tff.federated_zip(measurements),
    )
