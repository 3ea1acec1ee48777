"""The one way of private sums, from what clients have to what is released.

  clip -> round to the grid -> sum -> add exact noise -> divide by P

Each noise of this package is `Steps` that go this way; the package `noise` has
the theorems.
"""

import collections
import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff
import tree

from tff_clipping.aggregators import values
from tff_clipping.aggregators.factories import SumFactory
from tff_clipping.aggregators.noise import keys

# The field of a state that has what is kept of the noise.
NOISE_STATE = 'privacy_noise'
_INNER = 'inner_agg'


class Cohort(NamedTuple):
  """Public bounds of a cohort whose clients bring the noise in shares.

  The shares of n clients add up to noise that tells n, and so whether a client
  was there. So the noise that is released is that of the largest cohort,
  whatever n is, and a cohort outside of the bounds is an error and no release.
  """

  least: int
  largest: int


class Steps(NamedTuple):
  """What a round does, as functions of TensorFlow.

  Attributes:
    sum_factory: Sums what clients send.
    initial: Returns what the server keeps before the first round, by name.
    send: Returns what a client adds to the sum, from its value, and from what
      clients are told.
    release: Returns the noised sum, a structure like a value, and what is kept
      after the round; from the sum, what was kept, and the number of clients
      (`None` where the cohort has no bounds).
    measure: Returns the measurements by name, from what was kept.
    tell: Returns what clients are told, from what was kept; `None` if nothing.
  """

  sum_factory: SumFactory
  initial: Callable[[], Mapping[str, Any]]
  send: Callable[..., Any]
  release: Callable[[Any, Any, Any], tuple[Any, Mapping[str, Any]]]
  measure: Callable[[Any], Mapping[str, Any]]
  tell: Callable[[Any], Any] | None = None


# No repr: it would show the key of the noise.
@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class NoisedSumFactory(tff.aggregators.UnweightedAggregationFactory):
  """A private sum, or a mean; see the functions that return it.

  State: what is kept, by name; `inner_agg`, that of the sum. What the sum
  measures is dropped: it has no noise.

  Attributes:
    build: Returns the steps for values of a type.
    denominator: P, a public number.
    cohort: The bounds of a cohort; `None` where any cohort will do.
  """

  build: Callable[[tff.Type], Steps]
  denominator: float = 1.0
  cohort: Cohort | None = None

  def create(self, value_type: Any) -> tff.templates.AggregationProcess:
    """Creates the process for values of `value_type`; see the base class."""
    values.check_float_leaves(value_type)
    specs = values.specs_of(value_type)
    steps = self.build(value_type)
    computation = tff.tensorflow.computation
    initial = computation(steps.initial)
    kept_type = initial.type_signature.result
    names = tff.structure.name_list(kept_type)
    told = []
    if steps.tell is not None:
      tell = computation(steps.tell, kept_type)
      told = [tell.type_signature.result]
    send = computation(steps.send, value_type, *told)
    inner = steps.sum_factory.create(send.type_signature.result)

    def finish(num_clients, total, kept):
      if self.cohort is not None:
        with tf.control_dependencies(_check_cohort(num_clients, self.cohort)):
          total = tf.nest.map_structure(tf.identity, total)
      noised, after = steps.release(total, kept, num_clients)
      mean = tf.nest.map_structure(
        lambda t: t / tf.cast(self.denominator, t.dtype), noised
      )
      return (
        values.narrow(mean, specs),
        after,
        collections.OrderedDict(steps.measure(kept)),
      )

    sum_type = inner.next.type_signature.result.result.member
    if self.cohort is None:
      release = computation(
        functools.partial(finish, None), sum_type, kept_type
      )
    else:
      release = computation(finish, np.int32, sum_type, kept_type)

    def zip_state(kept, inner_state):
      fields = [(name, kept[name]) for name in names]
      return tff.federated_zip(
        collections.OrderedDict([*fields, (_INNER, inner_state)])
      )

    @tff.federated_computation
    def initialize():
      kept = tff.federated_eval(initial, tff.SERVER)
      return zip_state(kept, inner.initialize())

    @tff.federated_computation(
      initialize.type_signature.result,
      tff.FederatedType(value_type, tff.CLIENTS),
    )
    def next_fn(state, value):
      kept = tff.federated_zip(
        collections.OrderedDict((name, state[name]) for name in names)
      )
      if steps.tell is not None:
        value = value, tff.federated_broadcast(tff.federated_map(tell, kept))
      output = inner.next(state[_INNER], tff.federated_map(send, value))
      given = [output.result, kept]
      if self.cohort is not None:
        given.insert(0, tff.federated_sum(tff.federated_value(1, tff.CLIENTS)))
      result, after, measurements = tff.federated_map(release, tuple(given))
      return tff.templates.MeasuredProcessOutput(
        zip_state(after, output.state), result, measurements
      )

    return tff.templates.AggregationProcess(initialize, next_fn)


def has_seed(state: Any) -> bool:
  """Returns whether noise in a state comes from a seed that was given.

  Args:
    state: The state of a process, or of one that holds it.
  """
  return any(
    NOISE_STATE in path and path[-1] == keys.KEY
    for path, _ in tree.flatten_with_path(state)
  )


def check_next_round(state: Any, round_num: int) -> None:
  """Raises if a state would noise a round as another one was noised.

  Args:
    state: The state of a process, or of one that holds it.
    round_num: The round that is to be run from it, from 1.

  Raises:
    ValueError: If noise in the state depends on the round, and is that of
      another round. Noise that is fresh in each round is of none.
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


def _check_cohort(num_clients: tf.Tensor, cohort: Cohort) -> list[tf.Operation]:
  """Returns what fails in a graph if a cohort is out of bounds."""
  return [
    tf.debugging.assert_greater_equal(
      num_clients,
      cohort.least,
      message='A cohort below `min_clients_per_round`: nothing is released.',
    ),
    tf.debugging.assert_less_equal(
      num_clients,
      cohort.largest,
      message='A cohort above `max_clients_per_round`: nothing is released.',
    ),
  ]
