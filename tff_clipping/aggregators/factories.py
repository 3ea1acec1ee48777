"""Checks of aggregation factories, and factories around others."""

import collections
from collections.abc import Callable
from typing import Any, TypeAlias

import tensorflow as tf
import tensorflow_federated as tff

from tff_clipping.aggregators import values

SumFactory: TypeAlias = tff.aggregators.UnweightedAggregationFactory

# Returns the initial state and a trace of a round, from the type of the values
# and a function that creates the inner process for a type. The trace takes the
# state, the values and, where there are some, the weights.
BuildWrapper: TypeAlias = Callable[
  [tff.Type, Callable[[Any], tff.templates.AggregationProcess]],
  tuple[tff.Computation, Callable[..., tff.templates.MeasuredProcessOutput]],
]


def check_factory(name: str, value: Any) -> tff.aggregators.AggregationFactory:
  """Returns `value` if it is an aggregation factory, weighted or not.

  Raises:
    TypeError: If `value` is not a factory.
  """
  if not isinstance(
    value,
    (
      tff.aggregators.UnweightedAggregationFactory,
      tff.aggregators.WeightedAggregationFactory,
    ),
  ):
    raise TypeError(
      f'`{name}` must be a `tff.aggregators.AggregationFactory`, found '
      f'{value!r}.'
    )
  return value


def check_sum_factory(name: str, value: Any) -> SumFactory:
  """Returns `value` if it is an unweighted factory; `SumFactory` for `None`.

  Raises:
    TypeError: If `value` is not an unweighted factory.
  """
  if value is None:
    return tff.aggregators.SumFactory()
  return check_unweighted_factory(name, value)


def check_unweighted_factory(name: str, value: Any) -> SumFactory:
  """Returns `value` if it is an unweighted aggregation factory.

  Raises:
    TypeError: If `value` is not an unweighted factory. The message says why
      weights are refused.
  """
  if isinstance(value, tff.aggregators.WeightedAggregationFactory):
    raise TypeError(
      f'`{name}` must be unweighted, found {value!r}: weights, such as example '
      'counts, change how much one client can move the result.'
    )
  if not isinstance(value, tff.aggregators.UnweightedAggregationFactory):
    raise TypeError(
      f'`{name}` must be a `tff.aggregators.UnweightedAggregationFactory`, '
      f'found {value!r}.'
    )
  return value


def wrap_factory(
  inner: tff.aggregators.AggregationFactory, build: BuildWrapper
) -> tff.aggregators.AggregationFactory:
  """Returns a factory around another, which is weighted if the other is.

  Args:
    inner: The other factory.
    build: What the factory does around it.
  """
  if isinstance(inner, tff.aggregators.WeightedAggregationFactory):
    return _WeightedWrapper(inner, build)
  return _UnweightedWrapper(inner, build)


class _UnweightedWrapper(tff.aggregators.UnweightedAggregationFactory):
  """A factory around one without weights."""

  def __init__(self, inner, build):
    self._inner = inner
    self._build = build

  def create(self, value_type: Any) -> tff.templates.AggregationProcess:
    """Creates the process for values of `value_type`; see the base class."""
    values.check_float_leaves(value_type)
    initialize, trace = self._build(value_type, self._inner.create)

    @tff.federated_computation(
      initialize.type_signature.result,
      tff.FederatedType(value_type, tff.CLIENTS),
    )
    def next_fn(state, value):
      return trace(state, value)

    return tff.templates.AggregationProcess(initialize, next_fn)


class _WeightedWrapper(tff.aggregators.WeightedAggregationFactory):
  """A factory around one with weights, which it passes on."""

  def __init__(self, inner, build):
    self._inner = inner
    self._build = build

  def create(
    self, value_type: Any, weight_type: Any
  ) -> tff.templates.AggregationProcess:
    """Creates the process for `value_type`; see the base class."""
    values.check_float_leaves(value_type)
    initialize, trace = self._build(
      value_type, lambda sent: self._inner.create(sent, weight_type)
    )

    @tff.federated_computation(
      initialize.type_signature.result,
      tff.FederatedType(value_type, tff.CLIENTS),
      tff.FederatedType(weight_type, tff.CLIENTS),
    )
    def next_fn(state, value, weight):
      return trace(state, value, weight)

    return tff.templates.AggregationProcess(initialize, next_fn)


def named(measurements: Any) -> collections.OrderedDict:
  """Returns measurements by name, in a graph; others under the name `inner`."""
  if isinstance(measurements, collections.OrderedDict):
    return collections.OrderedDict(measurements)
  if tf.nest.flatten(measurements):
    return collections.OrderedDict(inner=measurements)
  return collections.OrderedDict()
