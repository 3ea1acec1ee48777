"""What a pipeline that adds noise may report, and what it refuses.

Factories nest in any order, so one factory cannot know what the others do. The
types of their processes tell: every process that adds noise, ours or
`tff.aggregators.DifferentiallyPrivateFactory`, has a field in its state or its
measurements that no other has. Nothing here looks at values.
"""

import collections
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

# Fields of the state of processes that add noise for privacy: the first is that
# of the factories here, the second of TFF's `DifferentiallyPrivateFactory`.
NOISE_STATE = 'privacy_noise'
_NOISE_FIELDS = frozenset({NOISE_STATE, 'dp_event'})

# The state of a clip, in the factories here and in TFF's; of an estimate of
# quantiles, in TFF's; and the fields that only an estimate with noise has.
_CLIPS = frozenset(
  {'clipping_norm', 'clipping_norms', 'smoothing', 'zeroing_norm'}
)
_QUANTILE = 'below_estimate_state'
_STDDEV = 'stddev'
_NOISED_ESTIMATE = frozenset({_STDDEV, NOISE_STATE})

# Measurements that may leave a private pipeline: they are constants, or results
# of noised data. No count of clients is among them: a secure summation hides
# whose update was out of bounds, not that one was.
PUBLIC_MEASUREMENTS = frozenset(
  {
    'clipping_norm',
    'clipping_norms',
    'noise_stddev',
    'secure_sum_bound',
    'smoothing',
  }
)


class PrivateFactory(tff.aggregators.UnweightedAggregationFactory):
  """A factory that adds noise, or holds one that does. It takes no weights.

  A client's weight, such as its number of examples, changes how much the client
  moves the result, so that noise for a given sensitivity would not hide it; and
  the sum of the weights would be released without noise. TFF's weighted
  algorithms refuse what is not a `tff.aggregators.WeightedAggregationFactory`.
  """


def adds_noise(process: tff.templates.AggregationProcess) -> bool:
  """Returns whether `process`, or a process inside it, adds noise.

  Noise of the estimate of a clipping norm alone is none: it does not cover what
  is clipped.

  Args:
    process: An aggregation process, or any other that holds one in its state.
  """
  return any(
    name in _NOISE_FIELDS
    for name, _ in _named_types(process.state_type, but=_CLIPS)
  )


def check_estimates_are_noised(
  name: str, process: tff.templates.MeasuredProcess
) -> None:
  """Raises unless every norm estimated in the state of `process` has noise.

  Args:
    name: The argument that brought the process, for the message.
    process: A process whose result is noised.

  Raises:
    ValueError: If the state of an adaptive clipping or zeroing norm has no
      noise.
  """
  for field, field_type in _named_types(process.state_type):
    if field in _CLIPS or field == _QUANTILE:
      is_constant = field in _CLIPS and _is_empty(field_type)
      _check_estimate(name, field_type, is_constant)


def check_estimate_is_noised(
  name: str, process: tff.templates.EstimationProcess
) -> None:
  """Raises unless the estimate of `process` has noise.

  Args:
    name: The argument that brought the process, for the message.
    process: The process that estimates a clipping norm from clients' norms.

  Raises:
    ValueError: If its state has no noise.
  """
  state_type = process.initialize.type_signature.result.member
  _check_estimate(name, state_type, is_constant=False)


def check_counts_are_hidden(count_sum_factory: Any) -> None:
  """Raises if counts of clients would leave a pipeline that adds noise.

  Args:
    count_sum_factory: What sums the counts, or `None` if nothing does.

  Raises:
    ValueError: If it is not `None`.
  """
  if count_sum_factory is not None:
    raise ValueError(
      '`count_sum_factory` must be `None` where noise is added, since the '
      f'counts are exact, found {count_sum_factory!r}.'
    )


