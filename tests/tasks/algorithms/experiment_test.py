"""Tests of tasks.algorithms.experiment."""

import json

import numpy as np
import pytest

from tasks.algorithms import experiment
from tests.tasks import small_runs
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


_AUDITED = small_runs.DP_FED_AVG | dict(audit_canaries=100)


@pytest.mark.parametrize(
  ('changes', 'message'),
  [
    (dict(audit_canaries=0), '`audit_canaries` must be at least 10, found 0'),
    (
      dict(audit_canaries=100_000),
      '`audit_canaries` must be at most 65536, .* found 100000',
    ),
    (
      dict(
        algorithm='ce_fed_avg',
        sampling='fixed_size',
        target_epsilon=None,
        target_delta=None,
      ),
      '`audit_canaries` must not be given for ce_fed_avg, which adds no noise, '
      'found 100; it is for dp_fed_avg',
    ),
    (
      dict(simulation_diagnostics=True),
      '`simulation_diagnostics` must not be given with `audit_canaries`',
    ),
    (dict(noise_multiplier=1.0), 'takes one of'),
    (dict(target_epsilon=None), 'takes one of'),
    (
      dict(audit_canaries=None, audit_seed=1),
      '`audit_seed` must be given with `audit_canaries`, found 1 without',
    ),
  ],
)
def test_private_runs_that_cannot_be_are_refused(changes, message):
  with pytest.raises(ValueError, match=message):
    experiment.ExperimentConfig(**{**_AUDITED, **changes})


def test_the_number_of_canaries_is_an_integer():
  with pytest.raises(TypeError, match='`audit_canaries` must be an integer'):
    experiment.ExperimentConfig(**_AUDITED | {'audit_canaries': 10.5})


_CORRELATED = _AUDITED | dict(
  audit_canaries=None,
  mechanism='blt',
  sampling='min_separation',
  min_separation=5,
)


@pytest.mark.parametrize(
  ('changes', 'message'),
  [
    (
      dict(mechanism='dct'),
      "`mechanism` must be one of 'gaussian', .* 'blt', found 'dct'",
    ),
    (
      dict(sampling='poisson'),
      '`sampling` must be one of min_separation, .* for `mechanism` blt, found '
      "'poisson'",
    ),
    (
      dict(sampling='random_allocation'),
      "`mechanism` blt, found 'random_allocation': of other cohorts, what they "
      'cost with noise that is correlated between rounds is not computed',
    ),
    (
      dict(mechanism='gaussian'),
      '`sampling` must be one of poisson, .* for dp_fed_avg, found '
      "'min_separation': others do not hide who takes part",
    ),
    (
      dict(sampling='grouped_poisson', mechanism='gaussian'),
      '`sampling` must be .* correlated between rounds, as of `mechanism` band',
    ),
    (
      dict(sampling='grouped_poisson'),
      '`mechanism` must be banded for `sampling` grouped_poisson.* found blt',
    ),
    (dict(min_separation=1), '`min_separation` must be at least 2 .* found 1'),
    (
      dict(audit_canaries=100),
      '`audit_canaries` must not be given for `mechanism` blt, .* found 100',
    ),
    (
      dict(
        algorithm='ce_fed_avg',
        sampling='fixed_size',
        target_epsilon=None,
        target_delta=None,
      ),
      '`mechanism` must not be given for ce_fed_avg, .* found blt',
    ),
  ],
)
def test_correlated_noise_that_cannot_be_is_refused(changes, message):
  with pytest.raises(ValueError, match=message):
    experiment.ExperimentConfig(**{**_CORRELATED, **changes})


def test_a_setting_that_a_saved_file_lacks_has_its_default_there():
  config = experiment.ExperimentConfig(**_AUDITED)
  saved = config.to_json()
  del saved['mechanism']
  assert config.differences(saved) == []
  changed = experiment.ExperimentConfig(**_CORRELATED)
  assert "mechanism was 'gaussian' and is 'blt'" in changed.differences(saved)


def test_settings_from_numpy_are_written_as_any_others():
  settings = dict(
    task='embedded_digits',
    partition='iid',
    model='mlp',
    algorithm='fed_avg',
    clients_per_round=10,
    batch_size=1,
  )
  numbers = dict(
    num_clients=100, num_rounds=3, local_steps=2, client_learning_rate=0.5
  )
  of_numpy = {name: np.asarray(x)[()] for name, x in numbers.items()}
  written = [
    json.dumps(experiment.ExperimentConfig(**settings, **x).to_json())
    for x in (numbers, of_numpy)
  ]
  assert written[0] == written[1]
