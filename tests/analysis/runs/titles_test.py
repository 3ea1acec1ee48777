"""Tests of analysis.titles."""

import pytest

from analysis.runs import titles


@pytest.mark.parametrize(
  ('setting', 'name'),
  [
    ('data/digits.npz', 'digits.npz'),
    ('/home/me/models.py:wide', 'models.py:wide'),
    ('models.small:wide', 'models.small:wide'),
    ('federated_emnist', 'federated_emnist'),
  ],
)
def test_what_is_ones_own_is_called_by_its_file(setting, name):
  assert titles.own_name(setting) == name
