"""The typical privacy loss of a run: Bayesian DP, which is no guarantee.

Command: `python -m analysis.typical_loss RUN...`, of run folders of dp_fed_avg
with exact updates (`--simulation_diagnostics --update_rounds=...`).

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
import pathlib
import sys
from collections.abc import Sequence

import numpy as np
from scipy import special

from analysis.runs import files

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


def describe(directory: pathlib.Path) -> str:
  """Returns the typical loss of a run folder, in a sentence.

  Args:
    directory: The folder.

  Raises:
    ValueError: If it is no run, or not one that this can be computed for.
  """
  run = files.read_folder(directory)
  settings, private = run.config['experiment'], run.privacy
  for name, found, needed in (
    ('algorithm', settings['algorithm'], 'dp_fed_avg'),
    ('sampling', settings.get('sampling'), 'poisson'),
    ('clipping', settings.get('clipping', 'fixed'), 'fixed'),
    ('mechanism', settings.get('mechanism', 'gaussian'), 'gaussian'),
    ('aggregator', settings.get('aggregator'), None),
  ):
    if found != needed:
      raise ValueError(f'`{name}` must be {needed}, found {found}.')
  clients = run.updates[run.updates['client_id'] != files.MEAN_UPDATE_ID]
  norms = [
    part['update_norm'].to_numpy(float) for _, part in clients.groupby('t')
  ]
  if not norms or not private:
    raise ValueError(
      '`--update_rounds` must have recorded updates, found none.'
    )
  num_clients = run.config['task']['num_clients']
  typical = compute_epsilon(
    norms,
    clipping_norm=settings['clipping_norm'],
    noise_multiplier=private['noise_multiplier'],
    sampling_prob=settings['clients_per_round'] / num_clients,
    num_rounds=settings['num_rounds'],
    delta=private['target_delta'],
  )
  return (
    f'typical loss, no guarantee: epsilon {typical:.4g} at delta '
    f'{private["target_delta"]:g}, from exact norms of {len(norms)} rounds; '
    'what the plan guarantees where nothing exact is recorded: '
    f'{private["actual_epsilon"]:.4g}'
  )


if __name__ == '__main__':
  for argument in sys.argv[1:]:
    try:
      print(f'{argument}: {describe(pathlib.Path(argument))}')
    except ValueError as error:
      sys.exit(f'error: {argument}: {error}')
