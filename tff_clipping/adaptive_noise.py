"""The noise of adaptive clipping: two Gaussian mechanisms as one.

Adaptive clipping releases two noisy sums of the same cohort in each round: the
sum of the clipped updates, and the sum of bits that sets the next norm. A
client's bit says whether its update was within the clipping norm. Andrew et al.
centre the bits, b_i - 1/2. So a client changes the sum of updates by at most c
and the sum of bits by at most 1/2. With noise of standard deviations z_sum c
and sigma_b, the two sums together cost what one sum costs with a noise
multiplier z:

  z^-2 = z_sum^-2 + (2 sigma_b)^-2.

Replacing a client doubles both changes, so the same z holds for both relations.

Source: Andrew, Thakkar, McMahan, Ramaswamy, "Differentially Private Learning
with Adaptive Clipping", NeurIPS 2021, Theorem 1.
"""

import math

from tff_clipping import argument_checks


def collapse_noise_multipliers(
  *, sum_noise_multiplier: float, below_count_stddev: float
) -> float:
  """Returns the noise multiplier z for the accountant.

  Args:
    sum_noise_multiplier: z_sum: noise on the sum of clipped updates over the
      clipping norm, positive.
    below_count_stddev: sigma_b: standard deviation of the noise on the sum of
      the centred bits, in clients, positive. Without noise on the bits there is
      no privacy, whatever the noise on the updates.

  Raises:
    TypeError: If an argument is not a number.
    ValueError: If an argument is not positive and finite.
  """
  z_sum = argument_checks.check_positive(
    'sum_noise_multiplier', sum_noise_multiplier
  )
  sigma_b = argument_checks.check_positive(
    'below_count_stddev', below_count_stddev
  )
  # Not the sum of inverse squares, which overflows for tiny arguments.
  return z_sum / math.hypot(1, z_sum / (2 * sigma_b))


def split_noise_multiplier(
  *, noise_multiplier: float, below_count_stddev: float
) -> float:
  """Returns the z_sum that, with these noisy bits, costs `noise_multiplier`.

  Args:
    noise_multiplier: z, which the plan has paid for, positive.
    below_count_stddev: sigma_b, in clients, above z/2. Andrew et al. use a
      twentieth of the cohort.

  Returns:
    z_sum, above `noise_multiplier`: the noise on the sum of clipped updates.

  Raises:
    TypeError: If an argument is not a number.
    ValueError: If an argument is not positive and finite, or the bits alone
      cost more than the plan has paid for.
  """
  z = argument_checks.check_positive('noise_multiplier', noise_multiplier)
  sigma_b = argument_checks.check_positive(
    'below_count_stddev', below_count_stddev
  )
  if 2 * sigma_b <= z:
    raise ValueError(
      '`below_count_stddev` must be above half of `noise_multiplier` '
      f'({z / 2:g}), found {sigma_b:g}: the bits alone spend the budget. Noise '
      'them more, or use more clients a round.'
    )
  ratio = z / (2 * sigma_b)
  return z / math.sqrt((1 - ratio) * (1 + ratio))
