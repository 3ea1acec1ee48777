"""Runs stock TFF processes in one context and saves what they return.

  python -m tests.runtime.stock_processes in_process OUT
  python -m tests.runtime.stock_processes native OUT

A program of its own, since TFF's native context leaves a worker behind, which
this ends.
"""

import os
import pathlib
import pickle
import signal
import sys

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff
import tree

from tests import noise_strategies, processes
from tff_clipping import aggregators, runtime
from tff_clipping.runtime.map_reduce import MapReduceRound


def main(context: str, path: str) -> None:
  """Runs every process for two rounds; saves what they return, flat."""
  if context == 'in_process':
    runtime.set_default_context(num_threads=2)
  else:
    tff.backends.native.set_sync_local_cpp_execution_context()
  results = {}
  try:
    for name, (build, clients) in PROCESSES.items():
      process = build()
      state = process.initialize()
      outputs = []
      for _ in range(2):
        outputs.append(process.next(state, clients))
        state = outputs[-1].state
      results[name] = [
        (str(path), type(leaf).__name__, np.asarray(leaf))
        for path, leaf in tree.flatten_with_path(outputs)
      ]
      if context == 'in_process':
        current = tff.framework.get_context_stack().current
        assert isinstance(current.compile(process.next), MapReduceRound), name
  finally:
    if context == 'native':
      for worker in processes.descendants(os.getpid()):
        os.kill(worker.pid, signal.SIGKILL)
  pathlib.Path(path).write_bytes(pickle.dumps(results))


def _model_fn():
  inputs = tf.keras.Input((4,))
  dense = tf.keras.layers.Dense(
    3, kernel_initializer=tf.keras.initializers.GlorotUniform(1)
  )
  return tff.learning.models.from_keras_model(
    tf.keras.Model(inputs, dense(inputs)),
    loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics=[tf.keras.metrics.SparseCategoricalAccuracy()],
    input_spec=(tf.TensorSpec([None, 4]), tf.TensorSpec([None], tf.int32)),
  )


def _dataset(seed: int) -> tf.data.Dataset:
  rng = np.random.default_rng(seed)
  size = 5 + seed
  return tf.data.Dataset.from_tensor_slices(
    (
      rng.normal(size=[size, 4]).astype(np.float32),
      rng.integers(0, 3, size).astype(np.int32),
    )
  ).batch(3)


_DATA = [_dataset(seed) for seed in range(5)]
_UPDATES = [
  [
    rng.normal(size=[4, 3]).astype(np.float32),
    rng.normal(size=3).astype(np.float32),
  ]
  for rng in map(np.random.default_rng, range(5))
]
_SGD = tff.learning.optimizers.build_sgdm(0.1)
_Private = tff.aggregators.DifferentiallyPrivateFactory


def _of_updates(factory):
  value_type = tff.to_type([(np.float32, [4, 3]), (np.float32, [3])])
  return lambda: factory.create(value_type), _UPDATES


# What builds each, and its clients. Where there is noise that is not
# repeatable, there is next to none.
PROCESSES = {
  # With a robust aggregator, which zeroes, clips and weights.
  'fed_avg': (
    lambda: tff.learning.algorithms.build_weighted_fed_avg(
      _model_fn, _SGD, model_aggregator=tff.learning.robust_aggregator()
    ),
    _DATA,
  ),
  'fed_sgd': (
    lambda: tff.learning.algorithms.build_fed_sgd(_model_fn),
    _DATA,
  ),
  'evaluation': (
    lambda: tff.learning.algorithms.build_fed_eval(_model_fn),
    _DATA,
  ),
  'gaussian_adaptive': _of_updates(
    _Private.gaussian_adaptive(
      1e-9, 5, clipped_count_stddev=1e-9, initial_l2_norm_clip=0.05
    )
  ),
  'tree_aggregation': _of_updates(
    _Private.tree_aggregation(
      1e-9,
      5,
      0.1,
      [tf.TensorSpec([4, 3]), tf.TensorSpec([3])],
      noise_seed=1,
    )
  ),
  'correlated_dp_mean': _of_updates(
    aggregators.correlated_dp_mean_factory(
      clipping_norm=0.05,
      noise_multiplier=1.0,
      clients_per_round=5,
      strategy=noise_strategies.blt(2),
      noise_key=(1, 2),
    )
  ),
  # So many elements that their noise is compiled where that can be.
  'noise': (
    lambda: aggregators.gaussian_noise_factory(1.0, noise_key=(1, 2)).create(
      tff.TensorType(np.float64, [140_001])
    ),
    [np.zeros(140_001)],
  ),
}


if __name__ == '__main__':
  main(*sys.argv[1:])
