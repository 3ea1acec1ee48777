"""Tests of secure sums, at their bounds."""

import numpy as np
import pytest
import tensorflow_federated as tff

from tff_clipping.runtime.secure_sums import SecureSum


def _sum(kind, dtype, bound, values):
  value_type = tff.TensorType(dtype)
  secure_sum = SecureSum(
    kind, value_type, [np.int64(bound)], tff.TensorType(np.int64)
  )
  total = secure_sum.zero()
  for value in values:
    contribution = [np.asarray(value, dtype)]
    secure_sum.check(contribution)
    total = secure_sum.add(total, contribution)
  return int(total[0])


@pytest.mark.parametrize(
  ('dtype', 'modulus'),
  [
    *((dtype, np.iinfo(dtype).max) for dtype in (np.int16, np.int32, np.int64)),
    # Powers of 2 are computed in another way.
    (np.int32, 2**30),
    (np.int64, 2**62),
  ],
)
def test_modular_sums_are_exact_up_to_the_largest_modulus(dtype, modulus):
  values = [int(modulus) - 1, int(modulus) - 2, 5, int(modulus) - 1]
  assert _sum('modulus', dtype, modulus, values) == sum(values) % modulus


def test_a_large_bound_takes_no_time():
  # 2 to the power of that would never end.
  assert _sum('max_input', np.int64, 2**60, [5, 6]) == 11
  assert _sum('bitwidth', np.int64, 2**60, [5, 6]) == 11


@pytest.mark.parametrize(
  ('kind', 'bound', 'message'),
  [
    ('modulus', 266, 'modulus of a secure sum of int8 must be at most 127'),
    ('modulus', 0, 'modulus of a secure sum must be positive, found 0'),
    ('bitwidth', -1, 'bitwidth of a secure sum must be positive, found -1'),
    ('max_input', -1, 'max_input of a secure sum must be positive, found -1'),
  ],
)
def test_a_bound_that_is_none_is_refused(kind, bound, message):
  with pytest.raises(ValueError, match=message):
    _sum(kind, np.int8, bound, [1])
