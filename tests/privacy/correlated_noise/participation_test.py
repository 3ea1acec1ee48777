"""Tests of the rounds in which a client may take part."""

import pytest

from tests.privacy.correlated_noise import brute_force
from tff_clipping.privacy import correlated_noise


@pytest.mark.parametrize('num_rounds', [1, 5, 8])
@pytest.mark.parametrize('min_separation', [1, 2, 3, 9])
@pytest.mark.parametrize('limits', [{}, {'max_participations': 2}])
def test_count_is_the_most_rounds_of_any_pattern(
  num_rounds, min_separation, limits
):
  participation = correlated_noise.Participation(
    min_separation=min_separation, **limits
  )
  patterns = brute_force.patterns(num_rounds, participation)
  assert participation.count(num_rounds) == max(map(len, patterns))


@pytest.mark.parametrize('name', ['min_separation', 'max_participations'])
def test_limits_out_of_range_raise(name):
  limits = {'min_separation': 1, name: 0}
  with pytest.raises(ValueError, match=f'`{name}` must be at least 1, found 0'):
    correlated_noise.Participation(**limits)
  with pytest.raises(TypeError, match=f'`{name}` must be an integer'):
    correlated_noise.Participation(**{**limits, name: 1.5})
