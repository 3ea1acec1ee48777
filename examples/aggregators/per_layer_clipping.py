"""A clipping norm for each tensor, and noise for all of them together."""

import collections

import numpy as np
from tff_clipping import aggregators, runtime
import tensorflow_federated as tff


def main() -> None:
  runtime.set_default_context()
  clipping_norms = [0.3, 0.4]
  # What one client can move the sum by, and so what noise is a multiple of.
  sensitivity = aggregators.combined_clipping_norm(clipping_norms)
  print('sensitivity', round(sensitivity, 6))
  noise_multiplier = 1e-3
  factory = aggregators.per_layer_clipping_factory(
    clipping_norms,
    aggregators.fixed_denominator_mean_factory(
      2, aggregators.gaussian_noise_factory(noise_multiplier * sensitivity)
    ),
  )
  process = factory.create(
    tff.to_type(
      collections.OrderedDict(kernel=(np.float32, [2]), bias=(np.float32, [1]))
    )
  )
  update = collections.OrderedDict(
    kernel=np.array([3.0, 4.0], np.float32), bias=np.array([2.0], np.float32)
  )
  result = process.next(process.initialize(), [update, update]).result
  print('norm of the kernel', np.round(np.linalg.norm(result['kernel']), 2))
  print('norm of the bias', np.round(np.linalg.norm(result['bias']), 2))


if __name__ == '__main__':
  main()
