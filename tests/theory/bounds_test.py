"""Theorem 1, as printed and corrected: its terms, conditions and rates."""

import dataclasses
import math

import pytest

from tff_clipping.theory import bounds, clipping_bias

PROBLEM = bounds.Problem(
  smoothness=2.0,
  gradient_bound=3.0,
  local_stddev=0.5,
  global_stddev=0.25,
  initial_gap=1.5,
  dimension=100,
)
SCHEDULE = bounds.Schedule(
  num_clients=40,
  clients_per_round=10,
  local_steps=4,
  num_rounds=50,
  client_learning_rate=0.01,
  server_learning_rate=2.0,
)
# Two rounds of two clients; c = 1: α = 1/2, 1 and 1/4, 1; α̃ = 1, 1 and 1/2, 1.
FACTORS = clipping_bias.clipping_factors(
  [[2, 1], [4, 1]], [[1, 0.5], [2, 1]], 1.0
)


def test_corrected_terms_by_hand():
  terms = bounds.theorem_1_terms(
    PROBLEM, SCHEDULE, noise_stddev=0.1, factors=FACTORS
  )
  # 4 * 1.5 / (2 * 0.01 * 4 * 50)
  assert terms.initial_gap == pytest.approx(1.5)
  # 1e-4 * 4 * 3 * (3 * 0.25 + 2 * 4 * 0.0625) * γ_1, γ_1 = 0.875
  assert terms.client_drift == pytest.approx(0.0013125)
  # 12 * 0.02 * 2 * 0.25 / 10 * γ_2, γ_2 = (1 + 0.5625) / 2
  assert terms.sampling_noise == pytest.approx(0.009375)
  # 12 * 30/39 * 0.02 * 2 * 4 * 0.0625 / 10 * γ_2
  assert terms.client_sampling == pytest.approx(0.009375 * 30 / 39)
  # 2 * 2 * 2 * 100 * 0.01 / (0.01 * 10 * 4)
  assert terms.privacy_noise == pytest.approx(20.0)
  # 4 * 9 * ((0.25 + 0) + (0.125 + 0.25)) / 2
  assert terms.clipping_bias == pytest.approx(11.25)
  # 6 * 0.02 * 2 * 4 * 9 * ((0.125 + 0) + (0.03125 + 0.0625)) / 2
  assert terms.clipping_variance == pytest.approx(0.945)
  assert terms.total == pytest.approx(sum(terms))
  assert terms.standard == pytest.approx(sum(terms[:4]))


def test_corrected_terms_of_other_samplings_by_hand():
  fixed, poisson, replaced = (
    bounds.theorem_1_terms(
      PROBLEM,
      dataclasses.replace(SCHEDULE, sampling=sampling),
      factors=FACTORS,
    )
    for sampling in ('fixed_size', 'poisson', 'with_replacement')
  )
  assert replaced.client_sampling == pytest.approx(0.009375)
  assert poisson.client_sampling == pytest.approx(0.009375 * 0.75)
  # κ = 1 + 0.75 / 10
  assert poisson.clipping_variance == pytest.approx(0.945 * 1.075)
  assert replaced.clipping_variance == pytest.approx(0.945)
  everybody = dataclasses.replace(SCHEDULE, clients_per_round=40)
  assert bounds.theorem_1_terms(PROBLEM, everybody).client_sampling == 0.0
  assert fixed.client_drift == poisson.client_drift == replaced.client_drift


def test_terms_of_the_statement_by_hand():
  terms = bounds.theorem_1_terms(
    PROBLEM, SCHEDULE, noise_stddev=0.1, factors=FACTORS, constants='statement'
  )
  assert terms == pytest.approx(
    (
      1.5,
      # 12.5 * 1e-4 * 2 * 4 * (0.25 + 24 * 0.0625) * γ_1, γ_1 = 0.875
      0.0153125,
      # 6 * 0.02 * 2 * 0.25 / 10 * γ_2, γ_2 = (1 + 0.5625) / 2
      0.0046875,
      0.0,
      20.0,
      11.25,
      # 6 * 0.02 * 2 * 4 * 9 * 40/10 * ((0.125 + 0) + (0.03125 + 0.0625)) / 2
      3.78,
    )
  )
  assert terms.standard == pytest.approx(1.52)
  assert terms.clipping == pytest.approx(15.03)


