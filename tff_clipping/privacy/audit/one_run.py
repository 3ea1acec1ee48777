"""Lower bounds from the canaries of one run, with a confidence that is proved.

Each of m canaries is in or out by a fair coin of its own. The releases give
every canary a score, and the attacker guesses the coins of some canaries. Under
a guarantee many right guesses are rare, however the scores depend on each
other. If the right guesses are as rare under it as 1 - confidence, it is
refuted. The bound is the largest guarantee that is refuted.

  * (epsilon, delta): Steinke, Nasr, Jagielski, "Privacy Auditing with One (1)
    Training Run", NeurIPS 2023 (arXiv 2305.08846), Theorem 5.2.
  * A whole curve, such as mu-GDP, gives larger bounds: Mahloujifar, Melis,
    Chaudhuri, "Auditing f-Differential Privacy in One Run", 2024 (arXiv
    2410.22235).

The attempts are fixed before the scores are seen: the 1, 2, 4, 8, ... highest
scores are guessed in, without and with as many of the lowest guessed out.
1 - confidence is divided among them, so that the best may be taken.
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
  """The guesses of an attacker, and how many of them are right."""

  num_guesses: int
  num_correct: int


def bound_epsilon(
  scores: np.ndarray, is_in: np.ndarray, *, delta: float, confidence: float
) -> float:
  """Returns an epsilon that the mechanism exceeds, with a confidence.

  Args:
    scores: A score for each canary, higher where it seems to be in; of shape
      [m], m >= 2.
    is_in: Whether the canary is in, by a fair coin of its own; of shape [m].
    delta: In [0, 1).
    confidence: In (0, 1): with this probability at least, the mechanism's
      epsilon at `delta` is not below the bound.

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
  """Returns a mu that the mechanism exceeds, with a confidence.

  It is not mu'-GDP for any smaller mu'.

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
    confidence: A guarantee that holds is refuted with a probability of at most
      1 - `confidence`.
  """
  attempts, significance = _attempts(scores, is_in, confidence)
  return any(
    refutes_curve(curve, len(scores), guesses, significance)
    for guesses in attempts
  )


def one_run_p_value(
  num_canaries: int, guesses: Guesses, epsilon: float, delta: float
) -> float:
  """Returns a bound on the probability of so many right guesses.

  Under (epsilon, 0) a guess is right with odds of at most e^epsilon to 1. A
  delta adds i right guesses with a probability of at most 2 m delta / i.

  Args:
    num_canaries: m.
    guesses: The guesses of the attempt.
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

  Suppose that they are not. Let p_i be the probability of i right guesses. For
  a random canary, let `right` be the probability that its guess is right and
  at least i guesses are right, and `wrong` the probability that its guess is
  wrong and at least i guesses are right. Turning the canary's coin turns the
  first event into the second for i - 1, so the curve bounds `wrong` for i - 1
  from below by `right` for i. The rise of `wrong` comes from p_{i-1}, which
  also adds to `right` for i - 1. If in the end there are more guesses than were
  made, the assumption was false.

  Args:
    curve: The guarantee.
    num_canaries: m.
    guesses: The guesses of the attempt.
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
