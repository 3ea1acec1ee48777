"""Clips clients' updates to L2 norms before they are aggregated."""

import collections
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_clipping.aggregators import factories, l2_clip


class Clip(NamedTuple):
  """A clip of clients' values.

  Attributes:
    norm: c, of all tensors together; infinite without a clip.
    build: Returns the clip of values of a type, a function in a graph.
    measured: The norm that is measured, by its name: a constant, or the process
      that estimates it.
  """

  norm: float
  build: Callable[[tff.Type], Callable[..., l2_clip.Clipped]]
  measured: Mapping[str, Any]


# What is not finite becomes zero all the same.
NO_CLIP = Clip(math.inf, lambda _: _without_clip, {})


def difference_clipping_factory(
  clipping_norm: float | tff.templates.EstimationProcess,
  inner_agg_factory: tff.aggregators.AggregationFactory | None = None,
  *,
  count_sum_factory: tff.aggregators.UnweightedAggregationFactory | None = None,
) -> tff.aggregators.AggregationFactory:
  """Clips the update difference of each client, as a whole, in L2.

  At CLIENTS, `value * min(1, clipping_norm / ||value||)` with the norm over all
  the tensors of `value`; then `inner_agg_factory`, with weights if it takes
  some.

  Guarantee: the norm of what reaches `inner_agg_factory` is at most
  `clipping_norm`, in real arithmetic, for every input and every dtype. So one
  client more or less moves the sum by at most `clipping_norm`, and one client
  replaced by another by at most twice that. An update that is not finite, or
  whose sum of squares is above the largest `float32`, becomes zero;
  `l2_clip.clip_by_l2_norm` has a table of the edge cases.

  Measurements; the counts are exact, and need `count_sum_factory`:
    clipping: Those of `inner_agg_factory`.
    clipping_norm: The clipping norm of this round, `float32`.
    clipped_count: How many updates were longer than it.
    zeroed_count: How many updates became zero.

  State: `clipping_norm`, `inner_agg`, `count_agg`.

  Args:
    clipping_norm: c, from 1e-12 to 1e19, in the unit of the updates; or a
      process that reports it as `float32` at the server and whose `next` takes
      the norms before the clip, `float32` at the clients (0 for an update that
      became zero). After a round that makes the norm NaN, as an empty cohort
      may, the process has the state from before.
    inner_agg_factory: Aggregates the clipped updates. `None` is
      `tff.aggregators.SumFactory()`.
    count_sum_factory: Sums the counts, two `int32` scalars in an `OrderedDict`
      from each client: for example `tff.aggregators.SumFactory()`, or
      `tff.aggregators.SecureSumFactory(1, 0)`. `None` measures no counts.

  Source: Alg. CE-FedAvg, line "Clip", and Eq. (clip).
  """
  if isinstance(clipping_norm, tff.templates.EstimationProcess):
    clip = Clip(
      math.inf,
      lambda _: l2_clip.clip_by_l2_norm,
      {'clipping_norm': clipping_norm},
    )
  else:
    clip = _whole_clip(clipping_norm)
  return _clipping_factory(
    clip, 'clipped_count', inner_agg_factory, count_sum_factory
  )


def per_layer_clipping_factory(
  clipping_norms: Sequence[float],
  inner_agg_factory: tff.aggregators.AggregationFactory | None = None,
  *,
  count_sum_factory: tff.aggregators.UnweightedAggregationFactory | None = None,
) -> tff.aggregators.AggregationFactory:
  """Clips tensor k of each client's update to `clipping_norms[k]`.

  At CLIENTS, x_k * min(1, c_k / ||x_k||) for each tensor x_k; then as
  `difference_clipping_factory`. An update with a tensor that is not finite, or
  whose sum of squares is above the largest `float32`, becomes zero as a whole.

  Guarantee: the norm of what reaches `inner_agg_factory` is at most
  `combined_clipping_norm(clipping_norms)`, in real arithmetic: the sensitivity
  to charge, which a noise multiplier multiplies. `dp_mean_factory` takes the
  norms, and adds the noise.

  Measurements, as for `difference_clipping_factory` but for:
    clipping_norms: The constants c_k, `float32` of shape [K].
    clipped_counts: How many updates were longer, for each tensor, `int32` of
      shape [K].

  State: `clipping_norms` (empty), `inner_agg`, `count_agg`.

  Args:
    clipping_norms: c_1 ... c_K, each from 1e-12 to 1e19, in the order of the
      tensors in the value type: that of the trainable variables of a model.
    inner_agg_factory: As for `difference_clipping_factory`.
    count_sum_factory: As for `difference_clipping_factory`.

  Raises:
    ValueError: By `create`, if the value type has another number of tensors.

  Source: McMahan et al. 2018, "Learning differentially private recurrent
    language models", Sec. 2. The paper clips the update as a whole.
  """
  return _clipping_factory(
    _layers_clip(clipping_norms),
    'clipped_counts',
    inner_agg_factory,
    count_sum_factory,
  )


def combined_clipping_norm(clipping_norms: Sequence[float]) -> float:
  """Returns sqrt(sum_k c_k^2), rounded up: the norm of all tensors together.

  Args:
    clipping_norms: c_1 ... c_K, which `per_layer_clipping_factory` takes and
      refuses alike.
  """
  return _layers_clip(clipping_norms).norm


def build_clip(clipping_norm: Any) -> Clip:
  """Returns the clip to a constant norm, or to a norm for each tensor."""
  if np.ndim(clipping_norm):
    return _layers_clip(clipping_norm)
  return _whole_clip(clipping_norm)


