"""Updates rounded at random to few levels, before the clip of a private mean.

What is rounded comes before the clip and the noise: the guarantee is that of
`dp_mean_factory`, whatever the quantiser does.
"""

import numpy as np
from tff_clipping import aggregators, runtime
import tensorflow as tf
import tensorflow_federated as tff


def quantise(update: tf.Tensor, num_levels: int = 16) -> tf.Tensor:
  """Rounds to multiples of the largest element / `num_levels`, up or down.

  Which of the two is drawn so that the expectation is the element itself.
  """
  step = tf.reduce_max(tf.abs(update)) / num_levels
  levels = tf.math.divide_no_nan(update, step)
  return step * tf.floor(levels + tf.random.uniform(tf.shape(update)))


def private_mean_of_quantised_factory(
  **settings,
) -> tff.aggregators.UnweightedAggregationFactory:
  """Takes what `dp_mean_factory` takes."""
  return aggregators.transformed_factory(
    aggregators.dp_mean_factory(**settings),
    before=lambda update: tf.nest.map_structure(quantise, update),
  )


def main() -> None:
  runtime.set_default_context()
  process = private_mean_of_quantised_factory(
    clipping_norm=1.0, noise_multiplier=0.5, clients_per_round=1000.0
  ).create(tff.TensorType(np.float32, [3]))
  update = np.array([0.013, -0.5, 0.25], np.float32)
  output = process.next(process.initialize(), [update] * 1000)
  # The mean of what was rounded is what it was, but for chance.
  print('off by less than 0.01:', np.abs(output.result - update).max() < 0.01)
  print('clipping norm', output.measurements['clipping_norm'])


if __name__ == '__main__':
  main()
