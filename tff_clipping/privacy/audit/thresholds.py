"""Lower bounds from the scores of canaries in and out, by Clopper and Pearson.

A canary is named where its score is above a threshold. Of the canaries that
took part, how many are named is a binomial count; of those that were held out
as well. Clopper and Pearson's limits of the two shares hold together with the
confidence that is asked for, and with them what `trade_off` says of any attack.

Two ways to take a threshold keep the confidence honest:

  * One that is set before the scores are seen.
  * The 1st, 2nd, 4th, 8th, ... highest score of those held out. The share of
    further held-out canaries that lie above the k-th highest of n follows a
    Beta(k, n - k + 1) distribution, whose quantile is Clopper and Pearson's
    limit; and given the thresholds, the count of the others is binomial. The
    confidence is divided by the number of limits.

Both rest on scores that are independent of each other: scores of one canary
from many runs are; those of many canaries in one run are so nearly, where their
directions are orthogonal and the noise is the same in all. `one_run` needs no
such assumption.
"""

from typing import NamedTuple

import numpy as np
from scipy import special

from tff_clipping import argument_checks
from tff_clipping.privacy.audit import trade_off


class RateBounds(NamedTuple):
  """Bounds that hold together, an entry for each threshold.

  Attributes:
    false_positive_rates: At most these, of shape [n].
    true_positive_rates: At least these, of shape [n].
  """

  false_positive_rates: np.ndarray
  true_positive_rates: np.ndarray


def bound_rates(
  in_scores: np.ndarray,
  out_scores: np.ndarray,
  *,
  confidence: float,
  threshold: float | None = None,
) -> RateBounds:
  """Returns bounds of the rates of the attacks that compare with a threshold.

  Args:
    in_scores: Scores of canaries that took part, higher where it looks so;
      independent, of shape [n_in].
    out_scores: Scores of canaries that did not, of shape [n_out].
    confidence: In (0, 1), the least probability that all bounds hold.
    threshold: Set before the scores were seen: what is above it is named.
      `None` takes the thresholds from the canaries that were held out.

  Raises:
    TypeError: If a number is of the wrong kind.
    ValueError: If it is out of range, or there are no scores, or one is NaN.
  """
  in_scores = _check_scores('in_scores', in_scores)
  out_scores = _check_scores('out_scores', out_scores)
  confidence = argument_checks.check_probability('confidence', confidence)
  if threshold is None:
    ranks = 2 ** np.arange(len(out_scores).bit_length())
    thresholds = np.sort(out_scores)[::-1][ranks - 1]
    false_positives = ranks - 1
  else:
    thresholds = np.array(
      [argument_checks.check_number('threshold', threshold)]
    )
    false_positives = np.sum(out_scores > thresholds[:, None], axis=1)
  true_positives = np.sum(in_scores > thresholds[:, None], axis=1)
  significance = (1 - confidence) / (2 * len(thresholds))
  return RateBounds(
    _upper_limits(false_positives, len(out_scores), significance),
    1
    - _upper_limits(
      len(in_scores) - true_positives, len(in_scores), significance
    ),
  )


def bound_epsilon(
  in_scores: np.ndarray,
  out_scores: np.ndarray,
  *,
  delta: float,
  confidence: float,
  threshold: float | None = None,
) -> float:
  """Returns an epsilon that the mechanism exceeds, with a confidence.

  Args:
    in_scores: As in `bound_rates`.
    out_scores: As in `bound_rates`.
    delta: In [0, 1).
    confidence: As in `bound_rates`.
    threshold: As in `bound_rates`.

  Returns:
    An epsilon >= 0; 0 says nothing.

  Raises:
    TypeError: If a number is of the wrong kind.
    ValueError: If it is out of range, or there are no scores, or one is NaN.
  """
  fpr, tpr = bound_rates(
    in_scores, out_scores, confidence=confidence, threshold=threshold
  )
  # Limits are above 0 for false-positive and below 1 for true-positive rates.
  ratios = np.concatenate([(tpr - delta) / fpr, (1 - fpr - delta) / (1 - tpr)])
  return float(np.log(max(ratios.max(), 1)))


def bound_mu(
  in_scores: np.ndarray,
  out_scores: np.ndarray,
  *,
  confidence: float,
  threshold: float | None = None,
) -> float:
  """Returns a mu such that the mechanism is not less than mu-GDP.

  Args:
    in_scores: As in `bound_rates`.
    out_scores: As in `bound_rates`.
    confidence: As in `bound_rates`.
    threshold: As in `bound_rates`.

  Returns:
    A mu >= 0; 0 says nothing.

  Raises:
    TypeError: If a number is of the wrong kind.
    ValueError: If it is out of range, or there are no scores, or one is NaN.
  """
  fpr, tpr = bound_rates(
    in_scores, out_scores, confidence=confidence, threshold=threshold
  )
  return float(max(np.max(special.ndtri(tpr) - special.ndtri(fpr)), 0))


def is_refuted(
  curve: trade_off.TradeOff | trade_off.GaussianTradeOff,
  in_scores: np.ndarray,
  out_scores: np.ndarray,
  *,
  confidence: float,
  threshold: float | None = None,
) -> bool:
  """Returns whether the scores refute that a guarantee holds.

  Args:
    curve: The guarantee: `trade_off.compute_trade_off` of a plan.
    in_scores: As in `bound_rates`.
    out_scores: As in `bound_rates`.
    confidence: One minus the most probability with which a guarantee that holds
      is refuted all the same.
    threshold: As in `bound_rates`.

  Raises:
    TypeError: If a number is of the wrong kind.
    ValueError: If it is out of range, or there are no scores, or one is NaN.
  """
  bounds = bound_rates(
    in_scores, out_scores, confidence=confidence, threshold=threshold
  )
  return any(
    tpr > curve.max_true_positive_rate(fpr)
    for fpr, tpr in zip(*bounds, strict=True)
  )


def measure_true_positive_rate(
  in_scores: np.ndarray, out_scores: np.ndarray, false_positive_rate: float
) -> float:
  """Returns the share that is named at a false-positive rate; no bound.

  Args:
    in_scores: Scores of canaries that took part.
    out_scores: Scores of canaries that did not.
    false_positive_rate: In (0, 1): the share of `out_scores` that may lie above
      the threshold, rounded down to whole canaries.
  """
  out_scores = np.sort(_check_scores('out_scores', out_scores))[::-1]
  named = int(false_positive_rate * len(out_scores))
  return float(np.mean(np.asarray(in_scores) > out_scores[named]))


def _upper_limits(
  counts: np.ndarray, num_trials: int, significance: float
) -> np.ndarray:
  """Returns Clopper and Pearson's upper limits of a probability."""
  inside = np.minimum(counts, num_trials - 1)
  limits = special.betaincinv(inside + 1, num_trials - inside, 1 - significance)
  return np.where(counts < num_trials, limits, 1.0)


def _check_scores(name: str, scores: np.ndarray) -> np.ndarray:
  """Returns scores as a vector of numbers."""
  scores = np.asarray(scores, float)
  if scores.ndim != 1 or not scores.size:
    raise ValueError(
      f'`{name}` must be a vector that is not empty, found the shape '
      f'{scores.shape}.'
    )
  if np.isnan(scores).any():
    raise ValueError(f'`{name}` must not be NaN, found one that is.')
  return scores
