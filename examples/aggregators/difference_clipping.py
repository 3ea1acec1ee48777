"""A clip around an aggregation of one's own: here TFF's weighted mean."""

import collections

import numpy as np
from tff_clipping import aggregators, runtime
import tensorflow_federated as tff


def main() -> None:
  runtime.set_default_context()
  # Half of the updates are to be clipped: the norm follows their median.
  # For simulations: an estimated norm is refused where noise is added.
  median = tff.aggregators.PrivateQuantileEstimationProcess.no_noise(
    initial_estimate=1.0, target_quantile=0.5, learning_rate=1.0
  )
  factory = aggregators.difference_clipping_factory(
    median, tff.aggregators.MeanFactory()
  )
  update_type = tff.to_type(
    collections.OrderedDict(kernel=(np.float32, [2]), bias=np.float32)
  )
  process = factory.create(update_type, tff.TensorType(np.float32))
  updates = [
    collections.OrderedDict(
      kernel=np.array([norm, 0.0], np.float32), bias=np.float32(0)
    )
    for norm in (2.0, 3.0, 4.0)
  ]
  num_examples = [10.0, 20.0, 10.0]
  state = process.initialize()
  for _ in range(4):
    output = process.next(state, updates, num_examples)
    state = output.state
    print(
      'clipping_norm',
      round(float(output.measurements['clipping_norm']), 2),
      'clipped_count',
      output.measurements['clipped_count'],
      'mean',
      np.round(output.result['kernel'], 2),
    )


if __name__ == '__main__':
  main()
