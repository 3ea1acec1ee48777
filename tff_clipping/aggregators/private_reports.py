"""What a pipeline that adds noise may report, and what it refuses.

Factories nest in any order, so one factory cannot know what the others do. The
types of their processes tell: every process that adds noise, ours or
`tff.aggregators.DifferentiallyPrivateFactory`, has a field in its state or its
measurements that no other has. Nothing here looks at values.
"""

import collections
from collections.abc import Collection, Iterable, Iterator
from typing import Any

import numpy as np
import tensorflow_federated as tff

# Fields of the state of processes that add noise for privacy: the first is that
# of the factories here, the second of TFF's `DifferentiallyPrivateFactory`.
NOISE_STATE = 'privacy_noise'
_THEIR_NOISE_STATE = 'dp_event'
_NOISE_FIELDS = frozenset({NOISE_STATE, _THEIR_NOISE_STATE})
# What noise that is correlated between rounds keeps: in the state of ours, and
# anywhere for TFF's.
SLOTS = 'slots'
TREE = 'tree_state'

# What noise that is correlated between rounds measures of its strategy.
STRATEGY = 'strategy_digest'

# The state of a clip, in the factories here and in TFF's; and of an estimate of
# quantiles, in TFF's.
_CLIPS = frozenset(
  {'clipping_norm', 'clipping_norms', 'smoothing', 'zeroing_norm'}
)
_QUANTILE = 'below_estimate_state'
# The state of TFF's `clipping_factory`.
THEIR_CLIP = 'clipped_count_agg'
# The state of TFF's `DifferentiallyPrivateFactory`, which clips too.
QUERY = 'query_state'

# What that noise must have, for the errors that refuse it.
TAILS = (
  'have noise with the tails of a normal distribution where a ledger is '
  "charged, found that of TFF's `DifferentiallyPrivateFactory`, which ends at "
  '5.7 standard deviations: a sum beyond that proves that a client took part. '
  'Use `dp_mean_factory` or `adaptive_dp_mean_factory`.'
)

# What divides by the number of clients, or by a sum of their weights: the state
# of ours, that of TFF's weighted mean, and what TFF's means measure.
REALIZED_MEAN = 'realized_mean'
_MEANS = frozenset(
  {REALIZED_MEAN, 'weight_sum_process', 'mean_weight', 'mean_count'}
)

# In the state of a sum that clamps what is longer than a clip leaves, and so
# would clamp noise.
CLAMP = 'clamps_noise'

# What TFF's `SecureSumFactory` measures.
_THEIR_SECURE_SUM = 'secure_upper_clipped_count'

# What makes `float32` of all that it sums.
_ROTATIONS = (
  tff.aggregators.HadamardTransformFactory,
  tff.aggregators.DiscreteFourierTransformFactory,
)

# Measurements that may leave a private pipeline: they are constants, or results
# of noised data. No count of clients is among them: a secure summation hides
# whose update was out of bounds, not that one was.
PUBLIC_MEASUREMENTS = frozenset(
  {
    'bits_noise_stddev',
    'clipping_norm',
    'clipping_norms',
    'max_clients_per_round',
    'min_clients_per_round',
    'noise_stddev',
    'secure_sum_bound',
    'share_noise_stddev',
    'smoothing',
    STRATEGY,
  }
)


def adds_noise(state_type: tff.Type) -> bool:
  """Returns whether a process with a state, or one inside it, adds noise.

  Noise of the estimate of a clipping norm alone is none: it does not cover what
  is clipped.

  Args:
    state_type: The type of its state.
  """
  return any(
    name in _NOISE_FIELDS for name, _ in named_types(state_type, but=_CLIPS)
  )


def takes_their_noise(state_type: tff.Type) -> bool:
  """Returns whether TFF's `DifferentiallyPrivateFactory` is in a process.

  Args:
    state_type: The type of its state.
  """
  names = {name for name, _ in named_types(state_type, but=_CLIPS)}
  return _THEIR_NOISE_STATE in names


def correlates_noise(state_type: tff.Type) -> bool:
  """Returns whether the noise of a process depends on that of rounds before.

  Known of the factories here, of TFF's, and of others with `slots` in their
  `privacy_noise`.

  Args:
    state_type: The type of its state.
  """
  return any(
    name == TREE
    or (name == NOISE_STATE and SLOTS in dict(named_types(element)))
    for name, element in named_types(state_type)
  )


def clips(state_type: tff.Type) -> bool:
  """Returns whether a process with a state, or one inside it, clips.

  Known of the factories here, and of TFF's. Zeroing is no clip: TFF's bounds
  each element by default, and not the norm.

  Args:
    state_type: The type of its state.
  """
  names = {name for name, _ in named_types(state_type)}
  if QUERY in names:
    return TREE in names or {'l2_norm_clip', 'stddev'} <= names
  return not names.isdisjoint(_CLIPS - {'zeroing_norm'})


