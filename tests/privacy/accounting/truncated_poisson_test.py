"""Tests of tff_clipping.privacy.accounting.truncated_poisson."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from tests.privacy.paper import POPULATION
from tff_clipping.privacy.accounting import (
  accountants,
  sampled_gaussian,
  truncated_poisson,
)
from tff_clipping.privacy.plans import functions


def build_mechanism(num_clients, clients_per_round, noise, least, largest):
  """Returns one round."""
  cohorts = sampled_gaussian.Cohorts(
    sampling='truncated_poisson',
    num_clients=num_clients,
    clients_per_round=clients_per_round,
    min_clients_per_round=least,
    max_clients_per_round=largest,
  )
  return sampled_gaussian.SampledGaussian(cohorts, noise)


def enumerate_sums(values, prob, least, largest):
  """Returns the law of the sum of a truncated cohort, over all cohorts.

  Args:
    values: What each client sends.
    prob: Each client's chance.
    least: The least cohort.
    largest: The largest cohort.
  """
  clients = range(len(values))
  law = {}
  for size in range(len(values) + 1):
    chance = prob**size * (1 - prob) ** (len(values) - size)
    for cohort in itertools.combinations(clients, size):
      others = [client for client in clients if client not in cohort]
      if size > largest:
        brought_in = [*itertools.combinations(cohort, largest)]
      else:
        missing = max(least - size, 0)
        brought_in = [
          (*cohort, *added) for added in itertools.combinations(others, missing)
        ]
      for final in brought_in:
        total = sum(values[client] for client in final)
        law[total] = law.get(total, 0) + chance / len(brought_in)
  return law


def build_density(law, noise, outputs):
  """Returns the density of a sum with Gaussian noise."""
  return sum(
    chance * stats.norm.pdf(outputs, loc=total, scale=noise)
    for total, chance in law.items()
  )


def integrate_hockey_stick(upper, lower, epsilon, num_rounds, cell):
  """Integrates (upper - e^epsilon lower)_+ over one round or two."""
  if num_rounds == 2:
    upper, lower = np.outer(upper, upper), np.outer(lower, lower)
  difference = upper - math.exp(epsilon) * lower
  return np.sum(np.maximum(difference, 0)) * cell**num_rounds


@pytest.mark.parametrize(
  'num_rounds', [1, pytest.param(2, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize('others', [-1, 0, 1])
@pytest.mark.parametrize(
  ('num_clients', 'clients_per_round', 'least', 'largest', 'noise'),
  [
    (5, 1, 0, 3, 1.0),
    (5, 1, 0, 1, 0.7),
    (6, 3, 1, 6, 2.0),
    (6, 5, 2, 6, 1.0),
    (6, 3, 0, 5, 0.5),
    (4, 3, 3, 3, 1.0),
    (2, 1, 1, 2, 1.0),
  ],
)
def test_no_neighbours_exceed_what_is_charged(
  num_clients, clients_per_round, least, largest, noise, others, num_rounds
):
  # Exact laws of all releases, by an enumeration of all cohorts: the client
  # sends 1, all others the same. The client is one of N, or one more.
  prob = clients_per_round / num_clients
  outputs = np.linspace(-7 - 8 * noise, 7 + 8 * noise, 1501)
  cell = outputs[1] - outputs[0]
  for population in (num_clients, num_clients + 1):
    one, other = (
      build_density(
        enumerate_sums(values, prob, least, largest), noise, outputs
      )
      for values in (
        [others] * (population - 1) + [1],
        [others] * (population - 1),
      )
    )
    for epsilon in (1e-6, 0.3, 1.0, 2.0):
      charged = functions.compute_delta(
        num_clients=num_clients,
        clients_per_round=clients_per_round,
        num_rounds=num_rounds,
        noise_multiplier=noise,
        target_epsilon=epsilon,
        sampling='truncated_poisson',
        accountant='pld',
        min_clients_per_round=least,
        max_clients_per_round=largest,
      )
      for upper, lower in ((one, other), (other, one)):
        delta = integrate_hockey_stick(upper, lower, epsilon, num_rounds, cell)
        # The sum over the grid is exact to 1e-6.
        assert delta <= charged + 1e-6


def test_truncation_costs_more_than_poisson_sampling():
  # Why it must be charged: all cohorts of 1 of 2, where the other client sends
  # the opposite.
  noise, outputs = 1.0, np.linspace(-9, 9, 3001)
  one, other = (
    build_density(enumerate_sums(values, 0.5, 1, 1), noise, outputs)
    for values in ([-1, 1], [-1])
  )
  delta = integrate_hockey_stick(one, other, 1.0, 1, outputs[1] - outputs[0])
  question = {
    'num_clients': 2,
    'clients_per_round': 1,
    'num_rounds': 1,
    'noise_multiplier': noise,
    'target_epsilon': 1.0,
    'accountant': 'pld',
  }
  assert delta > 1.5 * functions.compute_delta(**question)
  assert delta <= functions.compute_delta(
    **question,
    sampling='truncated_poisson',
    min_clients_per_round=1,
    max_clients_per_round=1,
  )


@pytest.mark.parametrize(
  ('num_clients', 'clients_per_round', 'least', 'largest'),
  [(20, 10, 4, 16), (20, 10, 0, 21), (7, 7, 6, 7), (30, 3, 0, 9)],
)
def test_tails_are_those_of_the_neighbours(
  num_clients, clients_per_round, least, largest
):
  prob = clients_per_round / num_clients

  def chance(size, population):
    return (
      math.comb(population, size)
      * prob**size
      * (1 - prob) ** (population - size)
    )

  expected = math.fsum(
    chance(size, num_clients - 1) for size in range(least)
  ) + math.fsum(
    chance(size, num_clients + 1)
    for size in range(largest + 1, num_clients + 2)
  )
  mechanism = build_mechanism(num_clients, clients_per_round, 1, least, largest)
  found = truncated_poisson.compute_tail_prob(mechanism.cohorts)
  assert found == pytest.approx(expected, rel=1e-9, abs=0)


@pytest.mark.parametrize('accountant', ['rdp', 'pld'])
def test_epsilon_and_delta_pay_for_the_tails(accountant):
  question = {
    **POPULATION,
    'num_rounds': 100,
    'noise_multiplier': 1.6,
    'accountant': accountant,
  }
  truncated = {
    **question,
    'sampling': 'truncated_poisson',
    'min_clients_per_round': 36,
    'max_clients_per_round': 135,
  }
  epsilon = functions.compute_epsilon(**truncated, target_delta=1e-5)
  poisson = functions.compute_delta(**question, target_epsilon=epsilon)
  mechanism = build_mechanism(1920, 80, 1.6, 36, 135)
  tails = 100 * (1 + math.exp(epsilon))
  tails *= truncated_poisson.compute_tail_prob(mechanism.cohorts)
  # They spend a good part of delta, and not all of it.
  assert 1e-6 < tails < 9e-6
  assert poisson + tails == pytest.approx(1e-5, rel=1e-3)
  assert functions.compute_delta(
    **truncated, target_epsilon=epsilon
  ) == pytest.approx(poisson + tails)
  assert epsilon > functions.compute_epsilon(**question, target_delta=1e-5)


@pytest.mark.parametrize(
  'accountant', ['rdp', pytest.param('pld', marks=pytest.mark.slow)]
)
def test_calibrated_noise_keeps_the_target(accountant):
  question = {
    **POPULATION,
    'num_rounds': 100,
    'target_delta': 1e-5,
    'sampling': 'truncated_poisson',
    'accountant': accountant,
    'min_clients_per_round': 36,
    'max_clients_per_round': 135,
  }
  noise = functions.calibrate_noise_multiplier(**question, target_epsilon=1.5)
  epsilon = functions.compute_epsilon(**question, noise_multiplier=noise)
  assert 1.4999 < epsilon <= 1.5
  del question['num_rounds']
  rounds = functions.compute_max_rounds(
    **question, noise_multiplier=noise, target_epsilon=1.5
  )
  assert rounds == 100


@pytest.mark.parametrize('accountant', ['rdp', 'pld'])
def test_bounds_that_no_neighbour_passes_cost_nothing(accountant):
  mechanism = build_mechanism(20, 10, 8.0, 0, 21)
  costs = (
    accountants.compose([(mechanism, 1)], accountant),
    accountants.TABLE[accountant].compose([(mechanism, 1)]),
  )
  one, other = (cost.compute_epsilon(50, 1e-4) for cost in costs)
  assert one == other


@pytest.mark.parametrize(('accountant', 'more'), [('rdp', 0.02), ('pld', 0)])
def test_rdp_pays_a_little_for_noise_that_may_be_in_integers(accountant, more):
  question = {
    'num_clients': 20,
    'clients_per_round': 10,
    'num_rounds': 50,
    'noise_multiplier': 8.0,
    'target_delta': 1e-4,
    'accountant': accountant,
  }
  poisson = functions.compute_epsilon(**question)
  truncated = functions.compute_epsilon(
    **question,
    sampling='truncated_poisson',
    min_clients_per_round=0,
    max_clients_per_round=21,
  )
  assert poisson <= truncated <= (1 + more) * poisson


@pytest.mark.parametrize(
  ('num_clients', 'clients_per_round', 'num_rounds', 'epsilon'),
  [(1920, 80, 100, 1.5), (100_000, 100, 1000, 4.0), (10**12, 10_000, 10, 0.5)],
)
def test_default_bounds_are_the_narrowest_of_their_cost(
  num_clients, clients_per_round, num_rounds, epsilon
):
  least, largest = truncated_poisson.choose_bounds(
    sampled_gaussian.Cohorts(
      sampling='poisson',
      num_clients=num_clients,
      clients_per_round=clients_per_round,
    ),
    num_rounds=num_rounds,
    epsilon=epsilon,
    target_delta=1e-6,
  )
  allowed = 0.005 * 1e-6 / num_rounds / (1 + math.exp(epsilon))
  prob = clients_per_round / num_clients
  below = stats.binom(num_clients - 1, prob)
  above = stats.binom(num_clients + 1, prob)
  assert below.cdf(least - 1) <= allowed < below.cdf(least)
  assert above.sf(largest) <= allowed < above.sf(largest - 1)


@pytest.mark.parametrize('epsilon', [500.0, math.inf])
def test_default_bounds_for_a_large_epsilon_are_those_of_no_cost(epsilon):
  assert truncated_poisson.choose_bounds(
    sampled_gaussian.Cohorts(
      sampling='poisson', num_clients=20, clients_per_round=10
    ),
    num_rounds=5,
    epsilon=epsilon,
    target_delta=1e-5,
  ) == (0, 21)


def test_tails_that_use_up_delta_are_refused_with_bounds_that_would_do():
  question = {**POPULATION, 'num_rounds': 100, 'target_epsilon': 1.5}
  message = (
    'must be wider, found 60 and 100: in 100 rounds, .* cost a delta of 1 at '
    'epsilon 1.5, which `target_delta` 1e-05 must pay for; 31 and 142 would do'
  )
  with pytest.raises(ValueError, match=message):
    functions.calibrate_noise_multiplier(
      **question,
      target_delta=1e-5,
      sampling='truncated_poisson',
      min_clients_per_round=60,
      max_clients_per_round=100,
    )
  with pytest.raises(ValueError, match='must be wider, found 60 and 100'):
    functions.compute_epsilon(
      **POPULATION,
      num_rounds=100,
      noise_multiplier=1.6,
      target_delta=1e-5,
      sampling='truncated_poisson',
      min_clients_per_round=60,
      max_clients_per_round=100,
    )
  functions.calibrate_noise_multiplier(
    **question,
    target_delta=1e-5,
    sampling='truncated_poisson',
    min_clients_per_round=31,
    max_clients_per_round=142,
  )


@pytest.mark.parametrize(
  ('change', 'error', 'message'),
  [
    ({'least': None}, TypeError, '`min_clients_per_round` must be an integer'),
    ({'largest': 8.0}, TypeError, '`max_clients_per_round` must be an integer'),
    ({'least': -1}, ValueError, '`min_clients_per_round` must be at least 0'),
    ({'least': 6}, ValueError, '`min_clients_per_round` must be at most 5'),
    ({'largest': 4}, ValueError, '`max_clients_per_round` must be at least 5'),
  ],
)
def test_bad_bounds_raise(change, error, message):
  with pytest.raises(error, match=message):
    build_mechanism(
      **{
        'num_clients': 9,
        'clients_per_round': 5,
        'noise': 1.0,
        'least': 2,
        'largest': 8,
        **change,
      }
    )


def test_least_cohort_is_one_that_a_smaller_neighbour_has():
  with pytest.raises(ValueError, match='`min_clients_per_round` must be at mo'):
    build_mechanism(9, 9, 1.0, 9, 9)
