"""Transforms the values before an aggregator, or the result after it."""

from collections.abc import Callable
from typing import Any

import tensorflow_federated as tff

from tff_clipping.aggregators import factories
from tff_clipping.aggregators.factories import SumFactory


def transformed_factory(
  inner: SumFactory,
  *,
  before: Callable[[Any], Any] | None = None,
  after: Callable[[Any], Any] | None = None,
) -> SumFactory:
  """Transforms clients' values, aggregates them, and transforms the result.

  At CLIENTS, u_i = before(x_i). At SERVER, after(the result of `inner` for all
  u_i).

  Guarantee: that of `inner`, with the record of its mechanism. A client's u_i
  depends on its own x_i alone, and what comes after depends on nothing but what
  `inner` releases.

  State and measurements: those of `inner`.

  Example:
    signs = transformed_factory(
      dp_mean_factory(...), before=lambda x: tf.nest.map_structure(tf.sign, x)
    )

  Args:
    inner: Aggregates what `before` returns.
    before: A function of TensorFlow of a client's value.
    after: A function of TensorFlow of the result; what it returns has the type
      of a client's value, where a model is trained.
  """
  factories.check_unweighted_factory('inner', inner)
  for name, function in (('before', before), ('after', after)):
    if function is not None and not callable(function):
      raise TypeError(f'`{name}` must be a function, found {function!r}.')

  def build(value_type, create_inner):
    sent = tff.tensorflow.computation(
      lambda x: before(x) if before else x, value_type
    )
    process = create_inner(sent.type_signature.result)
    result_type = process.next.type_signature.result.result.member
    received = tff.tensorflow.computation(
      lambda x: after(x) if after else x, result_type
    )

    def trace(state, value):
      output = process.next(state, tff.federated_map(sent, value))
      return tff.templates.MeasuredProcessOutput(
        output.state,
        tff.federated_map(received, output.result),
        output.measurements,
      )

    return process.initialize, trace

  return factories.wrap_factory(inner, build)
