"""A private mean whose clipping norm follows the median of the norms."""

import numpy as np
from tff_clipping import aggregators, runtime
import tensorflow_federated as tff


def main() -> None:
  runtime.set_default_context()
  factory = aggregators.adaptive_dp_mean_factory(
    initial_clipping_norm=1.0,
    target_quantile=0.5,
    learning_rate=0.5,
    noise_multiplier=1.0,
    clients_per_round=100,
  )
  process = factory.create(tff.TensorType(np.float32, [2]))
  # Norms from 1 to 100: the median is 50.
  updates = [np.array([0.0, norm], np.float32) for norm in range(1, 101)]
  state = process.initialize()
  for round_num in range(1, 41):
    output = process.next(state, updates)
    state = output.state
    if round_num % 10 == 0:
      clipping_norm = float(output.measurements['clipping_norm'])
      print('round', round_num, 'clipping norm', round(clipping_norm))
  print('near the median:', 35 < clipping_norm < 65)


if __name__ == '__main__':
  main()