def test_without_clipping_and_noise_fed_avgs_bound_is_left():
  terms = bounds.theorem_1_terms(PROBLEM, SCHEDULE)
  assert terms.privacy_noise == 0.0
  assert terms.clipping == 0.0
  assert terms.total == terms.standard


def test_corrected_conditions_by_hand():
  # 1 / (16 * 4 * 2), 1 / (4 * 4 * 2)
  fixed = bounds.theorem_1_conditions(PROBLEM, SCHEDULE)
  assert [c.value for c in fixed] == [0.02, 0.01]
  assert [c.limit for c in fixed] == [1 / 128, 1 / 32]
  assert [c.holds for c in fixed] == [False, True]
  schedule = dataclasses.replace(SCHEDULE, sampling='poisson')
  poisson = bounds.theorem_1_conditions(PROBLEM, schedule)
  assert poisson[0].limit == pytest.approx(1 / (128 * 1.075))


def test_conditions_of_the_statement_by_hand():
  stated = bounds.theorem_1_conditions(PROBLEM, SCHEDULE, 'statement')
  assert [c.value for c in stated] == pytest.approx([0.02, 0.02, 0.01])
  # 10 / 192, 10 / (6 * 4 * 2 * 9), 1 / (√60 * 8)
  assert [c.limit for c in stated] == pytest.approx(
    [0.0520833, 0.0231481, 0.0161374], rel=1e-5
  )
  assert all(c.holds for c in stated)
  alone = dataclasses.replace(SCHEDULE, clients_per_round=1)
  conditions = bounds.theorem_1_conditions(PROBLEM, alone, 'statement')
  assert conditions[1].limit == math.inf


def _terms(num_rounds=10**12, local_steps=4, slower_server=False, **change):
  """The terms with the paper's rates, or a server's of the root of P."""
  eta_l, eta_g = bounds.standard_learning_rates(
    smoothness=2.0,
    clients_per_round=10,
    local_steps=local_steps,
    num_rounds=num_rounds,
  )
  schedule = dataclasses.replace(
    SCHEDULE,
    local_steps=local_steps,
    num_rounds=num_rounds,
    client_learning_rate=eta_l,
    server_learning_rate=math.sqrt(10) if slower_server else eta_g,
    **change,
  )
  conditions = bounds.theorem_1_conditions(PROBLEM, schedule)
  assert all(condition.holds for condition in conditions)
  return bounds.theorem_1_terms(PROBLEM, schedule)


def _terms_of_few_and_many_steps(**setting):
  return [_terms(local_steps=steps, **setting) for steps in (4, 400)]


def test_in_full_participation_local_steps_improve_the_rate_by_their_root():
  few, many = _terms_of_few_and_many_steps(num_clients=10)
  assert few.total / many.total == pytest.approx(10.0, rel=0.01)


def test_in_partial_participation_local_steps_worsen_the_rate_by_their_root():
  few, many = _terms_of_few_and_many_steps()
  assert many.client_sampling / few.client_sampling == pytest.approx(10.0)
  assert few.sampling_noise / many.sampling_noise == pytest.approx(10.0)
  assert many.total > few.total


def test_with_the_smaller_server_rate_local_steps_do_no_harm():
  few, many = _terms_of_few_and_many_steps(slower_server=True)
  assert many.client_sampling == pytest.approx(few.client_sampling)
  assert many.total < few.total


def test_bound_falls_with_the_root_of_the_rounds():
  short, long = (
    _terms(num_rounds=num_rounds) for num_rounds in (10**8, 10**10)
  )
  assert short.total / long.total == pytest.approx(10.0, rel=0.01)


@pytest.mark.parametrize(
  ('of', 'change', 'message'),
  [
    (PROBLEM, {'smoothness': 0.0}, '`smoothness` must be positive and finite'),
    (PROBLEM, {'gradient_bound': -1.0}, '`gradient_bound` must be finite and'),
    (PROBLEM, {'dimension': 0}, '`dimension` must be at least 1'),
    (SCHEDULE, {'clients_per_round': 41}, '`clients_per_round` must be at mos'),
    (SCHEDULE, {'num_rounds': 0}, '`num_rounds` must be at least 1'),
    (SCHEDULE, {'sampling': 'paper'}, "`sampling` must be .* found 'paper'"),
  ],
)
def test_bad_problems_and_schedules_are_refused(of, change, message):
  with pytest.raises(ValueError, match=message):
    dataclasses.replace(of, **change)
