"""Tests of tff_clipping.privacy.plans.noise_summary."""

import numpy as np
import pytest

from tff_clipping.privacy.plans import noise_summary


def test_figures_by_hand():
  # z = 2, c = 0.5, P = 16, d = 100: 1 on the sum, 1/4 of each client, 1/16 on
  # the mean, of length 10/16, which is 1.25 clipping norms.
  assert noise_summary.summarize_noise(
    noise_multiplier=2,
    clients_per_round=16,
    clipping_norm=0.5,
    model_size=100,
  ) == noise_summary.NoiseSummary(
    clipping_norm=0.5,
    model_size=100,
    sum_stddev=1.0,
    client_stddev=0.25,
    shares_stddev=1.0,
    mean_stddev=0.0625,
    mean_noise_norm=0.625,
    relative_noise_norm=1.25,
  )


def test_shares_of_the_clients_add_up_to_the_noise_on_the_sum():
  summary = noise_summary.summarize_noise(
    noise_multiplier=1.53, clients_per_round=80, clipping_norm=0.7
  )
  assert np.sqrt(80 * summary.client_stddev**2) == pytest.approx(
    summary.sum_stddev
  )
  assert summary.mean_noise_norm is None
  assert summary.relative_noise_norm is None


def test_shares_of_cohorts_that_vary():
  # z c = 2 by the shares of 4 clients, and those of 36 are released.
  summary = noise_summary.summarize_noise(
    noise_multiplier=2,
    clients_per_round=16,
    min_clients_per_round=4,
    max_clients_per_round=36,
  )
  assert summary.client_stddev == 1
  assert summary.shares_stddev == 6
  assert summary.sum_stddev == 2


def test_norm_is_that_of_drawn_noise():
  summary = noise_summary.summarize_noise(
    noise_multiplier=1.5, clients_per_round=80, model_size=200_000
  )
  noise = np.random.default_rng(0).normal(
    scale=summary.mean_stddev, size=200_000
  )
  # The length of 200,000 coordinates varies by 0.16 % (one deviation): 1 % is
  # six deviations, and the seed is fixed.
  assert np.linalg.norm(noise) == pytest.approx(
    summary.mean_noise_norm, rel=0.01
  )


@pytest.mark.parametrize('model_size', [0, -5, 2.5, True])
def test_bad_model_size_raises(model_size):
  with pytest.raises((TypeError, ValueError), match='`model_size` must be'):
    noise_summary.summarize_noise(
      noise_multiplier=1.5, clients_per_round=80, model_size=model_size
    )
