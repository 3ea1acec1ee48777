"""The mean of clipped updates, as CE-FedAvg takes it."""

import numpy as np
from tff_clipping import aggregators, runtime
import tensorflow_federated as tff


def main() -> None:
  runtime.set_default_context()
  process = aggregators.clipped_mean_factory(clipping_norm=1.0).create(
    tff.TensorType(np.float32, [2])
  )
  # The first update has norm 5 and becomes (0.6, 0.8); the last has a NaN and
  # becomes zero. All three clients count.
  updates = [
    np.array([3.0, 4.0], np.float32),
    np.array([0.0, 0.7], np.float32),
    np.array([np.nan, 1.0], np.float32),
  ]
  output = process.next(process.initialize(), updates)
  print('mean', np.round(output.result, 3))
  print('clipped_count', output.measurements['clipped_count'])
  print('zeroed_count', output.measurements['zeroed_count'])


if __name__ == '__main__':
  main()
