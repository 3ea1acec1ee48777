"""The typical privacy loss of a run: Bayesian DP, which is no guarantee.

Differential privacy counts on the longest update that a clip lets through;
Bayesian DP takes the mean over the clients that there are, of the moments

    sum_k binomial(k; a, q) e^(k (k - 1) (min(|x_i|, c) / (z c))^2 / 2)

of orders a. It promises nothing to a client that is unlike the others, and its
figure is computed from exact norms: it is for simulations, and no plan takes
it. Where all updates are clipped it is the epsilon of DP, by whole orders.

Source: Triastcyn and Faltings 2019, "Federated learning with Bayesian
differential privacy" (arXiv 1911.10071), Theorem 3, for adding or removing one
client; Mironov, Talwar, Zhang 2019 (arXiv 1908.10530), Sec. 3.3, for the sum.
"""

import math
from collections.abc import Sequence

import numpy as np
from scipy import special

_ORDERS = (*range(2, 65), *range(72, 257, 8))


def compute_epsilon(
  norms: Sequence[np.ndarray],
  *,
  clipping_norm: float,
  noise_multiplier: float,
  sampling_prob: float,
  num_rounds: int,
  delta: float,
) -> float:
  """Returns the typical epsilon of a run under Poisson sampling.

  Args:
    norms: Of the updates before the clip, in each round that has them; other
      rounds count as the mean of these.
    clipping_norm: c.
    noise_multiplier: z.
    sampling_prob: q.
    num_rounds: T.
    delta: The probability with which a loss is not typical.
  """
  # What is not finite is sent as zero.
  sent = [
    np.where(np.isfinite(n), np.minimum(n, clipping_norm), 0) for n in norms
  ]
  epsilons = []
  for order in _ORDERS:
    k = np.arange(order + 1)
    log_weights = (
      special.gammaln(order + 1)
      - special.gammaln(k + 1)
      - special.gammaln(order - k + 1)
      + special.xlogy(k, sampling_prob)
      + special.xlogy(order - k, 1 - sampling_prob)
    )
    moments = []
    for of_round in sent:
      over_noise = of_round[:, None] / (noise_multiplier * clipping_norm)
      log_terms = log_weights + k * (k - 1) * over_noise**2 / 2
      moments.append(special.logsumexp(log_terms) - math.log(len(of_round)))
    total = num_rounds * np.mean(moments)
    epsilons.append((total - math.log(delta)) / (order - 1))
  return float(min(epsilons))
