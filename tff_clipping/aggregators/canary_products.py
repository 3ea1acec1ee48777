"""Measures how far each release points into the directions of canaries."""

import collections
import math
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

from tff_clipping.aggregators.parts import canary_directions, type_checks


def add_canary_products(
  inner_agg_factory: tff.aggregators.UnweightedAggregationFactory,
  canaries: canary_directions.Canaries,
) -> tff.aggregators.UnweightedAggregationFactory:
  """Measures the products of each result with the directions of canaries.

  For the audit of a pipeline, `tff_clipping.privacy.audit`: the canaries are
  clients of the cohort that send their directions, and go through all that
  `inner_agg_factory` does to clients. This looks at what comes out, at the
  SERVER, before any server optimizer. Put it outside of everything else. The
  result and the state of `inner_agg_factory` are unchanged.

  A product is a function of the result alone, so that it reveals no more than
  the result does, and the record of a mechanism inside holds. Whose direction
  it is does reveal more: keep the canaries' seed with the data.

  Measurements, beside those of `inner_agg_factory` in one `OrderedDict`:
    canary_products: `float64` of shape [m], in the unit of the result. Of a
      mean over P, a canary that was clipped to c adds c / P.

  If the measurements of `inner_agg_factory` are not named, they are under the
  name `inner`.

  Args:
    inner_agg_factory: Aggregates the values; unweighted.
    canaries: A `tff_clipping.privacy.audit.Canaries`.

  Returns:
    An unweighted aggregation factory.

  Raises:
    TypeError: If `inner_agg_factory` is not an unweighted factory.
    ValueError: By `create`, if the values have another number of elements than
      the canaries' directions.
  """
  type_checks.check_unweighted_factory('inner_agg_factory', inner_agg_factory)
  return _CanaryProductsFactory(inner_agg_factory, canaries)


class _CanaryProductsFactory(tff.aggregators.UnweightedAggregationFactory):
  """What `add_canary_products` returns."""

  def __init__(self, inner_agg_factory, canaries):
    self._inner_agg_factory = inner_agg_factory
    self._canaries = canaries

  def create(self, value_type: Any) -> tff.templates.AggregationProcess:
    """Creates the process for values of `value_type`; see the base class."""
    type_checks.check_float_leaves(value_type)
    found = sum(
      math.prod(leaf.shape) for leaf in tff.structure.flatten(value_type)
    )
    if found != self._canaries.num_parameters:
      raise ValueError(
        '`canaries` must have the `num_parameters` of the values, which have '
        f'{found} elements, found {self._canaries.num_parameters}.'
      )
    inner = self._inner_agg_factory.create(value_type)
    output_type = inner.next.type_signature.result

    @tff.tensorflow.computation(
      output_type.measurements.member, output_type.result.member
    )
    def measure(measurements, result):
      if isinstance(measurements, collections.OrderedDict):
        joined = collections.OrderedDict(measurements)
      elif tf.nest.flatten(measurements):
        joined = collections.OrderedDict(inner=measurements)
      else:
        joined = collections.OrderedDict()
      joined['canary_products'] = canary_directions.project(
        self._canaries, result
      )
      return joined

    @tff.federated_computation(
      inner.initialize.type_signature.result,
      tff.FederatedType(value_type, tff.CLIENTS),
    )
    def next_fn(state, value):
      output = inner.next(state, value)
      return tff.templates.MeasuredProcessOutput(
        state=output.state,
        result=output.result,
        measurements=tff.federated_map(
          measure, (output.measurements, output.result)
        ),
      )

    return tff.templates.AggregationProcess(inner.initialize, next_fn)