def _whole_clip(clipping_norm: Any) -> Clip:
  """Returns the clip of updates as a whole."""
  norm = l2_clip.check_clipping_norm('clipping_norm', clipping_norm)
  return Clip(
    norm,
    lambda _: lambda value: l2_clip.clip_by_l2_norm(value, norm),
    {'clipping_norm': np.float32(norm)},
  )


def _without_clip(value: Any) -> l2_clip.Clipped:
  return l2_clip.clip_by_l2_norm(value, math.inf)


def _layers_clip(clipping_norms: Any) -> Clip:
  """Returns the clip of each tensor to its own norm."""
  if np.ndim(clipping_norms) != 1:
    raise TypeError(
      '`clipping_norms` must be a sequence of numbers, found '
      f'{clipping_norms!r}.'
    )
  if len(clipping_norms) == 0:
    raise ValueError('`clipping_norms` must not be empty.')
  norms = [
    l2_clip.check_clipping_norm(f'clipping_norms[{k}]', norm)
    for k, norm in enumerate(clipping_norms)
  ]

  def build(value_type):
    num_tensors = len(tff.structure.flatten(value_type))
    if num_tensors != len(norms):
      raise ValueError(
        f'`clipping_norms` must have a norm for each of the {num_tensors} '
        f'tensors of {value_type}, found {len(norms)}.'
      )
    return lambda value: _clip_layers(value, norms, value_type)

  # `hypot` is wrong by less than one unit in the last place.
  combined = math.nextafter(math.hypot(*norms), math.inf)
  return Clip(combined, build, {'clipping_norms': np.array(norms, np.float32)})


def _clip_layers(value, norms, value_type):
  """Returns the clip of each tensor, of which any may zero the update."""
  # In the order of the type: `tf.nest` sorts by keys.
  leaves = [value]
  if not tf.is_tensor(value):
    leaves = tff.structure.flatten(
      tff.structure.from_container(value, recursive=True)
    )
  clipped = [
    l2_clip.clip_by_l2_norm(leaf, norm)
    for leaf, norm in zip(leaves, norms, strict=True)
  ]
  was_zeroed = tf.reduce_max(tf.stack([c.was_zeroed for c in clipped]))
  kept = tf.cond(
    was_zeroed > 0,
    lambda: [tf.zeros_like(c.value) for c in clipped],
    lambda: [tf.identity(c.value) for c in clipped],
  )
  in_order = iter(kept)
  return l2_clip.Clipped(
    value=tff.types.structure_from_tensor_type_tree(
      lambda _: next(in_order), value_type
    ),
    norm=tf.sqrt(tf.add_n([tf.square(c.norm) for c in clipped])),
    was_clipped=tf.stack([c.was_clipped for c in clipped]) * (1 - was_zeroed),
    was_zeroed=was_zeroed,
  )


def _clipping_factory(clip, count_name, inner_factory, count_factory):
  """Returns a factory that clips, then aggregates, and counts if asked."""
  ((norm_name, norm),) = clip.measured.items()
  if inner_factory is None:
    inner_factory = tff.aggregators.SumFactory()
  if count_factory is not None:
    factories.check_unweighted_factory('count_sum_factory', count_factory)
  is_estimated = isinstance(norm, tff.templates.EstimationProcess)

  def build(value_type, create_inner):
    inner = create_inner(value_type)
    clip_value = clip.build(value_type)

    @tff.tensorflow.computation(
      (value_type, np.float32) if is_estimated else value_type
    )
    def clip_at_client(given):
      clipped = clip_value(*given) if is_estimated else clip_value(given)
      counts = {
        count_name: clipped.was_clipped,
        'zeroed_count': clipped.was_zeroed,
      }
      return clipped.value, clipped.norm, collections.OrderedDict(counts)

    if is_estimated:
      norm_state_type = norm.state_type.member

      # Some processes make NaN of an empty cohort, and keep it ever after.
      @tff.tensorflow.computation(norm_state_type, norm_state_type, np.float32)
      def keep_number(before, after, reported):
        return tf.nest.map_structure(
          lambda old, new: tf.where(tf.math.is_nan(reported), old, new),
          before,
          after,
        )

    counts_type = clip_at_client.type_signature.result[2]
    counts = None
    if count_factory is not None:
      counts = count_factory.create(counts_type)

    def zip_state(*states):
      names = norm_name, 'inner_agg', 'count_agg'
      return tff.federated_zip(
        collections.OrderedDict(zip(names, states, strict=True))
      )

    @tff.federated_computation
    def initialize():
      nothing = tff.federated_value((), tff.SERVER)
      return zip_state(
        norm.initialize() if is_estimated else nothing,
        inner.initialize(),
        nothing if counts is None else counts.initialize(),
      )

    def trace(state, value, *weight):
      norm_state, inner_state, count_state = state
      if is_estimated:
        reported = norm.report(norm_state)
        value = value, tff.federated_broadcast(reported)
      else:
        reported = tff.federated_value(norm, tff.SERVER)
      clipped, norms, is_counted = tff.federated_map(clip_at_client, value)
      if is_estimated:
        next_state = norm.next(norm_state, norms)
        norm_state = tff.federated_map(
          keep_number, (norm_state, next_state, norm.report(next_state))
        )
      output = inner.next(inner_state, clipped, *weight)
      measurements = collections.OrderedDict(clipping=output.measurements)
      measurements[norm_name] = reported
      if counts is not None:
        counted = counts.next(count_state, is_counted)
        count_state = counted.state
        for name in tff.structure.name_list(counts_type):
          measurements[name] = counted.result[name]
      return tff.templates.MeasuredProcessOutput(
        zip_state(norm_state, output.state, count_state),
        output.result,
        tff.federated_zip(measurements),
      )

    return initialize, trace

  return factories.wrap_factory(inner_factory, build)
