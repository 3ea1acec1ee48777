"""Tests of the attacks on releases."""

import numpy as np
import pytest

from tff_clipping.privacy import Relation, audit


def test_ratio_of_all_clients_is_linear():
  # log N(x; 1, z^2) / N(x; 0, z^2) = (x - 1/2) / z^2, and of -1: 2 x / z^2.
  products = np.array([[1.0, 0.0], [3.0, -1.0]])
  ratios = audit.log_likelihood_ratios(
    products,
    sampling_prob=1,
    noise_multiplier=2,
    relation=Relation.ADD_OR_REMOVE_ONE,
  )
  np.testing.assert_allclose(ratios, [3 / 4, -2 / 4])
  ratios = audit.log_likelihood_ratios(
    products, sampling_prob=1, noise_multiplier=2, relation=Relation.REPLACE_ONE
  )
  np.testing.assert_allclose(ratios, [8 / 4, -2 / 4])


def test_ratio_of_sampled_clients_is_of_the_mixture():
  (ratio,) = audit.log_likelihood_ratios(
    np.array([[2.0]]),
    sampling_prob=0.25,
    noise_multiplier=1,
    relation=Relation.ADD_OR_REMOVE_ONE,
  )
  assert ratio == pytest.approx(np.log(0.75 + 0.25 * np.exp(1.5)))


def test_largest_change_is_over_neighbouring_releases():
  products = np.array([[0.0, 5.0], [2.0, 5.0], [-1.0, 5.5]])
  np.testing.assert_array_equal(audit.largest_changes(products), [3.0, 0.5])


def test_one_release_has_no_successors():
  arguments = dict(
    sampling_prob=0.5,
    noise_multiplier=1,
    relation=Relation.ADD_OR_REMOVE_ONE,
  )
  assert list(audit.score_releases(np.zeros([1, 3]), **arguments)) == [
    'all_releases'
  ]
  assert list(audit.score_releases(np.zeros([2, 3]), **arguments)) == [
    'all_releases',
    'successive_releases',
  ]
