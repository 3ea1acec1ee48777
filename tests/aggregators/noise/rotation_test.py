"""Tests of the random rotation."""

import numpy as np
import pytest
import scipy.linalg
import tensorflow as tf

from tff_clipping.aggregators.noise import rotation

_SEED = tf.constant([3, 4], tf.int64)


@pytest.mark.parametrize('dim', [1, 2, 8, 64, 128, 2048, 4096, 12, 20, 48, 640])
def test_it_is_a_hadamard_matrix_after_signs(dim):
  rotated = np.transpose(
    [
      rotation.rotate(column, _SEED).numpy()
      for column in tf.eye(min(dim, 64), dim)
    ]
  )
  # Products of up to four matrices in `float32`.
  np.testing.assert_allclose(np.abs(rotated), dim**-0.5, rtol=1e-5)
  np.testing.assert_allclose(
    rotated.T @ rotated, np.eye(rotated.shape[1]), atol=1e-5
  )


def test_of_a_power_of_2_it_is_sylvesters_matrix():
  vector = np.random.default_rng(1).normal(size=2048).astype(np.float32)
  matrix = scipy.linalg.hadamard(2048) / np.sqrt(2048)
  # What a constant becomes shows the signs.
  signs = np.sign(matrix @ rotation.rotate(tf.ones([2048]), _SEED).numpy())
  found = rotation.rotate(tf.constant(vector), _SEED).numpy()
  np.testing.assert_allclose(found, matrix @ (signs * vector), atol=1e-5)
  assert 900 < np.sum(signs > 0) < 1148


@pytest.mark.parametrize(
  ('size', 'padded'),
  [(0, 1), (1, 1), (3, 4), (9, 12), (13, 16), (17, 20), (21, 24), (41, 48),
   (159_010, 163_840), (163_841, 196_608), (196_609, 262_144)],
)  # fmt: skip
def test_padding_is_a_third_at_most(size, padded):
  assert rotation.padded_size(size) == padded


@pytest.mark.parametrize('dim', [512, 160, 96])
def test_it_is_turned_back(dim):
  vector = np.random.default_rng(0).normal(size=dim).astype(np.float32)
  rotated = rotation.rotate(tf.constant(vector), _SEED)
  back = rotation.rotate_back(rotated, _SEED).numpy()
  np.testing.assert_allclose(back, vector, atol=1e-5)
  other = rotation.rotate_back(rotated, _SEED + 1).numpy()
  assert np.max(np.abs(other - vector)) > 0.1
