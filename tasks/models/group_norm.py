"""Group norm for images, in few passes over them."""

import tensorflow as tf

from tff_clipping import argument_checks

# That of `tf.keras.layers.GroupNormalization`.
_EPSILON = 1e-3


class GroupNorm(tf.keras.layers.Layer):
  """Group norm over the channels of images [n, height, width, channels].

  Computes what `tf.keras.layers.GroupNormalization` does, with the same weights
  in the same order, in fewer passes over the images: it takes from them, and
  from their gradient, the sums over the pixels of each channel, and does the
  rest of the arithmetic on [n, channels]. All of it is in `float32`; the
  variance of a group is the mean of the squares less the square of the mean.

  Source: Wu & He, "Group Normalization" (ECCV 2018).
  """

  def __init__(self, groups: int, **kwargs):
    """Builds the layer.

    Args:
      groups: The number of groups, at least 1, a divisor of the channels.
      **kwargs: Those of a Keras layer.
    """
    super().__init__(**kwargs)
    argument_checks.check_integer('groups', groups, at_least=1)
    self.groups = groups

  def build(self, input_shape):
    """Makes `gamma` (ones) and `beta` (zeros), both [channels]."""
    channels = input_shape[-1]
    if len(input_shape) != 4 or channels % self.groups:
      raise ValueError(
        'The input of `GroupNorm` must be [n, height, width, channels] with '
        f'channels that {self.groups} groups divide, found '
        f'{tuple(input_shape)}.'
      )
    self.gamma, self.beta = (
      self.add_weight(
        name, [channels], initializer=initial, experimental_autocast=False
      )
      for name, initial in (('gamma', 'ones'), ('beta', 'zeros'))
    )
    super().build(input_shape)

  def call(self, inputs):
    """Returns the normalized images, in the type of `inputs`."""
    images = tf.cast(inputs, tf.float32)
    normalized = _normalize(images, self.gamma, self.beta, self.groups)
    return tf.cast(normalized, inputs.dtype)

  def get_config(self):
    """Returns what the layer can be made from."""
    return super().get_config() | {'groups': self.groups}


def _normalize(
  images: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor, groups: int
) -> tf.Tensor:
  """Returns normalized images, with a gradient of our own."""
  shape = tf.shape(images)
  channels = images.shape[-1]
  num_pixels = shape[1] * shape[2]
  group_size = tf.cast(num_pixels * (channels // groups), images.dtype)

  def group_mean(sums: tf.Tensor) -> tf.Tensor:
    """From sums over pixels [n, channels]: of a channel's group, the same."""
    by_group = tf.reshape(sums, [-1, groups, channels // groups])
    means = tf.reduce_sum(by_group, axis=2, keepdims=True) / group_size
    return tf.reshape(
      tf.broadcast_to(means, tf.shape(by_group)), tf.shape(sums)
    )

  def of_pixels(values: tf.Tensor) -> tf.Tensor:
    return values[:, tf.newaxis]

  @tf.custom_gradient
  def normalize(images, gamma, beta):
    # [n, pixels, channels]: sums over the one axis in the middle are fast.
    x = tf.reshape(images, [-1, num_pixels, channels])
    mean = group_mean(tf.reduce_sum(x, axis=1))
    squares = group_mean(tf.raw_ops.EuclideanNorm(input=x, axis=1) ** 2)
    variance = tf.maximum(squares - mean**2, 0.0)
    inverse = tf.math.rsqrt(variance + _EPSILON)
    scale = inverse * gamma
    y = x * of_pixels(scale) + of_pixels(beta - mean * scale)

    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, ...]:
      dy = tf.reshape(upstream, [-1, num_pixels, channels])
      dy_sum = tf.reduce_sum(dy, axis=1)
      # Of dy times the normalized x.
      projection = inverse * (tf.reduce_sum(dy * x, axis=1) - mean * dy_sum)
      slope = inverse**2 * group_mean(gamma * projection)
      constant = slope * mean - inverse * group_mean(gamma * dy_sum)
      dx = dy * of_pixels(scale) - x * of_pixels(slope) + of_pixels(constant)
      return (
        tf.reshape(dx, shape),
        tf.reduce_sum(projection, axis=0),
        tf.reduce_sum(dy_sum, axis=0),
      )

    return tf.reshape(y, shape), gradient

  return normalize(images, gamma, beta)
