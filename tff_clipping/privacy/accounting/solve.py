"""The search for an unknown of a plan: noise, rounds, cohort or population.

Beyond some value of the unknown, epsilon is within a target. The search finds
this value.
"""

import functools
import math
import warnings
from collections.abc import Callable
from typing import Any

from tff_clipping import argument_checks
from tff_clipping.privacy.accounting import accountants, ranges, rounding

# Noise is found to so many significant digits, so that the number that is
# printed is the number that was checked.
_DIGITS = 6
_NUMBERS_PER_DECADE = 9 * 10 ** (_DIGITS - 1)

# By how much the search leaves its start, in logarithms.
_FIRST_STEP, _LARGEST_STEP = math.log(1.5), math.log(16)

# How often the search expects a straight line, before it halves.
_STRAIGHT_STEPS = 12

# Gaps are clipped to this: neither an infinite epsilon nor 0 leads astray.
_LARGEST_GAP = 5.0


def find(
  build: Callable[[Any], Any],
  low: float,
  high: float,
  target: float,
  *,
  name: str,
  start: float | None = None,
  low_is_answer: bool = True,
) -> Any:
  """Returns the plan of the value nearest to `low` within the target.

  Epsilon should fall from `low` to `high`, of which either may be the larger
  number. If it does not, a value nearer to `low` may be within the target too.
  The epsilon of the result is always within the target, without slack.

  Args:
    build: Returns a plan, or another object with an `epsilon`, for a value. A
      `NoEpsilonError` stands for an infinite epsilon; warnings of a delta are
      not shown.
    low: Where epsilon is largest. If both ends are integers, only integers are
      tried; otherwise numbers of 6 significant digits.
    high: Where epsilon is least.
    target: The epsilon that must not be passed, positive.
    name: The name of the unknown, for messages.
    start: The value with which the search begins; `low` if not given.
    low_is_answer: Whether `low` may be the result. If not, it is only the last
      value that is accounted for.

  Raises:
    TypeError: If the target is not a number.
    ValueError: If the target is not positive, `high` is above it, or `low` is
      within it and is no answer.
  """
  target = argument_checks.check_positive('target_epsilon', target)
  # Values in order have places: no value is between two neighbours.
  whole = isinstance(low, int) and isinstance(high, int)

  def to_place(value: float) -> int:
    return round(value) if whole else _place_of(value)

  def to_value(place: int) -> float:
    return place if whole else _number_at(place)

  first, last = to_place(low), to_place(high)

  built: dict[int, Any] = {}

  @functools.cache
  def epsilon_at(place: int) -> float:
    with warnings.catch_warnings():
      warnings.simplefilter('ignore', ranges.DeltaWarning)
      try:
        built[place] = build(to_value(place))
      except accountants.NoEpsilonError:
        return math.inf
    return built[place].epsilon

  def gap(place: int) -> float:
    ratio = min(max(epsilon_at(place) / target, 1e-300), 1e300)
    return min(max(math.log(ratio), -_LARGEST_GAP), _LARGEST_GAP)

  def is_within(place: int) -> bool:
    return epsilon_at(place) <= target

  def leave(place: int, step: float, end: int) -> int:
    sign = 1 if end > place else -1
    further = to_place(to_value(place) * math.exp(sign * step))
    return sign * min(sign * end, max(sign * further, sign * place + 1))

  # Invariant: epsilon is above the target at `above`, and not at `within`.
  above = within = None
  place, step = to_place(low if start is None else start), _FIRST_STEP
  while above is None or within is None:
    if is_within(place):
      within = place
      if place == first:
        if low_is_answer:
          return built[place]
        raise ValueError(
          f'`target_epsilon` must be smaller, found {target:g}: even with '
          f'`{name}` {to_value(place):g}, the last that is accounted for, '
          f'epsilon is only {epsilon_at(place):.4g}.'
        )
      place = leave(place, step, first)
    else:
      above = place
      if place == last:
        raise ValueError(
          f'`target_epsilon` {target:g} is out of reach: even with `{name}` '
          f'{to_value(place):g} it is {epsilon_at(place):.4g}.'
        )
      place = leave(place, step, last)
    step = min(2 * step, _LARGEST_STEP)

  # The first steps follow the line between both in logarithms, which is nearly
  # straight, to the other side of the root in turn, so that both ends move.
  steps = 0
  while abs(within - above) > 1:
    share = 0.5
    if steps < _STRAIGHT_STEPS:
      share = gap(above) / (gap(above) - gap(within) or 1)
    start_log, end_log = (math.log(to_value(each)) for each in (above, within))
    nudge = (-1) ** steps * 16.0 ** -(steps + 1) if share != 0.5 else 0
    middle = to_place(
      math.exp(start_log + share * (end_log - start_log) + nudge)
    )
    ends = sorted((above, within))
    place = min(max(middle, ends[0] + 1), ends[1] - 1)
    above, within = (above, place) if is_within(place) else (place, within)
    steps += 1
  return built[within]


def _place_of(value: float) -> int:
  """Returns the place of a number, rounded up, among those of 6 digits."""
  digits, _, exponent = (
    f'{rounding.round_up(value, digits=_DIGITS):.{_DIGITS - 1}e}'.partition('e')
  )
  mantissa = int(digits.replace('.', ''))
  least = 10 ** (_DIGITS - 1)
  return int(exponent) * _NUMBERS_PER_DECADE + mantissa - least


def _number_at(place: int) -> float:
  """Returns the number of 6 digits at a place."""
  exponent, above = divmod(place, _NUMBERS_PER_DECADE)
  least = 10 ** (_DIGITS - 1)
  return float(f'{least + above}e{exponent - _DIGITS + 1}')
