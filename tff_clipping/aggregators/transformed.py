"""Changes what goes into an aggregator, or what comes out of it."""

from collections.abc import Callable
from typing import Any

import tensorflow_federated as tff

from tff_clipping.aggregators.parts import private_mean, type_checks


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
  `dp_mean_factory`, `before` is before the clip and `after` is after the noise:
  `tasks.train` knows then, without being told, that the noise is the plan's.

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
  return private_mean.Transformed(inner, before, after)
