"""What an attacker makes of the releases: a score for each canary.

The releases come as products with the canaries' directions, in the unit of one
clipped client on the sum: a canary that took part in a round adds 1 to its
product, and the noise of the plan has the standard deviation z.

Any function of the releases is a valid attack. A better one gives a larger
lower bound, and one that looks for a certain fault finds it.
"""

from collections.abc import Mapping

import numpy as np

from tff_clipping.privacy.accounting.sampled_gaussian import Relation


def score_releases(
  products: np.ndarray,
  *,
  sampling_prob: float,
  noise_multiplier: float,
  relation: Relation,
) -> Mapping[str, np.ndarray]:
  """Returns the scores of all attacks on the releases of one run.

  Args:
    products: Of every release with every direction, [num_releases, m], in the
      unit of a clipped client on the sum.
    sampling_prob: q, the chance of a client to be in a round.
    noise_multiplier: z that is claimed.
    relation: As in `Canaries`.

  Returns:
    Scores of shape [m] by the name of the attack: `all_releases`, and
    `successive_releases` where there are two.
  """
  products = np.atleast_2d(np.asarray(products, np.float64))
  scores = {
    'all_releases': log_likelihood_ratios(
      products,
      sampling_prob=sampling_prob,
      noise_multiplier=noise_multiplier,
      relation=relation,
    )
  }
  if len(products) > 1:
    scores['successive_releases'] = largest_changes(products)
  return scores


def log_likelihood_ratios(
  products: np.ndarray,
  *,
  sampling_prob: float,
  noise_multiplier: float,
  relation: Relation,
) -> np.ndarray:
  """Returns how much more likely the releases are with a canary in than out.

  Under the claimed sampler and noise it is the best attack there is (Neyman and
  Pearson), where other clients add nothing. With the canary in, a product is
  (1-q) N(0, z^2) + q N(1, z^2); with it out, N(0, z^2), or the mirror image
  where another client pulls the other way.

  Args:
    products: As in `score_releases`.
    sampling_prob: q, in (0, 1].
    noise_multiplier: z, positive.
    relation: As in `Canaries`.

  Returns:
    Log-likelihood ratios, of shape [m].
  """

  def log_ratio_to_absent(product):
    shifted = (product - 0.5) / noise_multiplier**2
    if sampling_prob == 1:
      return shifted
    return np.logaddexp(
      np.log1p(-sampling_prob), np.log(sampling_prob) + shifted
    )

  ratios = log_ratio_to_absent(products)
  if relation is Relation.REPLACE_ONE:
    ratios = ratios - log_ratio_to_absent(-products)
  return ratios.sum(axis=0)


def largest_changes(products: np.ndarray) -> np.ndarray:
  """Returns by how much a product changes at most from release to release.

  It finds noise that is used twice: the difference of two such releases has
  none, and shows a canary that was in one of the two.

  Args:
    products: Of two releases at least, [num_releases, m].

  Returns:
    The largest changes, of shape [m].
  """
  return np.abs(np.diff(products, axis=0)).max(axis=0)
