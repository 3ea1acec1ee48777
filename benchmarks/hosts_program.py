"""Runs rounds on a cluster without end, for `benchmarks.hosts`.

  python -m benchmarks.hosts_program HOST:PORT [WORKERS]

Prints for each round, as JSON, its seconds and whether its result is that of
one process, to the last bit. Exits with 1 where the cluster is lost.
"""

import json
import sys
import time

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_clipping import runtime

_NUM_SHARDS = 4
_SIZE = 100_000


@tff.tensorflow.computation(tff.TensorType(np.float32, [_SIZE]), np.int32)
def _work(model, seed):
  """Takes 0.2 seconds."""
  start = tf.timestamp()
  end = tf.while_loop(
    lambda now: now < start + 0.2, lambda now: tf.timestamp(), [start]
  )[0]
  noise = tf.random.stateless_normal([_SIZE], [0, seed])
  return model + noise + 0 * tf.cast(end - start, tf.float32)


@tff.federated_computation(
  tff.FederatedType(tff.TensorType(np.float32, [_SIZE]), tff.SERVER),
  tff.FederatedType(np.int32, tff.CLIENTS),
)
def _total(model, seeds):
  return tff.federated_sum(
    tff.federated_map(_work, (tff.federated_broadcast(model), seeds))
  )


def main(address: str, num_workers: str = '') -> int:
  """Runs the rounds; returns the exit code."""
  model, seeds = np.ones(_SIZE, np.float32), list(range(8))
  runtime.set_default_context(num_shards=_NUM_SHARDS)
  expected = _total(model, seeds)
  try:
    with runtime.set_ray_context(
      address=address,
      num_workers=int(num_workers) if num_workers else None,
      num_shards=_NUM_SHARDS,
    ):
      while True:
        start = time.monotonic()
        is_equal = bool(np.array_equal(_total(model, seeds), expected))
        seconds = time.monotonic() - start
        print(json.dumps(dict(seconds=seconds, is_equal=is_equal)), flush=True)
  except runtime.ClusterError as e:
    print(f'Error: {e}', file=sys.stderr)
    return 1


if __name__ == '__main__':
  sys.exit(main(*sys.argv[1:]))
