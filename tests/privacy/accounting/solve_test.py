"""Tests of privacy.accounting.solve, by the functions of plans.

Noise is the least that meets a target, and rounds are the most.
"""

import math
from typing import NamedTuple

import pytest

from tests.privacy.paper import PAPER
from tff_clipping import privacy
from tff_clipping.privacy.accounting import privacy_loss, solve

# Noise multipliers for N = 1920, P = 80, delta = 1e-5, found with
# dp-accounting 0.4.3's own calibration to 1e-7.
TABLE = {
  ('poisson', 'rdp'): {
    1.5: [1.316931, 1.529983, 1.913042, 2.776610, 3.804134],
    5.0: [0.774109, 0.845958, 0.948909, 1.178637, 1.478136],
  },
  ('poisson', 'pld'): {
    1.5: [1.2067, 1.4206, 1.7786, 2.5750, 3.5241],
    5.0: [0.7185, 0.7917, 0.8944, 1.1159, 1.3968],
  },
  ('fixed_size', 'rdp'): {
    1.5: [3.8469, 5.1014, 6.9618, 10.7312, 15.0167],
    5.0: [1.7493, 2.1053, 2.7454, 3.9130, 5.3009],
  },
}

ROUNDS = [50, 100, 200, 500, 1000]

TOLERANCES = {'rdp': 1e-5, 'pld': 2e-4}


class _Cost(NamedTuple):
  value: float
  epsilon: float


@pytest.mark.parametrize(
  ('low', 'high', 'start', 'exponent'),
  # As for a population, and as for rounds, whose epsilon grows with them.
  [(3, 10**6, 3, -0.7), (10**6, 1, 1, 0.5)],
)
@pytest.mark.parametrize('target', [0.02, 0.31, 4.0, 900.0])
def test_the_integer_nearest_to_the_low_end_is_found(
  low, high, start, exponent, target
):
  epsilons = {n: n**exponent for n in range(min(low, high), max(low, high) + 1)}
  within = [n for n, epsilon in epsilons.items() if epsilon <= target]
  tried = []

  def build(n):
    tried.append(n)
    return _Cost(n, epsilons[n])

  if not within:
    with pytest.raises(ValueError, match=f'out of reach: even with `n` {high}'):
      solve.find(build, low, high, target, name='n', start=start)
    return
  found = solve.find(build, low, high, target, name='n', start=start)
  assert found.value == (min if low < high else max)(within)
  assert len(tried) == len({*tried}) < 25


@pytest.mark.parametrize('target', [1e-5, 0.3, 1.0, 7.7])
def test_the_least_number_of_6_digits_is_found(target):
  found = solve.find(
    lambda z: _Cost(z, 1.5 / z), 0.01, 1e6, target, name='z', start=1.0
  )
  assert float(f'{found.value:.6g}') == found.value
  assert found.epsilon <= target < 1.5 / (found.value * (1 - 1e-5))


def table_cells():
  """Yields the cells of the table; a fifth of them is for every day."""
  # The best order is 63 or more here: a search among low orders ends at 3090.
  yield 'poisson', 'rdp', 0.05, 1, 5.1597
  yield 'poisson', 'rdp', 1.5, 10**7, 367.76
  for (sampling, accountant), columns in TABLE.items():
    for epsilon, multipliers in columns.items():
      for rounds, multiplier in zip(ROUNDS, multipliers, strict=True):
        is_slow = rounds != (100 if epsilon < 2 else 1000)
        yield pytest.param(
          *(sampling, accountant, epsilon, rounds, multiplier),
          marks=[pytest.mark.slow] if is_slow else [],
        )


@pytest.mark.parametrize(
  ('sampling', 'accountant', 'epsilon', 'rounds', 'multiplier'), table_cells()
)
def test_multiplier_of_table(sampling, accountant, epsilon, rounds, multiplier):
  setting = {'num_rounds': rounds, 'sampling': sampling, **PAPER}
  setting['accountant'] = accountant
  found = privacy.calibrate_noise_multiplier(target_epsilon=epsilon, **setting)
  # The last printed digit of the table is half a unit of the fourth digit.
  slack = TOLERANCES[accountant] + (5e-5 / multiplier)
  assert found == pytest.approx(multiplier, rel=slack)
  # It is the least one.
  within, above = (
    privacy.compute_epsilon(noise_multiplier=each, **setting)
    for each in (found, found * (1 - 1e-5))
  )
  assert within <= epsilon < above


