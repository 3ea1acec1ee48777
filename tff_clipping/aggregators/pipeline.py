"""The one way of private sums, from what clients have to what is released.

  clip -> round to the grid -> sum -> add exact noise -> divide by P

Each noise of this package is `Steps` that go this way; the package `noise` has
the theorems.
"""

import collections
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import tensorflow as tf
import tensorflow_federated as tff
import tree

from tff_clipping.aggregators import factories, values
from tff_clipping.aggregators.factories import SumFactory
from tff_clipping.aggregators.noise import keys

# The field of a state that has what is kept of the noise.
NOISE_STATE = 'privacy_noise'
_INNER = 'inner_agg'


class Steps(NamedTuple):
  """What a round does, as functions of TensorFlow.

  Attributes:
    sum_factory: Sums what clients send.
    initial: Returns what the server keeps before the first round, by name.
    send: Returns what a client adds to the sum, and a number that is added up
      beside it, or (); from its value, and from what clients are told.
    release: Returns the noised sum, a structure like a value; what is kept
      after the round; and the measurements, by name. It takes the sum, what was
      kept, and the sum of the numbers.
    told: The name of what is kept that clients are told; `None` if nothing.
    number_factory: Sums the numbers, and keeps nothing.
  """

  sum_factory: SumFactory
  initial: Callable[[], Mapping[str, Any]]
  send: Callable[..., tuple[Any, Any]]
  release: Callable[
    [Any, Any, Any], tuple[Any, Mapping[str, Any], Mapping[str, Any]]
  ]
  told: str | None = None
  number_factory: SumFactory = tff.aggregators.SumFactory()


def build_factory(
  build: Callable[[tff.Type], Steps], denominator: float = 1.0
) -> SumFactory:
  """Returns the factory of a private sum, or mean, from steps for a type.

  State: what is kept, by name; `inner_agg`, that of the sum. What the sum
  measures is dropped: it has no noise.
  """

  def create(value_type):
    specs = values.specs_of(value_type)
    steps = build(value_type)
    initial = tff.tensorflow.computation(steps.initial)
    kept_type = initial.type_signature.result
    names = tff.structure.name_list(kept_type)
    told_type = [] if steps.told is None else [kept_type[steps.told]]
    send = tff.tensorflow.computation(steps.send, value_type, *told_type)
    sent_type, number_type = send.type_signature.result
    inner = steps.sum_factory.create(sent_type)
    has_number = bool(tff.structure.flatten(number_type))
    numbers = steps.number_factory.create(number_type) if has_number else None

    @tff.tensorflow.computation(
      inner.next.type_signature.result.result.member, kept_type, number_type
    )
    def release(total, kept, number):
      noised, after, measured = steps.release(total, kept, number)
      mean = tf.nest.map_structure(lambda t: t / denominator, noised)
      return (
        values.narrow(mean, specs),
        after,
        collections.OrderedDict(measured),
      )

    def zip_state(kept, inner_state):
      fields = [(name, kept[name]) for name in names]
      return tff.federated_zip(
        collections.OrderedDict([*fields, (_INNER, inner_state)])
      )

    @tff.federated_computation
    def initialize():
      kept = tff.federated_eval(initial, tff.SERVER)
      return zip_state(kept, inner.initialize())

    def trace(state, value):
      kept = tff.federated_zip(
        collections.OrderedDict((name, state[name]) for name in names)
      )
      if steps.told is not None:
        value = value, tff.federated_broadcast(state[steps.told])
      sent, number = tff.federated_map(send, value)
      output = inner.next(state[_INNER], sent)
      if numbers is None:
        number = tff.federated_value((), tff.SERVER)
      else:
        number = numbers.next(numbers.initialize(), number).result
      result, after, measurements = tff.federated_map(
        release, (output.result, kept, number)
      )
      return tff.templates.MeasuredProcessOutput(
        zip_state(after, output.state), result, measurements
      )

    return factories.build_process(initialize, trace, value_type)

  return factories.UnweightedFactory(create)


def check_cohort(
  total: Any, num_clients: tf.Tensor, least: int, largest: int
) -> Any:
  """Returns a sum, in a graph that fails if the cohort is out of bounds."""
  checks = [
    tf.debugging.assert_greater_equal(
      num_clients,
      least,
      message='A cohort below `min_clients_per_round`: nothing is released.',
    ),
    tf.debugging.assert_less_equal(
      num_clients,
      largest,
      message='A cohort above `max_clients_per_round`: nothing is released.',
    ),
  ]
  with tf.control_dependencies(checks):
    return tf.nest.map_structure(tf.identity, total)


def has_seed(state: Any) -> bool:
  """Returns whether noise in a state, or in one inside it, is from a seed."""
  return any(
    NOISE_STATE in path and path[-1] == keys.KEY
    for path, _ in tree.flatten_with_path(state)
  )


def check_next_round(state: Any, round_num: int) -> None:
  """Raises if a state would noise a round as another one was noised.

  `state` is that of a process, or of one that holds it; rounds count from 1.
  Noise that is fresh in each round is of no round.
  """
  for path, leaf in tree.flatten_with_path(state):
    if NOISE_STATE in path and path[-1] == keys.ROUND:
      if int(leaf) != round_num - 1:
        raise ValueError(
          f'`state` must be that before round {round_num}, found one with the '
          f'noise of round {int(leaf) + 1}: the same noise on two results does '
          'not hide their difference. Another run begins with a new state, '
          'with its `initialize`, and the weights of this one.'
        )
