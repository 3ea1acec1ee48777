"""Factories around others, and checks of factories that are given."""

import collections
from collections.abc import Callable
from typing import Any, TypeAlias

import tensorflow as tf
import tensorflow_federated as tff

from tff_clipping.aggregators import values
from tff_clipping.mechanism import MECHANISM

SumFactory: TypeAlias = tff.aggregators.UnweightedAggregationFactory


def check_unweighted_factory(name: str, value: Any) -> SumFactory:
  """Returns `value` if it is an unweighted aggregation factory."""
  if not isinstance(value, tff.aggregators.UnweightedAggregationFactory):
    raise TypeError(
      f'`{name}` must be a `tff.aggregators.UnweightedAggregationFactory`, '
      f'found {value!r}. Weights, such as counts of examples, change how much '
      'one client can move the result.'
    )
  return value


def check_sum_factory(name: str, value: Any) -> SumFactory:
  """Returns an unweighted factory; `tff.aggregators.SumFactory` for `None`."""
  if value is None:
    return tff.aggregators.SumFactory()
  return check_unweighted_factory(name, value)


class _FactoryOf:
  """A factory whose processes come from a function of the clients' types."""

  def __init__(self, create: Callable[..., tff.templates.AggregationProcess]):
    self._create = create

  def create(
    self, value_type: Any, *weight_type: Any
  ) -> tff.templates.AggregationProcess:
    """Creates the process for values of `value_type`; see the base class."""
    return self._create(values.check_float_leaves(value_type), *weight_type)


class UnweightedFactory(
  _FactoryOf, tff.aggregators.UnweightedAggregationFactory
):
  """A factory of a function of the values' type."""


class _WeightedFactory(_FactoryOf, tff.aggregators.WeightedAggregationFactory):
  """A factory of a function of the types of values and weights."""


def wrap_factory(
  inner: tff.aggregators.AggregationFactory,
  build: Callable[..., tuple[tff.Computation, Callable[..., Any]]],
) -> tff.aggregators.AggregationFactory:
  """Returns a factory around another, which is weighted if the other is.

  `build` takes the type of the values and a function that creates the inner
  process for a type. It returns what `build_process` takes.
  """
  if not isinstance(inner, tff.aggregators.AggregationFactory):
    raise TypeError(
      '`inner_agg_factory` must be a `tff.aggregators.AggregationFactory`, '
      f'found {inner!r}.'
    )

  def create(value_type, *weight_type):
    initialize, trace = build(
      value_type, lambda sent_type: inner.create(sent_type, *weight_type)
    )
    return build_process(initialize, trace, value_type, *weight_type)

  if isinstance(inner, tff.aggregators.WeightedAggregationFactory):
    return _WeightedFactory(create)
  return UnweightedFactory(create)


def build_process(
  initialize: tff.Computation,
  trace: Callable[..., tff.templates.MeasuredProcessOutput],
  *client_types: Any,
) -> tff.templates.AggregationProcess:
  """Returns the process of an initial state and a trace of a round.

  The trace takes the state, the values and, if there are some, the weights;
  `client_types` are those of the values and of the weights.
  """
  types = [initialize.type_signature.result]
  types += [tff.FederatedType(t, tff.CLIENTS) for t in client_types]
  names = ('state', 'value', 'weight')[: len(types)]

  @tff.federated_computation(
    collections.OrderedDict(zip(names, types, strict=True))
  )
  def next_fn(given):
    return trace(*given)

  return tff.templates.AggregationProcess(initialize, next_fn)


def measuring_factory(
  inner: tff.aggregators.AggregationFactory,
  build: Callable[[tff.Type], tuple[Callable[..., Any], Callable[..., Any]]],
  *,
  keeps_record: bool,
) -> tff.aggregators.AggregationFactory:
  """Returns a factory with more measurements beside those of another.

  Measurements without names get the name `inner`. `build` takes the type of the
  values and returns two functions. One makes of the values and the result what
  is measured, a value at the server. The other, of TensorFlow, returns the
  measurements by name. `keeps_record` tells whether they are functions of the
  result alone: then the record of a mechanism still holds, and lists them.
  """

  def build_around(value_type, create_inner):
    process = create_inner(value_type)
    see, measure = build(value_type)

    def trace(state, value, *weight):
      output = process.next(state, value, *weight)
      seen = see(value, output.result)

      @tff.tensorflow.computation(
        output.measurements.type_signature.member, seen.type_signature.member
      )
      def join(measurements, seen):
        joined = collections.OrderedDict()
        if isinstance(measurements, collections.OrderedDict):
          joined.update(measurements)
        elif tf.nest.flatten(measurements):
          joined['inner'] = measurements
        record = joined.pop(MECHANISM, None)
        more = measure(seen)
        if keeps_record and record is not None:
          # A record has one list, that of the public names.
          names = ''.join(f'"{name}", ' for name in more)
          record = tf.strings.regex_replace(record, r'\["', f'[{names}"')
          joined[MECHANISM] = record
        joined.update(more)
        return joined

      return tff.templates.MeasuredProcessOutput(
        output.state,
        output.result,
        tff.federated_map(join, (output.measurements, seen)),
      )

    return process.initialize, trace

  return wrap_factory(inner, build_around)
