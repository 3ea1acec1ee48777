"""Tests of tasks.experiment."""

import pytest

from tasks import experiment
from tff_clipping import privacy


@pytest.mark.parametrize(
  'budget',
  [
    {'target_delta': 1e-300, 'target_epsilon': 5.0},
    {'target_delta': 2.0, 'target_epsilon': 5.0},
    {'target_delta': 1e-5, 'target_epsilon': 1e-9},
    {'target_delta': 1e-5, 'target_epsilon': 1e308},
    {'target_delta': 1e-5, 'noise_multiplier': 1e-9},
    {'target_delta': 1e-5, 'noise_multiplier': 1e9},
  ],
)
def test_budget_is_refused_with_the_words_of_a_plan(budget):
  population = {'num_clients': 1920, 'clients_per_round': 80, 'num_rounds': 10}
  build = (
    privacy.PrivacyPlan.from_target_epsilon
    if 'target_epsilon' in budget
    else privacy.PrivacyPlan.from_noise_multiplier
  )
  with pytest.raises(ValueError) as by_plan:
    build(**population, **budget)
  with pytest.raises(ValueError) as by_config:
    experiment.ExperimentConfig(
      task='embedded_digits',
      partition='iid',
      model='mlp',
      algorithm='dp_fed_avg',
      local_steps=1,
      batch_size=1,
      client_learning_rate=0.1,
      clipping_norm=0.5,
      sampling='poisson',
      **population,
      **budget,
    )
  assert str(by_config.value) == str(by_plan.value)
