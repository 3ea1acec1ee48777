"""Tests of the smallest population for an epsilon."""

import dp_accounting
import pytest
from dp_accounting import rdp

from tff_clipping import privacy

SETTING = dict(
  clients_per_round=200,
  num_rounds=720,
  target_delta=1e-6,
  noise_multiplier=1.0,
  target_epsilon=2.0,
)


def epsilon_by_library(num_clients):
  """Returns epsilon by dp_accounting alone."""
  accountant = rdp.RdpAccountant()
  accountant.compose(
    dp_accounting.PoissonSampledDpEvent(
      SETTING['clients_per_round'] / num_clients,
      dp_accounting.GaussianDpEvent(SETTING['noise_multiplier']),
    ),
    SETTING['num_rounds'],
  )
  return accountant.get_epsilon(SETTING['target_delta'])


def test_the_smallest_population_is_where_dp_accounting_meets_the_target():
  plan = privacy.PrivacyPlan.from_smallest_population(**SETTING)
  found = plan.num_clients
  # The library's orders are in part others: epsilon differs by a few 1e-4, and
  # falls by about as much where the population grows by as much.
  assert epsilon_by_library(round(found * 1.003)) <= 2.0
  assert epsilon_by_library(round(found * 0.997)) > 2.0


@pytest.mark.parametrize(
  ('change', 'message'),
  [
    ({'sampling': 'none'}, '`num_clients` must be given where `sampling`'),
    (
      {'sampling': 'random_allocation', 'accountant': 'pld'},
      '`num_clients` must be given where `sampling`',
    ),
    ({'target_epsilon': 1e-5}, 'out of reach: even with `num_clients`'),
  ],
)
def test_what_no_population_answers_is_refused(change, message):
  with pytest.raises(ValueError, match=message):
    privacy.PrivacyPlan.from_smallest_population(**{**SETTING, **change})