def check_their_clip(
  names: Collection[str], dtypes: Iterable[np.dtype | type]
) -> None:
  """Raises if TFF's `clipping_factory` may clip tensors of 16 bits.

  It squares in the type of the tensors, where small numbers become zero, and
  takes a long update for a short one.

  Args:
    names: The names in the state of a process.
    dtypes: The types of the arrays of its model.

  Raises:
    ValueError: If it does.
  """
  short = [np.dtype(dtype) for dtype in dtypes if np.dtype(dtype).itemsize == 2]
  found = [dtype.name for dtype in short if 'float' in dtype.name]
  if THEIR_CLIP in names and found:
    raise ValueError(
      "`process` must not clip tensors of 16 bits by TFF's `clipping_factory` "
      f'where a ledger is charged, found {found[0]}: it squares in their type, '
      'where small numbers become zero, and lets long updates through. '
      '`difference_clipping_factory` does not.'
    )


def divides_by_cohort(
  state_type: tff.Type, measurements_type: tff.Type | None = None
) -> bool:
  """Returns whether a process, or one inside it, divides by who took part.

  Known of the factories here, and of TFF's means.

  Args:
    state_type: The type of its state.
    measurements_type: That of its measurements: of TFF's unweighted mean, they
      alone tell.
  """
  found = list(named_types(state_type))
  if measurements_type is not None:
    found += named_types(measurements_type)
  return any(name in _MEANS for name, _ in found)


def check_sum(factory: Any, process: tff.templates.MeasuredProcess) -> None:
  """Raises if what is known not to be a plain sum would get noise.

  Noise for a sum of clipped values does not hide what a client does to a mean
  over those who took part, whose number is exact; nor a value that is longer
  than it was clipped to.

  Args:
    factory: What aggregates the values, under `inner_agg_factory` or
      `sum_factory`.
    process: What it created.

  Raises:
    ValueError: If its result is no value like a client's, it divides by the
      cohort, rounds values to what may be longer, compresses, or sums in
      `float32`; of a factory with one of the last two inside, nothing tells it.
  """
  signature = process.next.type_signature
  value_type = signature.parameter[1].member
  result_type = signature.result.result.member
  if not value_type.is_equivalent_to(result_type):
    raise ValueError(
      '`inner_agg_factory`, or `sum_factory`, must be a sum where noise is '
      f'added, found {factory!r}, which makes {result_type} of values of the '
      f'type {value_type}.'
    )
  if divides_by_cohort(process.state_type, signature.result.measurements):
    raise ValueError(
      '`inner_agg_factory`, or `sum_factory`, must be a sum where noise is '
      f'added, found {factory!r}: a mean divides by the number of clients, '
      'which is exact, and how far one of them moves it depends on the others. '
      'Divide outside, by `fixed_denominator_mean_factory`.'
    )
  measured = named_types(signature.result.measurements)
  if any(name == _THEIR_SECURE_SUM for name, _ in measured):
    raise ValueError(
      '`inner_agg_factory`, or `sum_factory`, must not lengthen clipped values '
      f"where noise is added, found {factory!r}: TFF's `SecureSumFactory` "
      'rounds each element to the nearest step, which may be longer than c. '
      '`secure_sum_factory` rounds towards zero.'
    )
  if isinstance(factory, tff.aggregators.EncodedSumFactory):
    raise ValueError(
      '`inner_agg_factory`, or `sum_factory`, must not lengthen clipped values '
      f'where noise is added, found {factory!r}: what it decodes may be longer '
      'than c. With noise, `distributed_gaussian_mean_factory` sums integers.'
    )
  if isinstance(factory, _ROTATIONS):
    raise ValueError(
      '`inner_agg_factory`, or `sum_factory`, must sum in `float64` where '
      f'noise is added, found {factory!r}, which rotates and sums in '
      '`float32`: rounding lets a client move such a sum by more than c. '
      'Rotate outside of the clip.'
    )


def check_keeps_norms(factory: Any, process: tff.templates.MeasuredProcess):
  """Raises if what is known to lengthen values is between a clip and noise.

  Args:
    factory: What aggregates the clipped values.
    process: What it created.

  Raises:
    ValueError: If it transforms them by TFF's discrete Fourier transform, whose
      `float32` arithmetic lengthens values by up to a thousandth.
  """
  if adds_noise(process.state_type) and isinstance(
    factory, tff.aggregators.DiscreteFourierTransformFactory
  ):
    raise ValueError(
      '`inner_agg_factory` must not lengthen clipped values where noise is '
      f'added, found {factory!r}: its rounding lengthens some by a thousandth. '
      'Rotate outside of the clip, or by `HadamardTransformFactory`.'
    )


def check_norms_are_charged(name: str, state_type: tff.Type) -> None:
  """Raises if a norm is estimated that no noise multiplier covers.

  Noise of a fixed size does not follow a clipping norm that changes, and an
  estimate, with noise or without, is a release of its own. Taken are factories
  that do both, and know what both cost: `adaptive_dp_mean_factory`, and TFF's
  `DifferentiallyPrivateFactory`, though not its distributed recipe.

  Args:
    name: The argument that brought the process, for the message.
    state_type: The type of its state; its result is noised.

  Raises:
    ValueError: If its state holds such an estimate.
  """
  path = _find_uncharged_estimate(state_type)
  if path is not None:
    raise _uncharged(name, f'one in its state, at {".".join(path)}')


