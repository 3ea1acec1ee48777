"""Distributed privacy in integers: what a secure summation really sums."""

import numpy as np
from tff_clipping import aggregators, runtime
import tensorflow_federated as tff


def main() -> None:
  runtime.set_default_context()
  factory = aggregators.distributed_gaussian_mean_factory(
    clipping_norm=1.0, noise_multiplier=0.5, clients_per_round=8
  )
  process = factory.create(tff.TensorType(np.float32, [10_000]))
  # Each update is clipped to 1/100 in each of its elements.
  updates = [np.ones(10_000, np.float32)] * 8
  output = process.next(process.initialize(), updates)
  print('mean of the elements', round(float(np.mean(output.result)), 2))
  noise_stddev = float(output.measurements['noise_stddev'])
  print('noise on the sum', round(noise_stddev, 2))
  print('noise on the mean', round(float(np.std(output.result)), 2))


if __name__ == '__main__':
  main()
