"""Noise in shares at the clients, summed securely, as Alg. DP-FedAvg has it."""

import math

import numpy as np
import tensorflow_federated as tff

from tff_clipping import aggregators, runtime


def main() -> None:
  runtime.set_default_context()
  clipping_norm, noise_multiplier = 0.5, 2.0
  # The noise of so many clients must suffice; if fewer take part, the server
  # adds the shares that are missing.
  min_clients = 4
  share = noise_multiplier * clipping_norm / math.sqrt(min_clients)
  factory = aggregators.difference_clipping_factory(
    clipping_norm,
    aggregators.local_gaussian_noise_factory(
      share,
      aggregators.secure_sum_factory(clipping_norm, local_noise_stddev=share),
      min_clients_per_round=min_clients,
    ),
  )
  process = factory.create(tff.TensorType(np.float32, [100_000]))
  state = process.initialize()
  for num_clients in (0, 2, 4, 16):
    updates = [np.zeros(100_000, np.float32)] * num_clients
    output = process.next(state, updates)
    stddev = round(float(np.std(output.result)), 1)
    print(num_clients, 'clients: standard deviation of the sum', stddev)


if __name__ == '__main__':
  main()