def check_norm_is_constant(name: str, is_estimated: bool) -> None:
  """Raises if a norm around noise is estimated; see `check_norms_are_charged`.

  Args:
    name: The argument that gives the norm.
    is_estimated: Whether it changes from round to round.

  Raises:
    ValueError: If it does.
  """
  if is_estimated:
    raise _uncharged(name, 'an estimation process')


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
  """Raises if `process` clips, zeroes or clamps what it aggregates.

  Args:
    name: The argument that brought the process, for the message.
    process: A process that aggregates values with noise on them.

  Raises:
    ValueError: If it has the state of a clip, or of a sum without room for
      noise.
  """
  for field, _ in named_types(process.state_type):
    if field == CLAMP:
      raise ValueError(
        f'`{name}` must leave room for the noise, found a `secure_sum_factory` '
        'without `local_noise_stddev`: its bound is the clipping norm, and it '
        'would clamp the noise.'
      )
    if field in _CLIPS:
      raise ValueError(
        f'`{name}` must not clip, since it would clip the noise, found the '
        f'state {process.state_type}: put the clip outside.'
      )


def with_public(measurements: tff.Value, **own: Any) -> tff.Value:
  """Returns `own` measurements with those of an inner process that are public.

  What a process reports without noise, such as how many updates were clipped,
  is computed from clients' data and no part of any privacy guarantee.

  Args:
    measurements: The measurements of an inner process, at the server.
    **own: Constants, or values at the server, that are reported first.

  Returns:
    An `OrderedDict` at the server: `own`, then those of `measurements` whose
    names are known to be safe. They are without nesting, but for those of
    several processes side by side, or of a name that is there already: these
    stand below the names of their processes.
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
    return _join(
      collections.OrderedDict(first), [('inner_agg', _select(inner))]
    )

  return tff.federated_map(select, (measurements, placed))


def named_types(
  type_spec: tff.Type, but: Collection[str] = ()
) -> Iterator[tuple[str, tff.Type]]:
  """Yields every named field below `type_spec` with its type.

  Args:
    type_spec: A type.
    but: Names of fields below which nothing is looked for.
  """
  if isinstance(type_spec, tff.FederatedType):
    yield from named_types(type_spec.member, but)
  elif isinstance(type_spec, tff.StructType):
    for name, element in tff.structure.iter_elements(type_spec):
      if name is not None:
        yield name, element
      if name not in but:
        yield from named_types(element, but)


def _select(value):
  """Returns the public entries of nested containers."""
  found = collections.OrderedDict()
  parts = []
  for name, element in _elements(value):
    if name in PUBLIC_MEASUREMENTS:
      found[name] = element
    else:
      parts.append((name, _select(element)))
  return _join(found, parts)


def _join(found, parts):
  """Adds what was found in the parts of a container to what it has itself."""
  parts = [(name, part) for name, part in parts if part]
  for name, part in parts:
    if len(parts) == 1 and found.keys().isdisjoint(part):
      found.update(part)
    else:
      found[name] = part
  return found


def _elements(value):
  """Returns the (name, element) pairs of a container, none of a tensor."""
  if hasattr(value, '_asdict'):
    value = value._asdict()
  if isinstance(value, collections.abc.Mapping):
    return list(value.items())
  if isinstance(value, (list, tuple)):
    return [(str(place), element) for place, element in enumerate(value)]
  return []


def _find_uncharged_estimate(type_spec):
  """Returns where an estimate is that no noise covers; None if none is."""
  if isinstance(type_spec, tff.FederatedType):
    return _find_uncharged_estimate(type_spec.member)
  if not isinstance(type_spec, tff.StructType):
    return None
  elements = tff.structure.to_elements(type_spec)
  names = {name for name, _ in elements}
  for place, (name, element) in enumerate(elements):
    if name in _CLIPS and NOISE_STATE in names:
      continue  # That of a factory which adapts its norm and its noise.
    if name == QUERY and _THEIR_NOISE_STATE in names:
      continue
    here = (name or str(place),)
    if name == _QUANTILE or (name in _CLIPS and not _is_empty(element)):
      return here
    found = _find_uncharged_estimate(element)
    if found is not None:
      return here + found
  return None


def _is_empty(state_type):
  """Returns whether the type is that of no state."""
  return isinstance(state_type, tff.StructType) and not len(state_type)


def _uncharged(name: str, found: Any) -> ValueError:
  return ValueError(
    f'`{name}` must not vary a norm, or a bound, where noise is added, found '
    f'{found}: no plan charges for an estimate, and noise of a fixed size does '
    'not follow it. `adaptive_dp_mean_factory` varies both; schedules of norms '
    'are not supported.'
  )
