"""Tests of tests.last_bits."""

import numpy as np
import pytest

from tests import last_bits, processes

_SALT = 7


def test_results_are_moved_by_at_most_one_unit_in_the_last_place():
  values = np.exp(np.linspace(-30, 30, 3000))
  for dtype in (np.float64, np.float32):
    found = values.astype(dtype)
    steps = (last_bits.move(found, _SALT) - found) / np.spacing(found)
    assert set(np.unique(steps)) == {-1, 0, 1}
    assert 0.5 < np.mean(steps != 0) < 0.8


def test_a_number_is_moved_as_in_an_array_and_by_the_salt():
  values = np.log(np.arange(2.0, 40))
  moved = last_bits.move(values, _SALT)
  assert [last_bits.move(x, _SALT) for x in values.tolist()] == moved.tolist()
  assert [last_bits.move(x, _SALT) for x in values] == moved.tolist()
  assert (last_bits.move(values, 8) != moved).any()


@pytest.mark.parametrize(
  'exact', [0.0, -0.0, 1.0, 0.5, 3.0, 123456789.0, np.inf, 7, True, 'a', None]
)
def test_what_is_exact_is_left(exact):
  moved = last_bits.move(exact, _SALT)
  assert (moved, type(moved)) == (exact, type(exact))
  assert np.isnan(last_bits.move(np.nan, _SALT))


# Prints what is computed with moved bits, in a process of its own.
_PROGRAM = """
import sys
from tests import last_bits
last_bits.install(int(sys.argv[1]))

import math
import numpy as np
from scipy import fft, optimize, special
from tff_clipping import privacy

tenths = np.linspace(0.1, 0.7, 7)
powers = np.power.outer(tenths, np.arange(4.0))
assert math.exp(0.0) == np.exp(0.0) == special.ndtr(0.0) * 2 == 1
assert np.sum(np.arange(9.0)) == 36
assert np.sum([[0.1, 0.2]], axis=1).tolist() == [0.1 + 0.2]
assert np.mean([1, 2, 4]) == np.mean([1.0, 2.0, 4.0]) == 7 / 3
assert np.dot(np.eye(7), tenths).tolist() == tenths.tolist()
assert powers[:, 1].tolist() == tenths.tolist()
assert optimize.brentq(lambda x: x - 0.7, 0.1, 0.7) == 0.7
assert np.logaddexp(tenths, -np.inf).tolist() == tenths.tolist()
for found in (
  [math.log(0.1 * k) for k in range(1, 8)],
  np.exp(tenths),
  powers,
  np.sum(np.outer(tenths, tenths), axis=0),
  np.dot(np.outer(tenths, tenths), tenths),
  np.einsum('i,ij->j', tenths, np.outer(tenths, tenths)),
  special.gammaln(tenths),
  fft.rfft(tenths).real,
  [optimize.brentq(lambda x: x**3 - k, 0, 3) for k in tenths],
  [
    privacy.compute_epsilon(
      num_clients=1920, clients_per_round=80, num_rounds=100,
      noise_multiplier=2.0, target_delta=1e-5, accountant=accountant)
    for accountant in ('rdp', 'pld')
  ],
):
  print(*map(repr, np.ravel(found).tolist()))
"""


@pytest.mark.slow
def test_functions_and_what_is_built_of_them_are_reached():
  seeds = []
  for seed in (1, 1, 2):
    ended = processes.run_python('-c', _PROGRAM, str(seed))
    assert ended.code == 0, ended.errors
    seeds.append([line.split() for line in ended.output.splitlines()])
  once, again, others = seeds
  assert once == again
  for line, other in zip(once, others, strict=True):
    assert line != other
    np.testing.assert_allclose(
      np.array(line, float), np.array(other, float), rtol=1e-9
    )
