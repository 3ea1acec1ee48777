"""The norms of the updates of a round, for a simulation."""

import numpy as np
from tff_clipping import aggregators, runtime
import tensorflow_federated as tff


def main() -> None:
  runtime.set_default_context()
  factory = aggregators.add_update_norm_measurements(
    aggregators.clipped_mean_factory(clipping_norm=3.0), clipping_norm=3.0
  )
  process = factory.create(tff.TensorType(np.float32, [2]))
  updates = [
    np.array([3.0, 4.0], np.float32),
    np.array([0.0, 1.0], np.float32),
    np.array([0.0, 3.0], np.float32),
  ]
  output = process.next(process.initialize(), updates)
  for name in aggregators.SIMULATION_ONLY_MEASUREMENTS:
    print(name, round(float(output.measurements[name]), 3))


if __name__ == '__main__':
  main()
