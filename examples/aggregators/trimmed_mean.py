"""The mean of each coordinate without its extremes; not private."""

import numpy as np
from tff_clipping import aggregators, runtime
import tensorflow as tf
import tensorflow_federated as tff


def trimmed_mean_factory(
  sample_size: int, share: float
) -> tff.aggregators.UnweightedAggregationFactory:
  """Leaves out a share of the clients at both ends, coordinate by coordinate.

  Args:
    sample_size: How many clients are looked at, at most, drawn at random.
    share: Of them, from 0 to below a half.
  """

  def mean(sample):
    size = tf.shape(sample)[0]
    cut = tf.cast(share * tf.cast(size, tf.float32), tf.int32)
    return tf.reduce_mean(tf.sort(sample, axis=0)[cut : size - cut], axis=0)

  return aggregators.transformed_factory(
    tff.aggregators.UnweightedReservoirSamplingFactory(sample_size),
    after=lambda samples: tf.nest.map_structure(mean, samples),
  )


def main() -> None:
  runtime.set_default_context()
  updates = [np.array([i, -i], np.float32) for i in range(5)]
  updates[4] = np.array([1e6, 1e6], np.float32)
  process = trimmed_mean_factory(sample_size=10, share=0.2).create(
    tff.TensorType(np.float32, [2])
  )
  print('trimmed mean', process.next(process.initialize(), updates).result)


if __name__ == '__main__':
  main()
