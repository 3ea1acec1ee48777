"""Noise in shares at the clients, summed securely, as Alg. DP-FedAvg has it."""

import math

import numpy as np
from tff_clipping import aggregators, runtime
import tensorflow_federated as tff


def main() -> None:
  runtime.set_default_context()
  clipping_norm, noise_multiplier = 0.5, 2.0
  # The noise of the least cohort suffices. The server adds what is missing to
  # the noise of the largest, so that no release tells how many took part.
  min_clients, max_clients = 4, 16
  share = noise_multiplier * clipping_norm / math.sqrt(min_clients)
  factory = aggregators.difference_clipping_factory(
    clipping_norm,
    aggregators.local_gaussian_noise_factory(
      share,
      aggregators.secure_sum_factory(clipping_norm, local_noise_stddev=share),
      min_clients_per_round=min_clients,
      max_clients_per_round=max_clients,
    ),
  )
  process = factory.create(tff.TensorType(np.float32, [100_000]))
  state = process.initialize()
  for num_clients in (4, 9, 16):
    updates = [np.zeros(100_000, np.float32)] * num_clients
    output = process.next(state, updates)
    stddev = round(float(np.std(output.result)), 1)
    print(num_clients, 'clients: standard deviation of the sum', stddev)


if __name__ == '__main__':
  main()
