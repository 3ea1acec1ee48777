"""Clips each client's update to an L2 norm before it is aggregated."""

import collections

import numpy as np
import tensorflow_federated as tff

from tff_clipping.aggregators.parts import clipping_process, l2_clip


def difference_clipping_factory(
  clipping_norm: float | tff.templates.EstimationProcess,
  inner_agg_factory: tff.aggregators.AggregationFactory | None = None,
  *,
  count_sum_factory: tff.aggregators.UnweightedAggregationFactory | None = None,
) -> tff.aggregators.AggregationFactory:
  """Clips the update difference of each client, as a whole, in L2.

  At CLIENTS, `value * min(1, clipping_norm / ||value||)` with the norm over all
  the tensors of `value`, then `inner_agg_factory` on the clipped values. It is
  weighted if `inner_agg_factory` is; weights pass through.

  Guarantee: the norm of what reaches `inner_agg_factory` is at most
  `clipping_norm`, in real arithmetic, for every input and every dtype. So one
  client more or less moves the sum by at most `clipping_norm`, and one client
  replaced by another by at most twice that.

  An update with a NaN or an infinity, or whose sum of squares is above the
  largest `float32`, becomes zero. Zero stays zero. See
  `l2_clip.clip_by_l2_norm` for all the edge cases.

  Measurements:
    clipping: Those of `inner_agg_factory`.
    clipping_norm: The clipping norm of this round, `float32`.
    clipped_count: How many updates were longer than it.
    zeroed_count: How many updates were not finite or too long, and so zero.

  The two counts are exact. They are left out if anything inside
  `inner_agg_factory` adds noise: a private pipeline reports nothing exact.

  State: `clipping_norm`, `inner_agg`, `count_agg`.

  For example:

  ```
  mean = tff.aggregators.UnweightedMeanFactory()
  process = difference_clipping_factory(0.5, mean).create(
    tff.TensorType(np.float32, [2])
  )
  ```

  On the updates (3, 4) and (0, 0.25), the result is (0.15, 0.325).

  Args:
    clipping_norm: c, from 1e-12 to 1e19, in the unit of the updates; or a
      process that reports it as `float32` at the server and whose `next` takes
      the norms before the clip, `float32` at the clients (0 for an update that
      became zero).
    inner_agg_factory: Aggregates the clipped updates. `None` is
      `tff.aggregators.SumFactory()`.
    count_sum_factory: Sums the counts, two `int32` scalars in an `OrderedDict`
      from each client: for example `tff.aggregators.SecureSumFactory(1, 0)`.
      `None` is `tff.aggregators.SumFactory()`, or nothing in a private
      pipeline, where nothing else is allowed.

  Returns:
    An aggregation factory.

  Raises:
    TypeError: If an argument is of the wrong kind.
    ValueError: If `clipping_norm` is a number that is not finite or too small.
      By `create`, if `inner_agg_factory` adds noise and `clipping_norm` is a
      process or `count_sum_factory` is given: the norm and the counts would
      leak what the noise hides.

  Source: Alg. CE-FedAvg, line "Clip", and Eq. (clip).
  """
  if not isinstance(clipping_norm, tff.templates.EstimationProcess):
    clipping_norm = l2_clip.check_clipping_norm('clipping_norm', clipping_norm)
  return clipping_process.clipping_wrapper(
    inner_agg_factory,
    lambda value_type: _make_clip(value_type, clipping_norm),
    count_sum_factory,
  )


def _make_clip(value_type, clipping_norm):
  """Returns the clip of values of `value_type`."""
  if isinstance(clipping_norm, tff.templates.EstimationProcess):

    @tff.tensorflow.computation(value_type, np.float32)
    def clip_to_estimate(value, norm):
      return _clip(value, norm)

    return clipping_process.Clip(
      clip_to_estimate, 'clipping_norm', clipping_norm
    )

  @tff.tensorflow.computation(value_type)
  def clip(value):
    return _clip(value, clipping_norm)

  return clipping_process.Clip(
    clip, 'clipping_norm', np.array(clipping_norm, np.float32)
  )


def _clip(value, norm):
  """Returns the clipped value, its norm, and the counts."""
  clipped = l2_clip.clip_by_l2_norm(value, norm)
  counts = collections.OrderedDict(
    clipped_count=clipped.was_clipped, zeroed_count=clipped.was_zeroed
  )
  return clipped.value, clipped.norm, counts
