"""Noise that later rounds take back, beside independent noise."""

import numpy as np
from tff_clipping import aggregators, privacy, runtime
import tensorflow_federated as tff

_NUM_ROUNDS = 31


def _mean_error(strategy: privacy.NoiseStrategy) -> float:
  """Returns the root mean square of the noise in the running sums."""
  once = privacy.Participation(min_separation=_NUM_ROUNDS)
  factory = aggregators.correlated_noise_factory(
    strategy, noise_stddev=strategy.compute_sensitivity(once)
  )
  process = factory.create(tff.TensorType(np.float32, [200_000]))
  state, total, squares = process.initialize(), 0.0, []
  for _ in range(_NUM_ROUNDS):
    output = process.next(state, [])
    state, total = output.state, total + output.result
    squares.append(np.mean(total**2))
  return float(np.sqrt(np.mean(squares)))


def main() -> None:
  runtime.set_default_context()
  # Clients come once, and all three have the same privacy.
  once = privacy.Participation(min_separation=_NUM_ROUNDS)
  strategies = {
    'independent': privacy.identity_strategy(num_rounds=_NUM_ROUNDS),
    'tree': privacy.TreeStrategy(num_rounds=_NUM_ROUNDS),
    'blt': privacy.blt_strategy(num_rounds=_NUM_ROUNDS, participation=once),
  }
  for name, strategy in strategies.items():
    print(
      name, 'noise: error of the running sums', f'{_mean_error(strategy):.1f}'
    )


if __name__ == '__main__':
  main()
