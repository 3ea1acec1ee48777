"""Clips each client's update to an L2 norm before it is aggregated."""

import functools
from collections.abc import Callable
from typing import Any

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

  The two counts are exact, and measured only if `count_sum_factory` is given.

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
      from each client: for example `tff.aggregators.SumFactory()`, or
      `tff.aggregators.SecureSumFactory(1, 0)`. `None` to measure none, as where
      something inside adds noise.

  Returns:
    An aggregation factory.

  Raises:
    TypeError: If an argument is of the wrong kind.
    ValueError: If `clipping_norm` is a number that is not finite or too small.

  Source: Alg. CE-FedAvg, line "Clip", and Eq. (clip).
  """
  if isinstance(clipping_norm, tff.templates.EstimationProcess):
    norm: Any = clipping_norm
    build: Callable = build_clip
  else:
    number = l2_clip.check_clipping_norm('clipping_norm', clipping_norm)
    norm = np.float32(number)
    build = functools.partial(build_clip, norm=number)
  return clipping_process.clipping_wrapper(
    inner_agg_factory,
    clipping_process.Clip(
      build=build,
      norm_name='clipping_norm',
      norm=norm,
      count_name='clipped_count',
    ),
    count_sum_factory,
  )


def build_clip(
  value_type: tff.Type, norm: float | None = None
) -> Callable[..., l2_clip.Clipped]:
  """Returns the clip of values, in a graph; the same for values of all types.

  Args:
    value_type: The type of a client's value.
    norm: c; `None` for one that comes with each value.
  """
  del value_type
  if norm is None:
    return l2_clip.clip_by_l2_norm
  return lambda value: l2_clip.clip_by_l2_norm(value, norm)
