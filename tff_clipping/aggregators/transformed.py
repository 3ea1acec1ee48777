"""Changes what goes into an aggregator, or what comes out of it."""

from collections.abc import Callable
from typing import Any

import tensorflow_federated as tff

from tff_clipping.aggregators.parts import type_checks


def transformed_factory(
  inner: tff.aggregators.UnweightedAggregationFactory,
  *,
  before: Callable[[Any], Any] | None = None,
  after: Callable[[Any], Any] | None = None,
) -> tff.aggregators.UnweightedAggregationFactory:
  """Aggregates what clients make of their values, and changes the result.

  At CLIENTS, u_i = before(x_i). At SERVER, after(the result of `inner` for all
  u_i).

  Guarantee: that of `inner`. A client's u_i depends on its own x_i alone, and
  what comes after depends on nothing but what `inner` releases. Around
  `dp_mean_factory`, `before` is before the clip and `after` is after the noise,
  and the record of the mechanism holds.

  State and measurements: those of `inner`.

  Example:
    signs = transformed_factory(
      dp_mean_factory(...), before=lambda x: tf.nest.map_structure(tf.sign, x)
    )

  Args:
    inner: Aggregates what `before` returns.
    before: A function of TensorFlow of a client's value. `None` leaves it as it
      is.
    after: A function of TensorFlow of the result; what it returns has the type
      of a client's value, where a model is trained. `None` leaves it as it is.

  Returns:
    An unweighted aggregation factory.

  Raises:
    TypeError: If `inner` is no unweighted factory, or the others no functions.
  """
  type_checks.check_unweighted_factory('inner', inner)
  for name, function in (('before', before), ('after', after)):
    if function is not None and not callable(function):
      raise TypeError(f'`{name}` must be a function, found {function!r}.')
  return _TransformedFactory(inner, before, after)


class _TransformedFactory(tff.aggregators.UnweightedAggregationFactory):
  """What `transformed_factory` returns."""

  def __init__(self, inner, before, after):
    self._inner = inner
    self._before = before
    self._after = after

  def create(self, value_type: Any) -> tff.templates.AggregationProcess:
    """Creates the process for values of `value_type`; see the base class."""
    before = _computation(self._before, value_type)
    sent_type = value_type if before is None else before.type_signature.result
    inner = self._inner.create(sent_type)
    result_type = inner.next.type_signature.result.result.member
    after = _computation(self._after, result_type)

    @tff.federated_computation(
      inner.initialize.type_signature.result,
      tff.FederatedType(value_type, tff.CLIENTS),
    )
    def next_fn(state, value):
      if before is not None:
        value = tff.federated_map(before, value)
      output = inner.next(state, value)
      result = output.result
      if after is not None:
        result = tff.federated_map(after, result)
      # The record of a mechanism among them: what comes before its clip, or
      # after its noise, takes nothing from it.
      return tff.templates.MeasuredProcessOutput(
        output.state, result, output.measurements
      )

    return tff.templates.AggregationProcess(inner.initialize, next_fn)


def _computation(
  function: Callable[[Any], Any] | None, value_type: Any
) -> tff.Computation | None:
  """Returns a function of TensorFlow as TFF computes it."""
  if function is None:
    return None

  @tff.tensorflow.computation(value_type)
  def compute(value):
    return function(value)

  return compute
