"""What a process does, told by the names in its state and measurements.

Factories nest in any order, so one factory cannot know what the others do. The
types of their processes tell: every process that adds noise, ours or
`tff.aggregators.DifferentiallyPrivateFactory`, has a field in its state or its
measurements that no other has. Nothing here looks at values.
"""

from collections.abc import Collection, Iterator

import tensorflow_federated as tff

# Fields of the state of processes that add noise for privacy: the first is that
# of the factories here, the second of TFF's `DifferentiallyPrivateFactory`.
NOISE_STATE = 'privacy_noise'
THEIR_NOISE_STATE = 'dp_event'
_NOISE_FIELDS = frozenset({NOISE_STATE, THEIR_NOISE_STATE})
# What noise that is correlated between rounds keeps: in the state of ours, and
# anywhere for TFF's.
SLOTS = 'slots'
TREE = 'tree_state'

# What noise that is correlated between rounds measures of its strategy.
STRATEGY = 'strategy_digest'

# The state of a clip, in the factories here and in TFF's; and of an estimate of
# quantiles, in TFF's.
CLIPS = frozenset({'clipping_norm', 'clipping_norms', 'zeroing_norm'})
QUANTILE = 'below_estimate_state'
# The state of TFF's `clipping_factory`.
THEIR_CLIP = 'clipped_count_agg'
# The state of TFF's `DifferentiallyPrivateFactory`, which clips too.
QUERY = 'query_state'

# What divides by the number of clients, or by a sum of their weights: the state
# of ours, that of TFF's weighted mean, and what TFF's means measure.
REALIZED_MEAN = 'realized_mean'
_MEANS = frozenset(
  {REALIZED_MEAN, 'weight_sum_process', 'mean_weight', 'mean_count'}
)

# What a mean over a public number measures: ours, and TFF's over who took part.
MEAN = 'mean_value'

# In the state of a sum that clamps what is longer than a clip leaves, and so
# would clamp noise.
CLAMP = 'clamps_noise'

# What TFF's `SecureSumFactory` measures.
THEIR_SECURE_SUM = 'secure_upper_clipped_count'


def adds_noise(state_type: tff.Type) -> bool:
  """Returns whether a process with a state, or one inside it, adds noise.

  Noise of the estimate of a clipping norm alone is none: it does not cover what
  is clipped.

  Args:
    state_type: The type of its state.
  """
  return any(
    name in _NOISE_FIELDS for name, _ in named_types(state_type, but=CLIPS)
  )


def takes_their_noise(state_type: tff.Type) -> bool:
  """Returns whether TFF's `DifferentiallyPrivateFactory` is in a process.

  Args:
    state_type: The type of its state.
  """
  names = {name for name, _ in named_types(state_type, but=CLIPS)}
  return THEIR_NOISE_STATE in names


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
  return not names.isdisjoint(CLIPS - {'zeroing_norm'})


def clips_inside_noise(state_type: tff.Type) -> bool:
  """Returns whether a clip is inside of noise that a factory here adds.

  Args:
    state_type: The type of the state of a process.
  """
  if isinstance(state_type, tff.FederatedType):
    return clips_inside_noise(state_type.member)
  if not isinstance(state_type, tff.StructType):
    return False
  elements = tff.structure.to_elements(state_type)
  is_noised = NOISE_STATE in {name for name, _ in elements}
  return any(
    clips(element) if is_noised else clips_inside_noise(element)
    for _, element in elements
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


def is_private_mean(state_type: tff.Type) -> bool:
  """Returns whether a process that clips, noises and divides is in a process.

  Known of the factories here that do it in one, and of TFF's.

  Args:
    state_type: The type of its state.
  """
  if isinstance(state_type, tff.FederatedType):
    return is_private_mean(state_type.member)
  if not isinstance(state_type, tff.StructType):
    return False
  elements = tff.structure.to_elements(state_type)
  names = {name for name, _ in elements}
  return (
    (NOISE_STATE in names and not names.isdisjoint(CLIPS))
    or {QUERY, THEIR_NOISE_STATE} <= names
    or any(is_private_mean(element) for _, element in elements)
  )


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
