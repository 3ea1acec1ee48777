"""Tests of `local_dp_mean_factory`."""

import itertools

import numpy as np
import pytest
import tensorflow_federated as tff

from tff_clipping import aggregators, privacy
from tff_clipping.programs.checks import noise_checks, process_checks

_SIZE = 20_000
_VECTOR = tff.TensorType(np.float32, [_SIZE])
# Five standard errors of a standard deviation: one failure in a million runs.
_ERROR = 5 / np.sqrt(2 * _SIZE)


@pytest.fixture(scope='module')
def process():
  return aggregators.local_dp_mean_factory(
    clipping_norm=0.5, noise_multiplier=3.0
  ).create(_VECTOR)


def _release(process, values):
  output = process.next(process.initialize(), values)
  return output.result.astype(np.float64)


def test_each_report_has_all_the_noise_and_the_mean_a_part(process):
  zeros = np.zeros(_SIZE, np.float32)
  for reports in (1, 4, 9):
    found = np.std(_release(process, [zeros] * reports))
    assert found == pytest.approx(3.0 * 0.5 / np.sqrt(reports), rel=_ERROR)


def test_nobody_reports(process):
  assert not _release(process, []).any()


def test_any_two_inputs_are_reported_two_norms_apart_at_most():
  # Without noise worth mentioning.
  size = 8
  process = aggregators.local_dp_mean_factory(
    clipping_norm=0.5, noise_multiplier=1e-12
  ).create(tff.TensorType(np.float32, [size]))
  rng = np.random.default_rng(0)
  inputs = [
    scale * rng.normal(size=size)
    for scale in (0.0, 0.01, -0.01, 50.0, -50.0, 3e37, np.nan, np.inf)
  ]
  inputs += [np.eye(size)[0], -np.eye(size)[0]]
  with np.errstate(over='ignore', invalid='ignore'):
    reports = [_release(process, [x.astype(np.float32)]) for x in inputs]
  apart = [np.linalg.norm(x - y) for x, y in itertools.combinations(reports, 2)]
  # The noise alone is the excess: 1e-12 * 0.5 in 8 elements.
  assert max(apart) == pytest.approx(2 * 0.5, rel=1e-6)


def test_reports_of_one_client_in_two_rounds_have_noises_of_their_own(process):
  zeros = [np.zeros(_SIZE, np.float32)]
  first, second = _release(process, zeros), _release(process, zeros)
  assert abs(np.corrcoef(first, second)[0, 1]) < 5 / np.sqrt(_SIZE)


def test_reports_two_clients_have_noises_of_their_own(process):
  zeros = [np.zeros(_SIZE, np.float32)] * 2
  # The same noise twice would have the whole standard deviation.
  assert np.std(_release(process, zeros)) < 3.0 * 0.5 * 0.75


def _plan(**changes):
  return privacy.LocalPlan(
    **{
      **dict(num_clients=48, clients_per_round=4, num_rounds=24),
      **dict(target_delta=1e-3, noise_multiplier=3.0, min_separation=12),
      **changes,
    }
  )


def test_what_is_added_is_what_the_event_charges(process):
  plan = _plan()
  sensitivity = plan.sensitivity_factor * 0.5 * np.sqrt(plan.max_reports)
  charged = plan.dp_event.noise_multiplier * sensitivity
  found = np.std(_release(process, [np.zeros(_SIZE, np.float32)]))
  assert found == pytest.approx(charged, rel=_ERROR)


def test_checks_take_it_with_its_plan_and_with_no_other(process):
  process_checks.check_process(process, _plan())
  other = privacy.PrivacyPlan(
    num_clients=48,
    clients_per_round=4,
    num_rounds=24,
    target_delta=1e-3,
    noise_multiplier=3.0,
  )
  with pytest.raises(ValueError, match='for a PrivacyPlan, found that they do'):
    process_checks.check_process(process, other)
  at_server = aggregators.dp_mean_factory(
    clipping_norm=0.5, noise_multiplier=3.0, clients_per_round=4
  ).create(_VECTOR)
  with pytest.raises(ValueError, match='for a LocalPlan, found that they do n'):
    process_checks.check_process(at_server, _plan())


def test_less_noise_than_the_plan_has_is_refused(process):
  state = process.initialize()
  measured = process.next(state, [np.zeros(_SIZE, np.float32)]).measurements
  noise_checks.check_noise(state, measured, _plan())
  with pytest.raises(ValueError, match='at least 3.1 times the clipping norm'):
    noise_checks.check_noise(state, measured, _plan(noise_multiplier=3.1))


def test_nothing_exact_is_measured(process):
  measured = process.next(
    process.initialize(), [np.ones(_SIZE, np.float32)]
  ).measurements
  assert measured['clipping'] == {'report_noise_stddev': np.float32(1.5)}
  assert set(measured) == {'clipping', 'clipping_norm'}


def test_there_is_no_weighted_form():
  factory = aggregators.local_dp_mean_factory(
    clipping_norm=0.5, noise_multiplier=3.0
  )
  assert isinstance(factory, tff.aggregators.UnweightedAggregationFactory)
  assert not isinstance(factory, tff.aggregators.WeightedAggregationFactory)


@pytest.mark.parametrize(
  ('arguments', 'message'),
  [
    (dict(clipping_norm=0.0), '`clipping_norm` must be positive'),
    (dict(noise_multiplier=-1.0), '`noise_multiplier` must be positive'),
    (dict(noise_multiplier=1e38), '`noise_stddev` must be at most'),
  ],
)
def test_bad_arguments_raise(arguments, message):
  given = dict(clipping_norm=0.5, noise_multiplier=3.0) | arguments
  with pytest.raises(ValueError, match=message):
    aggregators.local_dp_mean_factory(**given)
