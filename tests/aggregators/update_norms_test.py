"""Tests of `add_update_norm_measurements`."""

import numpy as np
import pytest
import tensorflow_federated as tff

from tests.aggregators.one_round import run, vectors
from tff_clipping import aggregators

_MEASURED_SUM = aggregators.add_update_norm_measurements(
  tff.aggregators.SumFactory(), clipping_norm=3
)


def test_hand_computed_statistics():
  # Norms 5, 1 and 3: mean 3, variance (4 + 4 + 0) / 3.
  output = run(_MEASURED_SUM, vectors([3, 4], [0, 1], [0, 3]))
  measurements = output.measurements
  assert set(measurements) == set(aggregators.SIMULATION_ONLY_MEASUREMENTS)
  assert measurements['update_norm_mean'] == 3.0
  assert measurements['update_norm_std'] == pytest.approx((8 / 3) ** 0.5)
  assert measurements['update_norm_min'] == 1.0
  assert measurements['update_norm_max'] == 5.0
  assert measurements['update_norm_nonfinite_count'] == 0
  assert measurements['clipped_fraction'] == pytest.approx(1 / 3)


@pytest.mark.slow
def test_result_and_measurements_of_the_inner_factory_are_unchanged():
  values = vectors([3, 4], [0, 1])
  clip = aggregators.clipped_mean_factory(clipping_norm=1.0)
  plain = run(clip, values)
  measured = run(aggregators.add_update_norm_measurements(clip), values)
  np.testing.assert_array_equal(measured.result, plain.result)
  # The norms are those before the clip.
  assert measured.measurements['update_norm_max'] == 5.0
  assert measured.measurements['clipped_count'] == 1
  assert 'clipped_fraction' not in measured.measurements


def test_nonfinite_updates_are_left_out_and_counted():
  output = run(
    aggregators.add_update_norm_measurements(
      aggregators.clipped_mean_factory(clipping_norm=1.0), clipping_norm=1.0
    ),
    vectors([3, 4], [np.nan, 1], [np.inf, 0]),
  )
  assert output.measurements['update_norm_mean'] == 5.0
  assert output.measurements['update_norm_std'] == 0.0
  assert output.measurements['update_norm_nonfinite_count'] == 2
  assert output.measurements['clipped_fraction'] == 1.0


def test_empty_cohort_measures_zero():
  output = run(_MEASURED_SUM, [])
  assert set(output.measurements.values()) == {0}


def test_large_norms_that_are_close_keep_their_deviation():
  # A difference of sums of squares in float32 would give 0 or NaN here.
  output = run(
    aggregators.add_update_norm_measurements(tff.aggregators.SumFactory()),
    vectors([100000.0, 0], [100002.0, 0]),
  )
  assert output.measurements['update_norm_std'] == 1.0


def test_weighted_factory_stays_weighted():
  factory = aggregators.add_update_norm_measurements(
    tff.aggregators.MeanFactory()
  )
  assert isinstance(factory, tff.aggregators.WeightedAggregationFactory)
  output = run(factory, vectors([3, 4], [0, 1]), weights=[1.0, 3.0])
  np.testing.assert_allclose(output.result, [0.75, 1.75])
  assert output.measurements['update_norm_mean'] == 3.0
  assert 'mean_value' in output.measurements
