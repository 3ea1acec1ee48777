"""The bare limit: the same SGD in processes of one thread, and nothing else.

No federated framework, no clipping, no noise, no files: each process has the
data in memory, and runs a TensorFlow graph of the local steps for its share of
the clients. What the fastest possible round on this machine costs, as far as it
is TensorFlow that multiplies the matrices.

  python -m benchmarks.bare mlp            # the seconds of the timed rounds
  python -m benchmarks.bare mlp one_client # what training one client needs

The second is one process with one client, for its memory.
"""

import json
import multiprocessing
import os
import sys
from collections.abc import Callable

from benchmarks import workload as workloads
from benchmarks.turns import Rounds, total_rounds
from benchmarks.workload import WORKLOADS, Workload

# Small, since nothing sets the weights back after a client.
_LEARNING_RATE = 1e-6


def main(name: str, what: str = 'round') -> None:
  """Prints the seconds of the timed rounds, or trains one client."""
  workload = WORKLOADS[name]
  if what == 'one_client':
    build(workload)(*clients(workload)[0])
    print(json.dumps({}))
  else:
    print(json.dumps(dict(seconds=round_seconds(workload))))


def round_seconds(workload: Workload) -> list[float]:
  """Returns the time of each timed round, of all processes together."""
  num_processes = len(os.sched_getaffinity(0))
  context = multiprocessing.get_context('spawn')
  barrier = context.Barrier(num_processes + 1)
  processes = [
    context.Process(
      target=_run,
      args=(workload, share, num_processes, barrier),
      daemon=True,
    )
    for share in range(num_processes)
  ]
  for process in processes:
    process.start()
  rounds = Rounds(workload.num_rounds)
  for _ in rounds:
    barrier.wait()
    barrier.wait()
  for process in processes:
    process.join()
  return rounds.seconds


def _run(workload: Workload, share: int, num_shares: int, barrier) -> None:
  """Runs the local steps of every `num_shares`-th client."""
  call = build(workload)
  own = clients(workload)[share::num_shares]
  for _ in range(total_rounds(workload.num_rounds)):
    barrier.wait()
    for x, y in own:
      call(x, y)
    barrier.wait()


def clients(workload: Workload) -> list[tuple]:
  """Returns the images and the labels of each client."""
  examples, _ = workloads.load_digits()
  return [
    (examples['x'][rows], examples['y'][rows]) for rows in workload.partition()
  ]


def build(workload: Workload) -> Callable:
  """Returns what trains on a client's examples, and returns the steps taken."""
  os.environ['TF_CPP_MIN_LOG_LEVEL'] = '3'
  # What the session asks for below is not enough: the threads inside of an
  # operation are the process's.
  os.environ['TF_NUM_INTRAOP_THREADS'] = '1'
  import tensorflow as tf

  from tasks.models import keras_models

  graph = tf.Graph()
  with graph.as_default():
    model = keras_models.MODELS[workload.model](
      workloads.IMAGE_SHAPE, workloads.NUM_CLASSES, input_dtype=tf.float32
    )
    variables = model.trainable_variables
    x_in = tf.compat.v1.placeholder(tf.uint8, [None, *workloads.IMAGE_SHAPE])
    y_in = tf.compat.v1.placeholder(tf.int32, [None])

    @tf.function
    def train(x, y):
      examples = keras_models.scale_images(dict(x=x, y=y))
      size = workloads.EXAMPLES_PER_CLIENT
      total = workload.local_steps * workload.batch_size
      order = tf.argsort(tf.random.uniform([-(-total // size), size]), axis=1)
      indices = tf.reshape(
        tf.reshape(order, [-1])[:total],
        [workload.local_steps, workload.batch_size],
      )
      steps_taken = tf.constant(0)
      for step in tf.range(workload.local_steps):
        with tf.GradientTape() as tape:
          logits = model(tf.gather(examples['x'], indices[step]), training=True)
          loss = tf.reduce_mean(
            tf.nn.sparse_softmax_cross_entropy_with_logits(
              tf.gather(examples['y'], indices[step]), logits
            )
          )
        gradients = tape.gradient(loss, variables)
        for variable, gradient in zip(variables, gradients, strict=True):
          tf.raw_ops.ResourceApplyGradientDescent(
            var=variable.handle, alpha=_LEARNING_RATE, delta=gradient
          )
        steps_taken += 1
      return steps_taken

    done = train(x_in, y_in)
    initialize = tf.compat.v1.global_variables_initializer()
  session = tf.compat.v1.Session(
    graph=graph,
    config=tf.compat.v1.ConfigProto(
      intra_op_parallelism_threads=1,
      inter_op_parallelism_threads=1,
      use_per_session_threads=True,
    ),
  )
  session.run(initialize)
  return session.make_callable(done, [x_in, y_in])


if __name__ == '__main__':
  main(*sys.argv[1:])
