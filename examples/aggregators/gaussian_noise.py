"""The Gaussian mechanism from its parts: a clip, a sum, noise at the server."""

import numpy as np
from tff_clipping import aggregators, runtime
import tensorflow_federated as tff


def main() -> None:
  runtime.set_default_context()
  clipping_norm, noise_multiplier = 0.5, 2.0
  factory = aggregators.difference_clipping_factory(
    clipping_norm,
    aggregators.gaussian_noise_factory(noise_multiplier * clipping_norm),
  )
  process = factory.create(tff.TensorType(np.float32, [100_000]))
  state = process.initialize()
  updates = [np.zeros(100_000, np.float32)] * 3
  first = process.next(state, updates)
  # Fresh noise, though the state is the same.
  second = process.next(state, updates)
  print('standard deviation', round(float(np.std(first.result)), 1))
  correlation = np.corrcoef(first.result, second.result)[0, 1]
  print('the same noise again:', bool(abs(correlation) > 0.1))
  # Nothing exact, such as how many updates were clipped, is reported.
  print('measurements', sorted(first.measurements))


if __name__ == '__main__':
  main()
