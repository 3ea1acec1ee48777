"""Smoothed normalization: updates of nearly one length, without a threshold."""

import numpy as np
from tff_clipping import aggregators, runtime
import tensorflow_federated as tff

_SMOOTHING = 1.0


def main() -> None:
  runtime.set_default_context()
  mean = aggregators.realized_mean_factory()
  process = aggregators.smoothed_normalization_factory(_SMOOTHING, mean).create(
    tff.TensorType(np.float32, [2])
  )
  for norm in (0.25, 1.0, 9.0):
    update = np.array([norm, 0.0], np.float32)
    output = process.next(process.initialize(), [update])
    print('norm', norm, 'becomes', round(float(output.result[0]), 3))


if __name__ == '__main__':
  main()
