"""Tests of tff_clipping.privacy.correlated_noise.by_name."""

import pytest

from tests.privacy.paper import POPULATION
from tff_clipping import privacy


def build(mechanism, **changes):
  return privacy.build_strategy(
    mechanism,
    **{**POPULATION, 'num_rounds': 96, 'min_separation': 24, **changes},
  )


@pytest.mark.parametrize('mechanism', privacy.MECHANISMS)
def test_every_mechanism_goes_into_a_plan(mechanism):
  plan = privacy.CorrelatedNoisePlan.from_target_epsilon(
    **POPULATION,
    strategy=build(mechanism),
    min_separation=24,
    target_epsilon=2,
    target_delta=1e-5,
  )
  assert plan.num_rounds == 96
  assert plan.max_participations == 4


def test_strategies_are_those_with_the_least_error():
  separation = privacy.Participation(min_separation=24)
  assert build('gaussian') == privacy.identity_strategy(num_rounds=96)
  assert build('banded') == privacy.banded_strategy(
    num_rounds=96, participation=separation
  )
  assert build('blt') == privacy.blt_strategy(
    num_rounds=96, participation=separation
  )


def test_groups_have_as_many_bands():
  grouped = {'sampling': 'grouped_poisson', 'min_separation': 6}
  assert build('banded', **grouped).num_bands == 6
  assert build('gaussian', **grouped).num_bands == 1
  with pytest.raises(ValueError, match="`mechanism` must be 'banded' or 'ga"):
    build('blt', **grouped)


@pytest.mark.parametrize(
  ('changes', 'message'),
  [
    ({'mechanism': 'laplace'}, '`mechanism` must be one of'),
    ({'sampling': 'poisson'}, '`sampling` must be one of'),
    ({'min_separation': 25}, '`min_separation` must be at most 24'),
    ({'num_rounds': 0}, '`num_rounds` must be at least 1'),
  ],
)
def test_wrong_arguments_raise(changes, message):
  with pytest.raises(ValueError, match=message):
    build(**{'mechanism': 'blt', **changes})
