"""A private mean that is known by its type, so that nothing has to be guessed.

A factory of somebody's own may do anything between the clip and the noise. One
that is made of these alone cannot: what a client sends reaches nobody but
through a clip, a plain sum and noise.
"""

import collections
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow_federated as tff

from tff_clipping.mechanism import MECHANISM, Mechanism


class PrivateMean(tff.aggregators.UnweightedAggregationFactory):
  """A clip, a sum, noise on it and a public denominator, with their record.

  Attributes:
    mechanism: What it does in each round, measured as `mechanism`.
  """

  def __init__(
    self,
    factory: tff.aggregators.UnweightedAggregationFactory,
    mechanism: Mechanism,
  ):
    """Initializes the factory; `factory` is what does it."""
    self._factory = factory
    self.mechanism = mechanism

  @property
  def noise_multiplier(self) -> float:
    """z of all that it releases of a round."""
    return self.mechanism.noise_multiplier

  def create(self, value_type: Any) -> tff.templates.AggregationProcess:
    """Creates the process of the factory; see the base class."""
    inner = self._factory.create(value_type)
    measured_type = inner.next.type_signature.result.measurements.member

    @tff.tensorflow.computation(measured_type, np.str_)
    def join(measured, record):
      return collections.OrderedDict([(MECHANISM, record), *measured.items()])

    @tff.federated_computation(
      inner.initialize.type_signature.result,
      tff.FederatedType(value_type, tff.CLIENTS),
    )
    def next_fn(state, value):
      output = inner.next(state, value)
      record = tff.federated_value(self.mechanism.to_json(), tff.SERVER)
      return tff.templates.MeasuredProcessOutput(
        output.state,
        output.result,
        tff.federated_map(join, (output.measurements, record)),
      )

    return tff.templates.AggregationProcess(inner.initialize, next_fn)


class Transformed(tff.aggregators.UnweightedAggregationFactory):
  """What `transformed_factory` returns.

  Attributes:
    inner: What aggregates what clients make of their values.
  """

  def __init__(
    self,
    inner: tff.aggregators.UnweightedAggregationFactory,
    before: Callable[[Any], Any] | None,
    after: Callable[[Any], Any] | None,
  ):
    """Initializes the factory; see `transformed_factory`."""
    self.inner = inner
    self._before = before
    self._after = after

  def create(self, value_type: Any) -> tff.templates.AggregationProcess:
    """Creates the process for values of `value_type`; see the base class."""
    before = _computation(self._before, value_type)
    sent_type = value_type if before is None else before.type_signature.result
    inner = self.inner.create(sent_type)
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
      return tff.templates.MeasuredProcessOutput(
        output.state, result, output.measurements
      )

    return tff.templates.AggregationProcess(inner.initialize, next_fn)


def find_noise_multiplier(factory: Any) -> float | None:
  """Returns z where the type of a factory says that it clips and adds noise.

  A subclass may do anything, and is none of these.

  Args:
    factory: Any object.

  Returns:
    z; `None` where nothing is known.
  """
  while type(factory) is Transformed:
    factory = factory.inner
  if type(factory) is PrivateMean:
    return factory.noise_multiplier
  return None


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
