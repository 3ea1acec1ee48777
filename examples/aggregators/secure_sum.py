"""A secure sum with bounds that a clip guarantees."""

import numpy as np
from tff_clipping import aggregators, runtime
import tensorflow_federated as tff


def main() -> None:
  runtime.set_default_context()
  updates = [
    np.array([3.0, 4.0], np.float32),
    np.array([0.0, 0.5], np.float32),
  ]
  secure_sum = aggregators.secure_sum_factory(clipping_norm=1.0)
  clipped_sum = aggregators.difference_clipping_factory(1.0, secure_sum)
  for name, factory in (('alone', secure_sum), ('clipped', clipped_sum)):
    process = factory.create(tff.TensorType(np.float32, [2]))
    output = process.next(process.initialize(), updates)
    measurements = output.measurements
    measurements = measurements.get('clipping', measurements)
    count = measurements['secure_sum_out_of_bounds_count']
    print(name, np.round(output.result, 3), 'out of bounds:', count)


if __name__ == '__main__':
  main()
