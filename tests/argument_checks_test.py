"""Tests of tff_clipping.argument_checks."""

import math

import numpy as np
import pytest

from tff_clipping import argument_checks


@pytest.mark.parametrize(
  ('value', 'error', 'message'),
  [
    (True, TypeError, '`n` must be an integer, found True.'),
    (np.bool_(True), TypeError, '`n` must be an integer'),
    (1.0, TypeError, '`n` must be an integer, found 1.0.'),
    (0, ValueError, '`n` must be at least 1, found 0.'),
    (9, ValueError, '`n` must be at most 8, found 9.'),
  ],
)
def test_integer_that_is_none_or_out_of_range_raises(value, error, message):
  with pytest.raises(error, match=message):
    argument_checks.check_integer('n', value, at_least=1, at_most=8)


@pytest.mark.parametrize(
  'check',
  [
    argument_checks.check_number,
    argument_checks.check_positive,
    argument_checks.check_non_negative,
    argument_checks.check_probability,
  ],
)
@pytest.mark.parametrize(
  ('value', 'error'),
  [
    (True, TypeError),
    ('1', TypeError),
    (1j, TypeError),
    (math.nan, ValueError),
    (math.inf, ValueError),
    pytest.param(-(10**400), ValueError, id='huge'),
  ],
)
def test_no_check_takes_these_for_numbers(check, value, error):
  with pytest.raises(error, match='`x` must be'):
    check('x', value)


@pytest.mark.parametrize(
  ('check', 'value'),
  [
    (argument_checks.check_positive, 0),
    (argument_checks.check_non_negative, -1e-9),
    (argument_checks.check_probability, 0),
    (argument_checks.check_probability, 1),
  ],
)
def test_number_out_of_range_raises(check, value):
  with pytest.raises(ValueError, match=f'`x` must be .*, found {value}.'):
    check('x', value)


def test_infinity_is_positive_where_it_is_allowed():
  assert argument_checks.check_positive('x', math.inf, allow_inf=True) > 1e308


@pytest.mark.parametrize('value', [2, np.int32(2), np.float64(2.0)])
def test_numbers_become_python_numbers(value):
  number = argument_checks.check_positive('x', value)
  assert (type(number), number) == (float, 2.0)


def test_numpy_integers_become_python_integers():
  assert type(argument_checks.check_integer('n', np.int64(3))) is int


@pytest.mark.parametrize('value', [-1, 2**62])
def test_seed_out_of_range_raises(value):
  with pytest.raises(ValueError, match='`seed` must be at '):
    argument_checks.check_seed('seed', value)


def test_other_choices_raise():
  assert argument_checks.check_choice('name', 'a', ['a', 'b']) == 'a'
  with pytest.raises(ValueError, match="one of 'a', 'b', found 'c'"):
    argument_checks.check_choice('name', 'c', ['a', 'b'])
  with pytest.raises(TypeError, match='must be a string, found 1'):
    argument_checks.check_choice('name', 1, ['a', 'b'])
