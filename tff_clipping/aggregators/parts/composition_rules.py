"""What must hold where noise is added, checked when a process is built."""

from collections.abc import Collection, Iterable
from typing import Any

import numpy as np
import tensorflow_federated as tff

from tff_clipping.aggregators.parts.inspect_process import (
  CLAMP,
  CLIPS,
  MEAN,
  NOISE_STATE,
  QUANTILE,
  QUERY,
  THEIR_CLIP,
  THEIR_NOISE_STATE,
  THEIR_SECURE_SUM,
  adds_noise,
  divides_by_cohort,
  is_private_mean,
  named_types,
)

# What noise must have, for the errors that refuse another.
TAILS = (
  'have noise with the tails of a normal distribution where a ledger is '
  "charged, found that of TFF's `DifferentiallyPrivateFactory`, which ends at "
  '5.7 standard deviations: a sum beyond that proves that a client took part. '
  'Use `dp_mean_factory` or `adaptive_dp_mean_factory`.'
)

# What makes `float32` of all that it sums.
_ROTATIONS = (
  tff.aggregators.HadamardTransformFactory,
  tff.aggregators.DiscreteFourierTransformFactory,
)


def check_sum(factory: Any, process: tff.templates.MeasuredProcess) -> None:
  """Raises if noise would be added to what is known to be no plain sum.

  The noise is measured for a sum of clipped values. It does not hide a client
  in a mean over the clients that took part, whose number is exact. Nor does it
  hide a value that is longer than its clipping norm.

  Args:
    factory: What aggregates the values, under `inner_agg_factory` or
      `sum_factory`.
    process: What it created.

  Raises:
    ValueError: If the result is of another type than a client's value, or the
      process divides by the cohort or by P, rounds values to longer ones,
      compresses, or sums in `float32`. A factory that does one of the last two
      deeper inside is not found.
  """
  signature = process.next.type_signature
  value_type = signature.parameter[1].member
  result_type = signature.result.result.member
  if not value_type.is_equivalent_to(result_type):
    raise _no_sum(
      factory,
      'be a sum',
      f', which makes {result_type} of values of the type {value_type}.',
    )
  if divides_by_cohort(process.state_type, signature.result.measurements):
    raise _no_sum(
      factory,
      'be a sum',
      ': a mean divides by the number of clients, which is exact, and how far '
      'one of them moves it depends on the others. Divide outside, by '
      '`fixed_denominator_mean_factory`.',
    )
  measured = {name for name, _ in named_types(signature.result.measurements)}
  if MEAN in measured or is_private_mean(process.state_type):
    raise _no_sum(
      factory,
      'be a sum',
      ': it divides by P, or clips and adds noise by itself, so that noise for '
      'a sum, or shares of it that are not divided, would be of another size. '
      'Divide outside, by `fixed_denominator_mean_factory`.',
    )
  if THEIR_SECURE_SUM in measured:
    raise _no_sum(
      factory,
      'not lengthen clipped values',
      ', which rounds each element to the nearest step: that may be longer '
      'than c. `secure_sum_factory` rounds towards zero.',
    )
  if isinstance(factory, tff.aggregators.EncodedSumFactory):
    raise _no_sum(
      factory,
      'not lengthen clipped values',
      ': what it decodes may be longer than c. With noise, '
      '`distributed_gaussian_mean_factory` sums integers.',
    )
  if isinstance(factory, _ROTATIONS):
    raise _no_sum(
      factory,
      'sum in `float64`',
      ', which rotates and sums in `float32`: rounding lets a client move such '
      'a sum by more than c. Rotate outside of the clip.',
    )


def _no_sum(factory: Any, rule: str, reason: str) -> ValueError:
  return ValueError(
    f'`inner_agg_factory`, or `sum_factory`, must {rule} where noise is added, '
    f'found {type(factory).__name__}{reason}'
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
      f'added, found {type(factory).__name__}: its rounding lengthens some by '
      'a thousandth. Rotate outside of the clip, or by '
      '`HadamardTransformFactory`.'
    )


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
    if field in CLIPS:
      raise ValueError(
        f'`{name}` must not clip, since it would clip the noise, found the '
        f'state {process.state_type}: put the clip outside.'
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
    raise uncharged_norm(name, f'one in its state, at {".".join(path)}')


def uncharged_norm(name: str, found: str) -> ValueError:
  """Returns what refuses an estimate; see `check_norms_are_charged`.

  Args:
    name: The argument that brought it.
    found: What it is.
  """
  return ValueError(
    f'`{name}` must not vary a norm, or a bound, where noise is added, found '
    f'{found}: no plan charges for an estimate, and noise of a fixed size does '
    'not follow it. `adaptive_dp_mean_factory` varies both; schedules of norms '
    'are not supported.'
  )


def _find_uncharged_estimate(type_spec):
  """Returns where an estimate is that no noise covers; None if none is."""
  if isinstance(type_spec, tff.FederatedType):
    return _find_uncharged_estimate(type_spec.member)
  if not isinstance(type_spec, tff.StructType):
    return None
  elements = tff.structure.to_elements(type_spec)
  names = {name for name, _ in elements}
  for place, (name, element) in enumerate(elements):
    if name in CLIPS and NOISE_STATE in names:
      continue  # That of a factory which adapts its norm and its noise.
    if name == QUERY and THEIR_NOISE_STATE in names:
      continue
    here = (name or str(place),)
    if name == QUANTILE or (name in CLIPS and not _is_empty(element)):
      return here
    found = _find_uncharged_estimate(element)
    if found is not None:
      return here + found
  return None


def _is_empty(state_type):
  """Returns whether the type is that of no state."""
  return isinstance(state_type, tff.StructType) and not len(state_type)
