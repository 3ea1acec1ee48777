"""Tests of privacy.plans.functions, and of what a PrivacyPlan refuses."""

import math

import numpy as np
import pytest

from tests.privacy.paper import PAPER
from tff_clipping.privacy.plans import functions

EPSILON_SETTING = {**PAPER, 'num_rounds': 100, 'noise_multiplier': 1.5}


@pytest.mark.parametrize(
  ('change', 'error', 'message'),
  [
    ({'num_clients': 0}, ValueError, '`num_clients` must be at least 1'),
    ({'num_clients': 79}, ValueError, '`clients_per_round` must be at most'),
    ({'num_clients': 1920.0}, TypeError, '`num_clients` must be an integer'),
    ({'num_clients': True}, TypeError, '`num_clients` must be an integer'),
    ({'clients_per_round': 0}, ValueError, '`clients_per_round` must be at'),
    ({'num_rounds': 0}, ValueError, '`num_rounds` must be at least 1, found 0'),
    ({'num_rounds': -3}, ValueError, '`num_rounds` must be at least 1'),
    ({'num_rounds': 10**8}, ValueError, '`num_rounds` must be at most'),
    ({'noise_multiplier': 0}, ValueError, '`noise_multiplier` must be posi'),
    ({'noise_multiplier': -1}, ValueError, '`noise_multiplier` must be posi'),
    ({'noise_multiplier': 1e-3}, ValueError, '`noise_multiplier` must be at l'),
    ({'noise_multiplier': 1e9}, ValueError, '`noise_multiplier` must be at m'),
    ({'noise_multiplier': math.nan}, ValueError, '`noise_multiplier` must be '),
    ({'noise_multiplier': '1'}, TypeError, '`noise_multiplier` must be a num'),
    ({'target_delta': 0}, ValueError, '`target_delta` must be between'),
    ({'target_delta': 1}, ValueError, '`target_delta` must be between'),
    ({'target_delta': -0.5}, ValueError, '`target_delta` must be between'),
    ({'target_delta': math.inf}, ValueError, '`target_delta` must be between'),
    ({'sampling': 'uniform'}, ValueError, "`sampling` must be one of 'poi"),
    ({'sampling': None}, TypeError, '`sampling` must be a string'),
    ({'sampling': 'none'}, ValueError, '`clients_per_round` must equal'),
    ({'accountant': 'gdp'}, ValueError, "`accountant` must be one of 'rdp'"),
    ({'target_delta': 1e-21}, ValueError, '`target_delta` must be at least 1'),
  ],
)
def test_bad_argument_raises(change, error, message):
  with pytest.raises(error, match=message) as caught:
    functions.compute_epsilon(**{**EPSILON_SETTING, **change})
  assert '\n' not in str(caught.value)


def test_numpy_numbers_are_numbers():
  assert functions.compute_epsilon(
    num_clients=np.int64(1920),
    clients_per_round=np.int32(80),
    num_rounds=np.int64(100),
    noise_multiplier=np.float32(1.5),
    target_delta=np.float64(1e-5),
  ) == functions.compute_epsilon(**EPSILON_SETTING)
