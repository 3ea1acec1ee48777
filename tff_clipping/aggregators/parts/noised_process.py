"""The process around noise at the server: clients' grid, sum, state, measures.

What adds the noise is given; `gaussian_draws.add_gaussian_noise` for most.
"""

import collections
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import tensorflow as tf
import tensorflow_federated as tff

from tff_clipping.aggregators.parts import (
  composition_rules,
  float64_values,
  gaussian_draws,
  inspect_process,
  public_measurements,
  type_checks,
)


class ServerNoise(NamedTuple):
  """What is added to an aggregate, and what of it is kept between rounds.

  Attributes:
    initial: A TensorFlow computation without an argument: the state of the
      noise before the first round.
    add: Returns an aggregate with noise and the state after the round, from the
      aggregate and the state before; in a graph.
  """

  initial: tff.Computation
  add: Callable[[Any, Any], tuple[Any, Any]]


def build_noised_process(
  value_type: Any,
  inner_agg_factory: tff.aggregators.UnweightedAggregationFactory,
  build_noise: Callable[[tff.Type], ServerNoise],
  *,
  step: Callable[[], tf.Tensor],
  bound: float,
  constants: Mapping[str, Any],
) -> tff.templates.AggregationProcess:
  """Returns the process that aggregates and then adds noise.

  State: `privacy_noise`, that of the noise; `inner_agg`. Measurements: the
  constants, and those of the inner process that are safe to report.

  Args:
    value_type: The type of the clients' values; they are aggregated in
      `float64`.
    inner_agg_factory: Aggregates the values.
    build_noise: Returns the noise for an aggregate of a type.
    step: Returns the step of the grid of what is noised, in a graph. Clients'
      values are rounded towards zero to it.
    bound: No element of a client's value is larger, nor NaN; infinite if
      nothing is known.
    constants: What is measured of the noise, by name.

  Raises:
    TypeError: If a leaf is not floating-point.
    ValueError: If a clipping norm inside is estimated, or what is inside is no
      sum.
  """
  type_checks.check_float_leaves(value_type)
  # Rounded in a type as narrow as may be, and then widened.
  narrow = float64_values.WideValues(value_type, tf.float32)
  wide = float64_values.WideValues(narrow.type)
  inner = inner_agg_factory.create(wide.type)
  composition_rules.check_norms_are_charged(
    'inner_agg_factory', inner.state_type
  )
  composition_rules.check_sum(inner_agg_factory, inner)
  sum_type = inner.next.type_signature.result.result.member
  noise = build_noise(sum_type)

  @tff.tensorflow.computation(narrow.type)
  def to_grid(value):
    return gaussian_draws.round_towards_zero(value, step(), bound)

  @tff.tensorflow.computation(sum_type, noise.initial.type_signature.result)
  def add_noise(value, noise_state):
    noised, next_state = noise.add(value, noise_state)
    return narrow.narrow(noised), next_state

  @tff.federated_computation
  def initialize():
    return zip_state(
      tff.federated_eval(noise.initial, tff.SERVER), inner.initialize()
    )

  @tff.federated_computation(
    initialize.type_signature.result,
    tff.FederatedType(value_type, tff.CLIENTS),
  )
  def next_fn(state, value):
    on_grid = tff.federated_map(to_grid, narrow.widen(value))
    output = inner.next(state['inner_agg'], wide.widen(on_grid))
    noised, noise_state = tff.federated_map(
      add_noise, (output.result, state[inspect_process.NOISE_STATE])
    )
    return tff.templates.MeasuredProcessOutput(
      state=zip_state(noise_state, output.state),
      result=noised,
      measurements=public_measurements.with_public(
        output.measurements, **constants
      ),
    )

  return tff.templates.AggregationProcess(initialize, next_fn)


def zip_state(
  noise_state: tff.Value, inner_state: tff.Value, **first: tff.Value
) -> tff.Value:
  """Returns the state of a process that adds noise.

  It is by these names that `inspect_process` knows one.

  Args:
    noise_state: That of the noise, at the server.
    inner_state: That of the process inside, at the server.
    **first: The states that stand before these two, at the server.
  """
  return tff.federated_zip(
    collections.OrderedDict(
      [
        *first.items(),
        (inspect_process.NOISE_STATE, noise_state),
        ('inner_agg', inner_state),
      ]
    )
  )
