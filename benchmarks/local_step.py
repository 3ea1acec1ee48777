"""The graph of one local step of a workload, to count and to time."""

import numpy as np
import tensorflow as tf

from benchmarks.workload import Workload
from tasks.models import keras_models

# Small, since nothing sets the weights back.
_LEARNING_RATE = 1e-6


def build(workload: Workload) -> tf.Operation:
  """Adds a step on made-up images to the default graph; returns its end."""
  model = keras_models.MODELS[workload.model](
    workload.image_shape, workload.num_classes, input_dtype=tf.float32
  )
  rng = np.random.default_rng(0)
  size = workload.batch_size
  images = rng.random([size, *workload.image_shape], np.float32)
  labels = rng.integers(workload.num_classes, size=size)
  # Not constants, of which TensorFlow would compute what it can beforehand.
  images, labels = (
    tf.compat.v1.placeholder_with_default(given, given.shape)
    for given in (images, labels)
  )
  # Unlike `tf.gradients`, it leaves out what no gradient needs, such as that
  # by the images.
  with tf.GradientTape() as tape:
    loss = tf.reduce_mean(
      tf.nn.sparse_softmax_cross_entropy_with_logits(
        labels, model(images, training=True)
      )
    )
  variables = model.trainable_variables
  return tf.group(
    *(
      tf.raw_ops.ResourceApplyGradientDescent(
        var=variable.handle, alpha=_LEARNING_RATE, delta=gradient
      )
      for variable, gradient in zip(
        variables, tape.gradient(loss, variables), strict=True
      )
    )
  )
