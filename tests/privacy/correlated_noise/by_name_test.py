"""Tests of tff_clipping.privacy.correlated_noise.by_name."""

import pytest

from tests.privacy.paper import POPULATION
from tff_clipping import privacy


def build(mechanism, **changes):
  return privacy.build_strategy(
    mechanism,
    **{**POPULATION, 'num_rounds': 96, 'min_separation': 24, **changes},
  )


def test_strategies_are_those_with_the_least_error():
  setting = {
    'num_rounds': 96,
    'participation': privacy.Participation(min_separation=24),
  }
  assert build('gaussian') == privacy.identity_strategy(num_rounds=96)
  assert build('banded') == privacy.banded_strategy(**setting)
  assert build('blt') == privacy.blt_strategy(**setting)


def test_the_mechanism_is_one_that_is_known():
  with pytest.raises(ValueError, match='`mechanism` must be one of'):
    build('laplace')


def test_groups_have_as_many_bands():
  grouped = {'sampling': 'grouped_poisson', 'min_separation': 6}
  assert build('banded', **grouped).num_bands == 6
  assert build('gaussian', **grouped).num_bands == 1
  with pytest.raises(ValueError, match="`mechanism` must be 'banded' or 'ga"):
    build('blt', **grouped)
