"""Attacks on the releases of a run: each gives every canary a score.

The releases come as products with the canaries' directions, in the unit of one
clipped client on the sum: a canary that takes part in a round adds 1 to its
product, and the noise of the plan has the standard deviation z.

Any function of the releases is a valid attack, and a better attack gives a
larger lower bound. The bounds are in `one_run`; the estimates here are none.
"""

import math
from collections.abc import Mapping

import numpy as np

from tff_clipping.privacy.accounting.sampled_gaussian import Relation
from tff_clipping.privacy.audit import trade_off


def score_releases(
  products: np.ndarray,
  *,
  sampling_prob: float,
  noise_multiplier: float,
  relation: Relation,
) -> Mapping[str, np.ndarray]:
  """Returns the scores of all attacks on the releases of one run.

  `all_releases` is the log-likelihood ratio of the releases with the canary in
  to the releases with it out. If other clients add nothing, it is the best
  attack under the claimed sampler and noise (Neyman and Pearson). With the
  canary in, a product has the law (1-q) N(0, z^2) + q N(1, z^2); with it out,
  N(0, z^2), or under replace-one the mirror image of the first.

  `successive_releases` is the largest change of a product from one release to
  the next. It finds noise that is used twice: the difference of two such
  releases has no noise, and shows a canary that was in one of them.

  Args:
    products: The products of all releases with all directions, in the unit of
      a clipped client on the sum; of shape [num_releases, m].
    sampling_prob: q, in (0, 1], the chance of a client to be in a round.
    noise_multiplier: The claimed z, positive.
    relation: As in `Canaries`.

  Returns:
    Scores of shape [m] by the name of the attack: `all_releases`, and
    `successive_releases` where there are two.
  """
  products = np.atleast_2d(np.asarray(products, np.float64))
  ratios = _log_ratios_to_absent(products, sampling_prob, noise_multiplier)
  if relation is Relation.REPLACE_ONE:
    ratios -= _log_ratios_to_absent(-products, sampling_prob, noise_multiplier)
  scores = {'all_releases': ratios.sum(axis=0)}
  if len(products) > 1:
    changes = np.abs(np.diff(products, axis=0))
    scores['successive_releases'] = changes.max(axis=0)
  return scores


def measure_true_positive_rate(
  in_scores: np.ndarray, out_scores: np.ndarray, false_positive_rate: float
) -> float:
  """Returns the true-positive rate at a false-positive rate; no bound.

  Args:
    in_scores: Scores of canaries that took part, of shape [n_in].
    out_scores: Scores of canaries that did not, of shape [n_out], n_out >= 1.
    false_positive_rate: In (0, 1): the share of `out_scores` that may lie above
      the threshold, rounded down to whole canaries.
  """
  descending = np.sort(np.asarray(out_scores, float))[::-1]
  named = int(false_positive_rate * len(descending))
  return float(np.mean(np.asarray(in_scores) > descending[named]))


def estimate_epsilon(
  in_scores: np.ndarray, out_scores: np.ndarray, *, delta: float
) -> float:
  """Returns the epsilon that normal scores would have; no bound.

  Scores of canaries that are in and out are taken for normal, with a mean each
  and one standard deviation, as a Gaussian mechanism has the same noise with a
  canary and without. For this mechanism the estimate is right in the limit of
  many parameters and canaries.

  Args:
    in_scores: Scores of canaries that took part, of shape [n_in].
    out_scores: Scores of canaries that did not, of shape [n_out].
    delta: In (0, 1).

  Returns:
    An epsilon >= 0; NaN if there are fewer than two scores of either kind, a
    score is not finite, or the scores of neither kind vary.

  Source: Andrew, Kairouz, Oh, Oprea, McMahan, Suriyakumar, "One-shot Empirical
    Privacy Estimation for Federated Learning", ICLR 2024 (arXiv 2302.03098).
  """
  pair = [np.asarray(scores, float) for scores in (in_scores, out_scores)]
  if not all(len(s) > 1 and np.isfinite(s).all() for s in pair):
    return math.nan
  # Departs from the paper, which fits the deviation of one and has that of the
  # other from theory. Deviations of their own differ by about 2 % for 1000
  # canaries, which adds 0.5 on average to an epsilon of 1 at a delta of 1e-6.
  variance = sum(s.var(ddof=1) for s in pair) / 2
  if variance == 0:
    return math.nan
  mu = abs(pair[0].mean() - pair[1].mean()) / math.sqrt(variance)
  return trade_off.compute_gaussian_epsilon(mu, delta)


def _log_ratios_to_absent(
  products: np.ndarray, sampling_prob: float, noise_multiplier: float
) -> np.ndarray:
  """Returns log-likelihood ratios of a canary that is in to one not there."""
  shifted = (products - 0.5) / noise_multiplier**2
  if sampling_prob == 1:
    return shifted
  return np.logaddexp(np.log1p(-sampling_prob), np.log(sampling_prob) + shifted)
