"""What a pipeline that adds noise may report, and what it refuses.

Factories nest in any order, so one factory cannot know what the others do. The
types of their processes tell: every process that adds noise, ours or
`tff.aggregators.DifferentiallyPrivateFactory`, has a field in its state or its
measurements that no other has. Nothing here looks at values.
"""

import collections
from typing import Any

import tensorflow_federated as tff

# Fields of the state of processes that add noise for privacy: the first is that
# of the factories here, the second of TFF's `DifferentiallyPrivateFactory`.
NOISE_STATE = 'privacy_noise'
_NOISE_FIELDS = frozenset({NOISE_STATE, 'dp_event'})

# The state of an estimate that every user's norm enters, in the factories here
# and in TFF's; and the fields that only an estimate with noise has.
_ESTIMATES = frozenset({'clipping_norm', 'zeroing_norm'})
_NOISED_ESTIMATE = frozenset({'stddev', NOISE_STATE})

# Measurements that may leave a private pipeline: they are constants, results of
# noised data, or counts that came by secure summation.
_PUBLIC_MEASUREMENTS = frozenset(
  {
    'clipping_norm',
    'clipping_norms',
    'noise_stddev',
    'secure_sum_bound',
    'secure_sum_out_of_bounds_count',
    'secure_lower_clipped_count',
    'secure_upper_clipped_count',
  }
)


class NeedsUniformWeights(tff.aggregators.UnweightedAggregationFactory):
  """A private factory, which has no weighted form.

  A client's weight, such as its number of examples, changes how much the client
  moves the result, so that noise for a given sensitivity would not hide it; and
  the sum of the weights would be released without noise. The classes of private
  factories are named after this, because TFF's message to who passes one as a
  weighted aggregator is the name of its class.
  """


def adds_noise(process: tff.templates.AggregationProcess) -> bool:
  """Returns whether `process`, or a process inside it, adds noise.

  Args:
    process: An aggregation process.
  """
  return any(
    name in _NOISE_FIELDS for name, _ in _named_types(process.state_type)
  )


def check_estimates_are_noised(
  process: tff.templates.MeasuredProcess, name: str
) -> None:
  """Raises unless every norm estimated in the state of `process` has noise.

  Args:
    process: A process whose result is noised.
    name: The argument that brought it, for the message.

  Raises:
    ValueError: If the state of an adaptive clipping or zeroing norm has no
      noise.
  """
  for field, field_type in _named_types(process.state_type):
    if field in _ESTIMATES:
      _check_estimate(field_type, name)


def check_estimate_is_noised(
  process: tff.templates.EstimationProcess, name: str
) -> None:
  """Raises unless the estimate of `process` has noise.

  Args:
    process: The process that estimates a clipping norm from clients' norms.
    name: The argument that brought it, for the message.

  Raises:
    ValueError: If its state has no noise.
  """
  state_type = process.initialize.type_signature.result.member
  _check_estimate(state_type, name)


def with_public(measurements: tff.Value, **own: Any) -> tff.Value:
  """Returns `own` measurements with those of an inner process that are public.

  What a process reports without noise, such as how many updates were clipped,
  is computed from clients' data and no part of any privacy guarantee.

  Args:
    measurements: The measurements of an inner process, at the server.
    **own: Constants, or values at the server, that are reported first.

  Returns:
    An `OrderedDict` at the server: `own`, then, without nesting, those of
    `measurements` whose names are known to be safe.
  """
  placed = collections.OrderedDict(
    (
      name,
      value
      if isinstance(value, tff.Value)
      else tff.federated_value(value, tff.SERVER),
    )
    for name, value in own.items()
  )
  placed = tff.federated_zip(placed)

  @tff.tensorflow.computation(
    measurements.type_signature.member, placed.type_signature.member
  )
  def select(inner, first):
    return _select(inner, collections.OrderedDict(first))

  return tff.federated_map(select, (measurements, placed))


def _select(value: Any, selected):
  """Collects the public entries of nested containers into `selected`."""
  if hasattr(value, '_asdict'):
    value = value._asdict()
  if isinstance(value, collections.abc.Mapping):
    for name, element in value.items():
      if name in _PUBLIC_MEASUREMENTS:
        selected.setdefault(name, element)
      else:
        _select(element, selected)
  elif isinstance(value, (list, tuple)):
    for element in value:
      _select(element, selected)
  return selected


def _named_types(type_spec):
  """Yields every named field below `type_spec` with its type."""
  if isinstance(type_spec, tff.FederatedType):
    yield from _named_types(type_spec.member)
  elif isinstance(type_spec, tff.StructType):
    for name, element in tff.structure.iter_elements(type_spec):
      if name is not None:
        yield name, element
      yield from _named_types(element)


def _check_estimate(state_type, name):
  """Raises if a state that is not empty has no noise in it."""
  is_constant = isinstance(state_type, tff.StructType) and not len(state_type)
  fields = {field for field, _ in _named_types(state_type)}
  if not is_constant and not fields & _NOISED_ESTIMATE:
    raise ValueError(
      f'`{name}` must not adapt a norm to exact values where noise is added, '
      f'found an estimate with the state {state_type}: use '
      '`adaptive_dp_mean_factory` or a `PrivateQuantileEstimationProcess` '
      'with noise.'
    )