def check_does_not_clip(
  name: str, process: tff.templates.MeasuredProcess
) -> None:
  """Raises if `process` clips or zeroes what it aggregates.

  Args:
    name: The argument that brought the process, for the message.
    process: A process that aggregates values with noise on them.

  Raises:
    ValueError: If it has the state of a clip.
  """
  for field, _ in _named_types(process.state_type):
    if field in _CLIPS:
      raise ValueError(
        f'`{name}` must not clip, since it would clip the noise, found the '
        f'state {process.state_type}: put the clip outside.'
      )


def after_checking_noise(value: Any, state: Any) -> Any:
  """Returns `value`, in a graph that fails if an estimate has noise of zero.

  Whether an estimate has noise is seen from types; how much, only at run time.

  Args:
    value: A structure of tensors.
    state: The state of processes inside, in Python containers.
  """
  checks = [
    tf.debugging.assert_positive(
      stddev,
      message='A clipping norm is estimated with noise of zero where noise is '
      'added: give the estimate a positive standard deviation.',
    )
    for stddev in _quantile_stddevs(state)
  ]
  with tf.control_dependencies(checks):
    return tf.nest.map_structure(tf.identity, value) if checks else value


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
  placed = tff.federated_zip(
    collections.OrderedDict(
      (
        name,
        value
        if isinstance(value, tff.Value)
        else tff.federated_value(value, tff.SERVER),
      )
      for name, value in own.items()
    )
  )

  @tff.tensorflow.computation(
    measurements.type_signature.member, placed.type_signature.member
  )
  def select(inner, first):
    return _select(inner, collections.OrderedDict(first))

  return tff.federated_map(select, (measurements, placed))


def _select(value, selected):
  """Collects the public entries of nested containers into `selected`."""
  for name, element in _elements(value):
    if name in PUBLIC_MEASUREMENTS:
      selected.setdefault(name, element)
    else:
      _select(element, selected)
  return selected


def _elements(value):
  """Returns the (name, element) pairs of a container, none of a tensor."""
  if hasattr(value, '_asdict'):
    value = value._asdict()
  if isinstance(value, collections.abc.Mapping):
    return list(value.items())
  if isinstance(value, (list, tuple)):
    return [(None, element) for element in value]
  return []


def _named_types(type_spec, but=()):
  """Yields every named field below `type_spec` with its type.

  Args:
    type_spec: A type.
    but: Names of fields below which nothing is looked for.
  """
  if isinstance(type_spec, tff.FederatedType):
    yield from _named_types(type_spec.member, but)
  elif isinstance(type_spec, tff.StructType):
    for name, element in tff.structure.iter_elements(type_spec):
      if name is not None:
        yield name, element
      if name not in but:
        yield from _named_types(element, but)


def _quantile_stddevs(state):
  """Returns the noise of all estimates of quantiles but those by our sums."""
  stddevs = []
  elements = [element for _, element in _elements(state)]
  for i, element in enumerate(elements):
    stddevs.extend(_quantile_stddevs(element))
    # Beside the state of a query is that of the sum of its records, which may
    # be what adds the noise.
    beside = elements[:i] + elements[i + 1 :]
    if not any(_elements_named(NOISE_STATE, other) for other in beside):
      for name, query_state in _elements(element):
        if name == _QUANTILE:
          stddevs.extend(_elements_named(_STDDEV, query_state))
  return stddevs


def _elements_named(name, value):
  """Returns the elements called `name` in nested containers."""
  found = []
  for key, element in _elements(value):
    found.extend([element] if key == name else _elements_named(name, element))
  return found


def _is_empty(state_type):
  """Returns whether the type is that of no state."""
  return isinstance(state_type, tff.StructType) and not len(state_type)


def _check_estimate(name, state_type, is_constant):
  """Raises if the state of an estimate has no noise in it."""
  fields = {field for field, _ in _named_types(state_type)}
  if not is_constant and not fields & _NOISED_ESTIMATE:
    raise ValueError(
      f'`{name}` must not adapt a norm to exact values where noise is added, '
      f'found an estimate with the state {state_type}: use '
      '`adaptive_dp_mean_factory` or a `PrivateQuantileEstimationProcess` '
      'with noise.'
    )
