"""What a pipeline that adds noise may report."""

import collections
from typing import Any

import tensorflow_federated as tff

from tff_clipping.aggregators.parts.inspect_process import STRATEGY

# Measurements that may leave a private pipeline: they are constants, or results
# of noised data. No count of clients is among them: a secure summation hides
# whose update was out of bounds, not that one was.
PUBLIC_MEASUREMENTS = frozenset(
  {
    'bits_noise_stddev',
    'bits_per_client',
    'canary_products',
    'clipping_norm',
    'clipping_norms',
    'max_clients_per_round',
    'min_clients_per_round',
    'noise_stddev',
    'secure_sum_bound',
    'share_noise_stddev',
    STRATEGY,
  }
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