@pytest.mark.parametrize(
  ('given', 'target', 'message'),
  [
    ({'num_rounds': 1000}, 0.001, 'is out of reach'),
    ({'num_rounds': 10**7}, 1e-6, 'is out of reach'),
    ({'num_rounds': 1}, 1e5, 'must be smaller'),
    ({'num_rounds': 10}, 0, 'must be'),
    ({'num_rounds': 10}, 1e308, 'must be'),
    ({'noise_multiplier': 0.5}, 0.1, 'reach: even with `num_rounds` 1 it is'),
    ({'noise_multiplier': 1e4}, 5.0, 'with `num_rounds` 1e.07, the last that'),
  ],
)
def test_what_has_no_answer_is_said_of_the_target(given, target, message):
  solve_for = privacy.calibrate_noise_multiplier
  if 'noise_multiplier' in given:
    solve_for = privacy.compute_max_rounds
  with pytest.raises(ValueError, match=f'`target_epsilon` .*{message}'):
    solve_for(**given, **PAPER, target_epsilon=target)


@pytest.mark.parametrize(
  ('accountant', 'rounds', 'multiplier'),
  # Opacus stops its search 0.01 below epsilon = 8.
  [
    ('rdp', 2250, 1.416),
    ('pld', 2000, 1.2915),
  ],
)
def test_published_multipliers_of_opacus(accountant, rounds, multiplier):
  assert privacy.calibrate_noise_multiplier(
    num_clients=100000,
    clients_per_round=4000,
    num_rounds=rounds,
    target_epsilon=8,
    target_delta=1e-5,
    accountant=accountant,
  ) == pytest.approx(multiplier, rel=2e-3)


@pytest.mark.parametrize('accountant', ['rdp', 'pld'])
@pytest.mark.parametrize('sampling', ['poisson', 'fixed_size', 'none'])
@pytest.mark.parametrize(
  'target', [2.0, pytest.param(40, marks=pytest.mark.slow)]
)
def test_rounds_and_delta_are_those_that_a_multiplier_is_for(
  accountant, sampling, target
):
  setting = {
    'num_clients': 1000,
    'clients_per_round': 1000 if sampling == 'none' else 30,
    'sampling': sampling,
    'accountant': accountant,
  }
  plan = privacy.PrivacyPlan.from_target_epsilon(
    num_rounds=60, target_epsilon=target, target_delta=1e-6, **setting
  )
  assert target * (1 - 1e-4) < plan.epsilon <= target
  noise = {'noise_multiplier': plan.noise_multiplier}
  rounds = privacy.compute_max_rounds(
    target_epsilon=target, target_delta=1e-6, **noise, **setting
  )
  assert rounds == 60
  delta = privacy.compute_delta(
    num_rounds=60, target_epsilon=plan.epsilon, **noise, **setting
  )
  assert delta == pytest.approx(1e-6, rel=1e-3)


@pytest.mark.slow
def test_target_for_ten_million_rounds_by_pld_is_near_the_limit():
  # So many rounds are one Gaussian release with noise 1/mu, but for a term that
  # vanishes, where mu^2 = q^2 T (e^(1/z^2) - 1) (Bu et al. 2020, "Deep learning
  # with Gaussian differential privacy", Theorem 5).
  found = privacy.calibrate_noise_multiplier(
    num_rounds=10**7, target_epsilon=1.5, accountant='pld', **PAPER
  )

  def delta_at(multiplier):
    mu = 80 / 1920 * math.sqrt(10**7 * math.expm1(multiplier**-2))
    return privacy_loss.compute_gaussian_delta(1 / mu, 1.5)

  assert delta_at(found) <= 1e-5 < delta_at(found / 1.003)
