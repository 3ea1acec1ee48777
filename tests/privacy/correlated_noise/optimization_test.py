"""Tests of the optimal strategies."""

import numpy as np
import pytest

from tff_clipping.privacy import correlated_noise

_ONCE = correlated_noise.Participation(min_separation=1, max_participations=1)
_EPOCHS = correlated_noise.Participation(min_separation=24)
_BUILD = correlated_noise.banded_strategy, correlated_noise.blt_strategy


def _error(strategy, participation=_EPOCHS, of=np.mean):
  error = np.sqrt(of(strategy.compute_prefix_variances()))
  return error * strategy.compute_sensitivity(participation)


@pytest.mark.slow
def test_published_buffers():
  # jax_privacy, tests/matrix_factorization/buffered_toeplitz_test.py.
  strategy = correlated_noise.blt_strategy(
    num_rounds=100_000, participation=_ONCE, num_buffers=2, error='max'
  )
  np.testing.assert_allclose(
    sorted(zip(strategy.scales, strategy.decays, strict=True)),
    [(0.0122853238, 0.9999528892), (0.1878393665, 0.9857068667)],
    rtol=1e-5,
  )


def test_all_bands_for_one_participation_are_near_the_square_root():
  # The coefficients of (1 - x)^(-1/2) are the best for one participation and
  # long runs (arXiv 2202.11205).
  num_rounds = 64
  whole = correlated_noise.Participation(min_separation=num_rounds)
  strategy = correlated_noise.banded_strategy(
    num_rounds=num_rounds,
    participation=whole,
    num_bands=num_rounds,
    error='max',
  )
  lags = np.arange(1, num_rounds)
  root = correlated_noise.BandedStrategy(
    num_rounds=num_rounds,
    coefficients=(1.0, *np.cumprod(1 - 1 / (2 * lags)).tolist()),
  )
  found, known = (_error(each, whole, np.max) for each in (strategy, root))
  assert 0.95 * known < found <= known


@pytest.mark.parametrize('error', ['mean', 'max'])
@pytest.mark.parametrize('num_bands', [2, 6])
def test_no_change_of_a_band_has_a_smaller_error(error, num_bands):
  participation = correlated_noise.Participation(
    min_separation=6, max_participations=3
  )
  found = correlated_noise.banded_strategy(
    num_rounds=40, participation=participation, num_bands=num_bands, error=error
  )
  of = {'mean': np.mean, 'max': np.max}[error]
  for band in range(1, num_bands):
    for step in (-1e-3, 1e-3):
      changed = list(found.coefficients)
      changed[band] += step
      other = correlated_noise.BandedStrategy(
        num_rounds=40, coefficients=tuple(changed)
      )
      least = _error(found, participation, of)
      assert _error(other, participation, of) > least


def test_more_bands_or_buffers_are_never_worse():
  banded, blt = (
    [
      _error(build(num_rounds=100, participation=_EPOCHS, **{name: size}))
      for size in sizes
    ]
    for build, name, sizes in (
      (correlated_noise.banded_strategy, 'num_bands', (1, 2, 4, 8, 16, 24)),
      (correlated_noise.blt_strategy, 'num_buffers', range(5)),
    )
  )
  assert banded == sorted(banded, reverse=True)
  assert np.all(np.diff(blt) <= 1e-6 * np.array(blt[:-1]))
  # One band, or no buffer, is independent noise: z sqrt(k (T + 1) / 2).
  assert banded[0] == pytest.approx(np.sqrt(5 * 101 / 2))
  assert blt[0] == banded[0]


@pytest.mark.parametrize('build', _BUILD)
def test_clients_in_every_round_need_independent_noise(build):
  always = correlated_noise.Participation(min_separation=1)
  strategy = build(num_rounds=50, participation=always)
  assert strategy.recurrence.num_slots == 0


@pytest.mark.parametrize('min_separation', [24, 400])
def test_ten_thousand_rounds_have_a_quarter_of_the_error(min_separation):
  participation = correlated_noise.Participation(min_separation=min_separation)
  independent = correlated_noise.identity_strategy(num_rounds=10_000)
  for build in _BUILD:
    strategy = build(num_rounds=10_000, participation=participation)
    error = _error(independent, participation)
    assert _error(strategy, participation) < error / 4


@pytest.mark.filterwarnings('error')
@pytest.mark.parametrize(
  ('num_rounds', 'min_separation', 'most'),
  [(3000, 2, 1.02), (3000, 3, 1.02), (3000, 4, 1.02), (1000, 3, 1.03)],
)
def test_long_runs_with_few_rounds_between_have_a_strategy(
  num_rounds, min_separation, most
):
  # The coefficients would increase, if they were not kept from it. Of 1000
  # rounds, the first step of the bands leads to noise of 1e30; what rounding
  # left of the gradient there ended the search.
  participation = correlated_noise.Participation(min_separation=min_separation)
  banded, blt = (
    _error(
      build(num_rounds=num_rounds, participation=participation), participation
    )
    for build in _BUILD
  )
  assert banded <= blt <= most * banded


@pytest.mark.parametrize('error', ['mean', 'max'])
@pytest.mark.parametrize('min_separation', [1, 2, 3, 24])
@pytest.mark.parametrize('num_rounds', [1, 2, 10, 200])
def test_buffers_are_found_for_runs_of_all_kinds(
  num_rounds, min_separation, error
):
  # Rounding to `float32` may bring neither a decay to 1 nor the sum of the
  # scales above 1, under the promotion rules of NumPy 1 and 2: they would be
  # refused.
  correlated_noise.blt_strategy(
    num_rounds=num_rounds,
    participation=correlated_noise.Participation(min_separation=min_separation),
    error=error,
  )


@pytest.mark.parametrize(
  ('build', 'given', 'message'),
  [
    ('banded_strategy', {'num_bands': 0}, '`num_bands` must be at least 1'),
    ('banded_strategy', {'num_bands': 25}, '`num_bands` must be at most 24'),
    ('blt_strategy', {'num_buffers': 7}, '`num_buffers` must be at most 6'),
    ('blt_strategy', {'error': 'least'}, "`error` must be one of 'mean', 'm"),
  ],
)
def test_arguments_out_of_range_raise(build, given, message):
  with pytest.raises(ValueError, match=message):
    getattr(correlated_noise, build)(
      num_rounds=100, participation=_EPOCHS, **given
    )
