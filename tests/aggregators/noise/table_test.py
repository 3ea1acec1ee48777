"""Tests of the tables of the discrete Gaussian, and of what rests on them."""

import math

import numpy as np
import pytest
from scipy import stats

from tff_clipping.aggregators.noise import table


@pytest.mark.parametrize('stddev', [8.0, 2048.0])
def test_columns_give_the_probabilities_to_126_bits(stddev):
  entries, low = table.alias_table(stddev)
  whole = 2**110
  # An index from the end is that of a negative integer.
  found = [0] * len(entries)
  for column, (entry, rest) in enumerate(zip(entries, low, strict=True)):
    other, high = divmod(int(entry), 2**16)
    threshold = (high * 2**47 + int(rest[0])) * 2**47 + int(rest[1])
    found[column] += threshold
    found[other] += whole - threshold
  assert sum(found) == 2**126
  weights = table.gaussian_weights(stddev, math.ceil(12 * stddev) + 1)
  total = 2 * sum(weights) - weights[0]
  for k in range(-(2**15), 2**15):
    weight = weights[abs(k)] if abs(k) < len(weights) else 0
    allowed = 2 * len(weights) if k == 0 else 1
    assert 0 <= found[k] - weight * 2**126 // total <= allowed


def _weights(stddev, num_weights):
  """Returns the weights of the table, from 0, as floats."""
  weights = table.gaussian_weights(stddev, num_weights)
  return np.array([weight / weights[0] for weight in weights])


@pytest.mark.parametrize('stddev', [3.0, 8.0])
def test_distance_of_the_discrete_from_the_rounded_gaussian(stddev):
  k = np.arange(math.ceil(20 * stddev))
  discrete = _weights(stddev, k.size)
  discrete[0] /= 2
  discrete /= 2 * np.sum(discrete)
  upper = stats.norm.sf((k - 0.5) / stddev)
  rounded = upper - stats.norm.sf((k + 0.5) / stddev)
  rounded[0] /= 2
  is_there = rounded > 1e-300
  chi_squared = 2 * np.sum(
    (rounded - discrete)[is_there] ** 2 / rounded[is_there]
  )
  assert chi_squared == pytest.approx(stddev**-4 / 288, rel=0.05)


@pytest.mark.parametrize('scale', [2, 3, 5])
def test_a_sum_of_two_parts_is_a_discrete_gaussian(scale):
  # Parts of parameters 40 and `scale`, of which the first counts `scale` times.
  k = np.arange(-2000, 2001)

  def law(stddev):
    weights = _weights(stddev, 2001)[np.abs(k)]
    return weights / np.sum(weights)

  coarse = np.zeros(k.size)
  multiples = np.abs(k) * scale <= 2000
  coarse[k[multiples] * scale + 2000] = law(40.0)[multiples]
  both = np.convolve(coarse, law(float(scale)), 'same')
  expected = np.exp(-(k**2) / (2 * scale**2 * (40.0**2 + 1)))
  expected /= np.sum(expected)
  middle = np.abs(k) < 6 * 40
  ratio = both[middle] / expected[middle]
  inverse = scale**2 * (1 / (scale * 40.0) ** 2 + 1 / scale**2)
  # Both the sums and their total are off by this.
  bound = 2 * math.exp(-2 * math.pi**2 / inverse)
  assert 1e-9 < np.max(np.abs(ratio - 1)) <= 2.1 * bound
