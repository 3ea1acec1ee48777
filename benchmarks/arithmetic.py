"""How much a round multiplies and adds, and how fast the machine can.

  python -m benchmarks.arithmetic mlp

Prints, as JSON, the floating-point operations of a round's local steps, and how
many a second the cores do in a large product of matrices, the most that this
machine gives to TensorFlow. TensorFlow's profiler counts them in the graph of a
step: a multiplication and an addition are two, and the gradients of depthwise
convolutions are left out.
"""

import json
import sys
import time

import numpy as np
import tensorflow as tf

from benchmarks.workload import WORKLOADS, Workload
from tasks.models import keras_models

_SIZE = 2048
_REPEATS = 10


def main(name: str) -> None:
  """Prints what a round of a workload needs, and what the machine gives."""
  found = dict(
    operations=count_operations(WORKLOADS[name]),
    peak={
      dtype.name: measure_peak(dtype) for dtype in (tf.float32, tf.bfloat16)
    },
  )
  print(json.dumps(found))


def count_operations(workload: Workload) -> int:
  """Returns the floating-point operations of all local steps of a round."""
  with tf.Graph().as_default() as graph:
    _add_step(workload)
  profiler = tf.compat.v1.profiler
  options = profiler.ProfileOptionBuilder.float_operation()
  options['output'] = 'none'
  step = profiler.profile(graph, options=options).total_float_ops
  return step * workload.local_steps * workload.clients_per_round


def measure_peak(dtype: tf.DType) -> float:
  """Returns the operations a second of a large product on all cores."""
  factor = tf.cast(tf.random.stateless_normal([_SIZE, _SIZE], [1, 2]), dtype)
  product = tf.function(lambda: tf.reduce_sum(factor @ factor))
  product().numpy()
  seconds = []
  for _ in range(_REPEATS):
    start = time.monotonic()
    product().numpy()
    seconds.append(time.monotonic() - start)
  # The least: what others do on the machine only takes from it.
  return 2 * _SIZE**3 / min(seconds)


def _add_step(workload: Workload) -> None:
  """Adds a local step on made-up images to the default graph."""
  model = keras_models.MODELS[workload.model](
    workload.image_shape, workload.num_classes, input_dtype=tf.float32
  )
  size = workload.batch_size
  images = np.zeros([size, *workload.image_shape], np.float32)
  labels = np.zeros([size], np.int32)
  # Unlike `tf.gradients`, it leaves out what no gradient needs, such as that
  # by the images.
  with tf.GradientTape() as tape:
    loss = tf.reduce_mean(
      tf.nn.sparse_softmax_cross_entropy_with_logits(
        labels, model(images, training=True)
      )
    )
  variables = model.trainable_variables
  for variable, gradient in zip(
    variables, tape.gradient(loss, variables), strict=True
  ):
    tf.raw_ops.ResourceApplyGradientDescent(
      var=variable.handle, alpha=1.0, delta=gradient
    )


if __name__ == '__main__':
  main(*sys.argv[1:])
