"""Divides each client's update by its norm plus a constant."""

import collections

import numpy as np
import tensorflow_federated as tff

from tff_clipping import argument_checks
from tff_clipping.aggregators.parts import clipping_process, l2_clip


def smoothed_normalization_factory(
  smoothing: float,
  inner_agg_factory: tff.aggregators.AggregationFactory | None = None,
  *,
  count_sum_factory: tff.aggregators.UnweightedAggregationFactory | None = None,
) -> tff.aggregators.AggregationFactory:
  """Divides the update of each client by `smoothing` plus its L2 norm.

  At CLIENTS, `value / (smoothing + ||value||)` with the norm over all the
  tensors of `value`, then `inner_agg_factory` on the results. It is weighted if
  `inner_agg_factory` is; weights pass through.

  Where a clip leaves short updates as they are, this makes all nearly equally
  long: one of norm r gets the norm r / (smoothing + r). No clipping norm is to
  be chosen, and the server's learning rate sets the length of a step.

  Guarantee: the norm of what reaches `inner_agg_factory` is below 1, in real
  arithmetic, for every input and every dtype. So one client more or less moves
  the sum by less than 1, and one client replaced by another by less than 2:
  noise of standard deviation z is a noise multiplier z.

  An update with a NaN or an infinity, or whose sum of squares is above the
  largest `float32`, becomes zero. Zero stays zero.

  Measurements:
    clipping: Those of `inner_agg_factory`.
    smoothing: The constant, `float32`.
    zeroed_count: How many updates were not finite or too long, and so zero;
      exact, and left out if anything inside `inner_agg_factory` adds noise.

  State: `smoothing` (empty), `inner_agg`, `count_agg`.

  Args:
    smoothing: alpha, positive, in the unit of the updates.
    inner_agg_factory: Aggregates the results. `None` is
      `tff.aggregators.SumFactory()`.
    count_sum_factory: Sums the count, an `int32` scalar in an `OrderedDict`
      from each client; see `difference_clipping_factory`.

  Returns:
    An aggregation factory.

  Raises:
    TypeError: If an argument is of the wrong kind.
    ValueError: If `smoothing` is not positive and finite. By `create`, if
      `inner_agg_factory` adds noise and `count_sum_factory` is given.

  Source: Shulgin, Malinovsky, Khirirat and Richtarik 2025, "First provable
    guarantees for practical private FL: beyond restrictive assumptions", the
    operator that is smoothed normalization there; its error feedback, a state
    of each client, is not here. Without smoothing: Das et al. 2021, "On the
    convergence of differentially private federated learning on non-Lipschitz
    objectives, and with normalized client updates".
  """
  smoothing = argument_checks.check_positive('smoothing', smoothing)
  return clipping_process.clipping_wrapper(
    inner_agg_factory,
    lambda value_type: _make_normalization(value_type, smoothing),
    count_sum_factory,
  )


def _make_normalization(value_type, smoothing):
  """Returns the normalization of values of `value_type`."""

  @tff.tensorflow.computation(value_type)
  def normalize(value):
    normalized = l2_clip.normalize_smoothly(value, smoothing)
    counts = collections.OrderedDict(zeroed_count=normalized.was_zeroed)
    return normalized.value, normalized.norm, counts

  return clipping_process.Clip(
    normalize, 'smoothing', np.array(smoothing, np.float32)
  )
