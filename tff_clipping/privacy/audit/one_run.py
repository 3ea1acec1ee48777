"""Lower bounds from the canaries of one run, with a confidence that is proved.

The game: each of m canaries is in or out by a fair coin of its own; the run's
outputs give each a score; the attacker guesses the coins of some of them, and
abstains from the others. Under a guarantee, right guesses are rare, however the
canaries' scores depend on each other. A guarantee under which so many would be
as rare as 1 - confidence is refuted; the bound is the largest that is.

  * (epsilon, delta): Steinke, Nasr, Jagielski, "Privacy Auditing with One (1)
    Training Run", NeurIPS 2023 (arXiv 2305.08846), Theorem 5.2.
  * A whole curve, mu-GDP for one: Mahloujifar, Melis, Chaudhuri, "Auditing
    f-Differential Privacy in One Run", 2024 (arXiv 2410.22235). It uses more of
    what is known of the mechanism, and so gives more.

How many guesses to make is set before the scores are seen: the 1, 2, 4, 8, ...
highest scores are guessed in; or, in addition, as many of the lowest are
guessed out. The confidence is divided by the number of these attempts, so that
the best of them may be taken.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy import optimize, special

from tff_clipping import argument_checks
from tff_clipping.privacy.audit import trade_off

# Bounds are found to within this.
_TOLERANCE = 1e-7

# Larger bounds are given as this: no number of canaries that fits a machine
# shows more.
_LARGEST_BOUND = 64.0


class Guesses(NamedTuple):
  """How an attacker did.

  Attributes:
    num_guesses: The canaries that it did not abstain from.
    num_correct: Those that it was right about.
  """

  num_guesses: int
  num_correct: int


def bound_epsilon(
  scores: np.ndarray, is_in: np.ndarray, *, delta: float, confidence: float
) -> float:
  """Returns an epsilon that the mechanism exceeds, with a confidence.

  Args:
    scores: A score for each canary, higher where it looks as if it was in;
      shape [m], m >= 2.
    is_in: Whether it was in, by a fair coin of its own; shape [m].
    delta: In [0, 1).
    confidence: In (0, 1), the least probability that the mechanism's epsilon at
      `delta` is at least what is returned.

  Returns:
    An epsilon >= 0; 0 says nothing.

  Raises:
    TypeError: If a number is of the wrong kind.
    ValueError: If it is out of range, a score is NaN, or the shapes differ.
  """
  attempts, significance = _attempts(scores, is_in, confidence)
  return _largest_refuted(
    lambda epsilon: any(
      one_run_p_value(len(scores), guesses, epsilon, delta) <= significance
      for guesses in attempts
    )
  )


def bound_mu(
  scores: np.ndarray, is_in: np.ndarray, *, confidence: float
) -> float:
  """Returns a mu such that the mechanism is not less than mu-GDP.

  Of a Gaussian mechanism it bounds mu. Of any other mechanism it says that
  there is no smaller mu' with which it is mu'-GDP.

  Arguments and errors are those of `bound_epsilon`.

  Returns:
    A mu >= 0; 0 says nothing.
  """
  return _largest_refuted(
    lambda mu: is_refuted(
      trade_off.GaussianTradeOff(mu), scores, is_in, confidence=confidence
    )
  )


def is_refuted(
  curve: trade_off.TradeOff | trade_off.GaussianTradeOff,
  scores: np.ndarray,
  is_in: np.ndarray,
  *,
  confidence: float,
) -> bool:
  """Returns whether the scores refute that a guarantee holds.

  Args:
    curve: The guarantee: `trade_off.compute_trade_off` of a plan.
    scores: As in `bound_epsilon`, as are errors.
    is_in: As there.
    confidence: One minus the most probability with which a guarantee that holds
      is refuted all the same.
  """
  attempts, significance = _attempts(scores, is_in, confidence)
  return any(
    refutes_curve(curve, len(scores), guesses, significance)
    for guesses in attempts
  )


def one_run_p_value(
  num_canaries: int, guesses: Guesses, epsilon: float, delta: float
) -> float:
  """Returns how probable such guesses are at most under (epsilon, delta).

  Without delta, guesses are right as often as a coin of e^epsilon to 1 at most.
  A delta moves the number of right guesses up by i with a probability of 2 m
  delta / i at most.

  Args:
    num_canaries: m.
    guesses: How the attempt went.
    epsilon: Not negative.
    delta: In [0, 1).

  Source: Steinke et al. 2023, Theorem 5.2.
  """
  right = 1 / (1 + np.exp(-epsilon))
  num_guesses, num_correct = guesses
  tail = special.bdtrc(num_correct - 1, num_guesses, right)
  if delta == 0 or num_correct == 0:
    return float(tail)
  moves = np.arange(1, num_correct + 1)
  reached = special.bdtrc(num_correct - 1 - moves, num_guesses, right) - tail
  return float(min(tail + 2 * num_canaries * delta * max(reached / moves), 1))


def refutes_curve(
  curve: trade_off.TradeOff | trade_off.GaussianTradeOff,
  num_canaries: int,
  guesses: Guesses,
  significance: float,
) -> bool:
  """Returns whether such guesses are rarer than `significance` under a curve.

  Suppose that they are not. Let p_i be the probability of i right guesses, and
  pick a canary at random. `right` is the probability that it is guessed rightly
  and at least i guesses are right; `wrong`, that it is guessed wrongly and at
  least i guesses are right. With its coin turned, the first event becomes the
  second for i - 1, so that the curve bounds `wrong` for i - 1 from below, by
  `right` for i. The rise of `wrong` is due to p_{i-1}, which adds to `right`
  for i - 1. At the end there are more guesses than were made: a contradiction.

  Args:
    curve: The guarantee.
    num_canaries: m.
    guesses: How the attempt went.
    significance: In (0, 1).

  Source: Mahloujifar et al. 2024, Theorem 9 and its algorithm.
  """
  num_guesses, num_correct = guesses
  right = significance * num_correct / num_canaries
  wrong = significance * (num_guesses - num_correct) / num_canaries
  for i in range(num_correct - 1, -1, -1):
    rise = curve.min_false_positive_rate(right) - wrong
    if rise <= 0:
      break  # Nothing changes any more.
    wrong += rise
    right = min(right + rise * i / (num_guesses - i), 1.0)
  return right + wrong > num_guesses / num_canaries


def _attempts(
  scores: np.ndarray, is_in: np.ndarray, confidence: float
) -> tuple[list[Guesses], float]:
  """Returns how the attempts went, and the significance of each of them."""
  scores, is_in = np.asarray(scores, float), np.asarray(is_in, bool)
  if scores.ndim != 1 or scores.shape != is_in.shape or len(scores) < 2:
    raise ValueError(
      '`scores` and `is_in` must be vectors of one length of at least 2, found '
      f'the shapes {scores.shape} and {is_in.shape}.'
    )
  if np.isnan(scores).any():
    raise ValueError('`scores` must not be NaN, found one that is.')
  # Ties fall by the canary's number, which says nothing of its coin.
  order = np.argsort(-scores, kind='stable')
  right_if_in = np.cumsum(is_in[order])
  right_if_out = np.cumsum(~is_in[order[::-1]])
  attempts = []
  count = 1
  while count <= len(scores) // 2:
    highest = int(right_if_in[count - 1])
    lowest = int(right_if_out[count - 1])
    attempts.append(Guesses(count, highest))
    attempts.append(Guesses(2 * count, highest + lowest))
    count *= 2
  confidence = argument_checks.check_probability('confidence', confidence)
  return attempts, (1 - confidence) / len(attempts)


def _largest_refuted(refutes: Callable[[float], bool]) -> float:
  """Returns the largest parameter that is refuted, 0 if none is."""
  if not refutes(0.0):
    return 0.0
  low, high = 0.0, 1.0
  while refutes(high):
    if high >= _LARGEST_BOUND:
      return _LARGEST_BOUND
    low, high = high, 2 * high
  return optimize.bisect(
    lambda value: 1.0 if refutes(value) else -1.0, low, high, xtol=_TOLERANCE
  )
