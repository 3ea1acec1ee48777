"""The median of each coordinate, over a sample of the clients; not private."""

import numpy as np
from tff_clipping import aggregators, runtime
import tensorflow as tf
import tensorflow_federated as tff


def median(sample: tf.Tensor) -> tf.Tensor:
  """Returns the median over the first dimension; the mean of the middle two."""
  ordered = tf.sort(sample, axis=0)
  size = tf.shape(ordered)[0]
  return (ordered[(size - 1) // 2] + ordered[size // 2]) / 2


def median_factory(
  sample_size: int,
) -> tff.aggregators.UnweightedAggregationFactory:
  """Returns the median of at most `sample_size` clients, drawn at random."""
  return aggregators.transformed_factory(
    tff.aggregators.UnweightedReservoirSamplingFactory(sample_size),
    after=lambda samples: tf.nest.map_structure(median, samples),
  )


def main() -> None:
  runtime.set_default_context()
  updates = [np.array([i, -i], np.float32) for i in range(5)]
  # A client that sends nonsense moves a mean, and not a median.
  updates[4] = np.array([1e6, 1e6], np.float32)
  for name, factory in (
    ('mean', aggregators.realized_mean_factory()),
    ('median', median_factory(sample_size=10)),
  ):
    process = factory.create(tff.TensorType(np.float32, [2]))
    print(name, process.next(process.initialize(), updates).result)


if __name__ == '__main__':
  main()
