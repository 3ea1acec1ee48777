"""A sum with exact noise, from what clients send to what is released.

  clip -> round to the grid -> sum -> add noise on the grid -> divide by P

Sums with noise of the server go this way, as `gaussian_draws` has proved it:
clients' values are rounded towards zero to a grid that is fixed before the
data, so that no norm becomes longer; sums of values on the grid are exact in
`float64`; and the noise is drawn on the grid.
"""

import collections
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import tensorflow as tf
import tensorflow_federated as tff

from tff_clipping.aggregators.parts import (
  float64_values,
  gaussian_draws,
  type_checks,
)

# The field of a state that has what is kept of the noise.
NOISE_STATE = 'privacy_noise'


class ServerNoise(NamedTuple):
  """Noise that the server adds to a sum.

  Attributes:
    initial: A TensorFlow computation without an argument: what is kept of the
      noise before the first round.
    step: Returns the step of the grid of what is noised, in a graph.
    add: Returns a sum with noise and what is kept after the round, from the sum
      and what is kept before; in a graph.
  """

  initial: tff.Computation
  step: Callable[[], tf.Tensor]
  add: Callable[[Any, Any], tuple[Any, Any]]


def build_noised_sum(
  value_type: Any,
  sum_factory: tff.aggregators.UnweightedAggregationFactory,
  noise: ServerNoise,
  *,
  clip: Callable[[Any], Any] = lambda value: value,
  bound: float = math.inf,
  denominator: float = 1.0,
  constants: Mapping[str, Any],
) -> tff.templates.AggregationProcess:
  """Returns the process that clips, sums, adds noise and divides.

  State: `privacy_noise`, what is kept of the noise; `inner_agg`, that of the
  sum. Measurements: the constants. What the sum measures is dropped: it has no
  noise.

  Args:
    value_type: The type of the clients' values.
    sum_factory: Sums the values, which are `float64` on the grid.
    noise: What is added.
    clip: Returns the clipped value of a client; in a graph.
    bound: No element of a clipped value is larger, nor NaN; infinite if nothing
      is known.
    denominator: P, a public number.
    constants: What is measured, by name.

  Raises:
    TypeError: If a leaf is not floating-point.
  """
  type_checks.check_float_leaves(value_type)
  dtypes = float64_values.dtypes_of(value_type)

  @tff.tensorflow.computation(value_type)
  def send(value):
    return to_grid(clip(value), noise.step(), bound)

  inner = sum_factory.create(send.type_signature.result)

  @tff.tensorflow.computation(
    inner.next.type_signature.result.result.member,
    noise.initial.type_signature.result,
  )
  def release(total, noise_state):
    noised, next_state = noise.add(total, noise_state)
    return divide(noised, denominator, dtypes), next_state

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
    output = inner.next(state['inner_agg'], tff.federated_map(send, value))
    result, noise_state = tff.federated_map(
      release, (output.result, state[NOISE_STATE])
    )
    return tff.templates.MeasuredProcessOutput(
      zip_state(noise_state, output.state), result, at_server(constants)
    )

  return tff.templates.AggregationProcess(initialize, next_fn)


def to_grid(value: Any, step: tf.Tensor, bound: Any = math.inf) -> Any:
  """Returns a value on the grid, in `float64`; in a graph.

  Args:
    value: A structure of floating-point tensors. It is rounded in a type as
      narrow as may be, which is faster, and then widened.
    step: Of the grid, a power of 2.
    bound: No element is larger, nor NaN.
  """
  on_grid = gaussian_draws.round_towards_zero(
    float64_values.widen(value, tf.float32), step, bound
  )
  return float64_values.widen(on_grid)


def divide(noised: Any, denominator: float, dtypes: Any) -> Any:
  """Returns a noised sum over P, in the types of the clients' values."""
  return float64_values.narrow(
    tf.nest.map_structure(lambda t: t / tf.cast(denominator, t.dtype), noised),
    dtypes,
  )


def at_server(measurements: Mapping[str, Any]) -> tff.Value:
  """Returns constants, and values at the server, as measurements."""
  return tff.federated_zip(
    collections.OrderedDict(
      (
        name,
        value
        if isinstance(value, tff.Value)
        else tff.federated_value(value, tff.SERVER),
      )
      for name, value in measurements.items()
    )
  )


def zip_state(
  noise_state: tff.Value, inner_state: tff.Value, **first: tff.Value
) -> tff.Value:
  """Returns the state of a process that adds noise.

  Args:
    noise_state: What is kept of the noise, at the server.
    inner_state: The state of the sum, at the server.
    **first: The states that stand before these two, at the server.
  """
  return tff.federated_zip(
    collections.OrderedDict(
      [*first.items(), (NOISE_STATE, noise_state), ('inner_agg', inner_state)]
    )
  )
