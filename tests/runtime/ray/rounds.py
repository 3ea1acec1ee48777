"""Runs rounds on a Ray of its own, to be disturbed.

  python -m tests.runtime.ray.rounds NUM_ROUNDS

Prints a line for each round. Ends with exit code 1 and a line where the cluster
is lost, as `tasks.train` does.
"""

import sys

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_clipping import runtime


@tff.tensorflow.computation(np.float32)
def _work(x):
  """Takes 0.2 seconds."""
  start = tf.timestamp()
  end = tf.while_loop(
    lambda now: now < start + 0.2, lambda now: tf.timestamp(), [start]
  )[0]
  return x + 0 * tf.cast(end - start, tf.float32)


@tff.federated_computation(tff.FederatedType(np.float32, tff.CLIENTS))
def _total(values):
  return tff.federated_sum(tff.federated_map(_work, values))


def main(num_rounds: str) -> int:
  """Runs the rounds; returns the exit code."""
  try:
    with runtime.set_ray_context(num_workers=2):
      for _ in range(int(num_rounds)):
        print(_total([1.0, 2.0, 3.0, 4.0]), flush=True)
  except runtime.ClusterError as e:
    print(f'Error: {e}', file=sys.stderr)
    return 1
  return 0


if __name__ == '__main__':
  sys.exit(main(*sys.argv[1:]))
