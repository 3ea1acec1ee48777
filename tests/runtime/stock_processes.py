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
  """Runs every process for two rounds; saves states and metrics, flat."""
  if context == 'in_process':
    runtime.set_default_context(num_threads=2)
  else:
    tff.backends.native.set_sync_local_cpp_execution_context()
  results = {}
  try:
    for name, build in PROCESSES.items():
      process = build()
      state = process.initialize()
      outputs = []
      for _ in range(2):
        output = process.next(state, _DATA)
        state = output.state
        outputs.append(output)
      results[name] = _describe(outputs)
      if context == 'in_process':
        current = tff.framework.get_context_stack().current
        assert isinstance(current.compile(process.next), MapReduceRound), name
    results['evaluation'] = _describe(_evaluate())
    results['noise'] = _describe(_draw_noise())
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
_SGD = tff.learning.optimizers.build_sgdm(0.1)
_ALGORITHMS = tff.learning.algorithms
_Private = tff.aggregators.DifferentiallyPrivateFactory
_MODEL_SPECS = [tf.TensorSpec([4, 3]), tf.TensorSpec([3])]


def _unweighted(aggregator):
  return lambda: _ALGORITHMS.build_unweighted_fed_avg(
    _model_fn, _SGD, model_aggregator=aggregator
  )


# No noise, or next to none, where there is noise: it is not repeatable.
PROCESSES = {
  'fed_avg_weighted': lambda: _ALGORITHMS.build_weighted_fed_avg(
    _model_fn, _SGD
  ),
  'fed_avg_unweighted': _unweighted(None),
  'fed_prox': lambda: _ALGORITHMS.build_weighted_fed_prox(_model_fn, 0.1, _SGD),
  'fed_sgd': lambda: _ALGORITHMS.build_fed_sgd(_model_fn),
  'gaussian_fixed': _unweighted(_Private.gaussian_fixed(1e-9, 5, 0.1)),
  'gaussian_adaptive': _unweighted(
    _Private.gaussian_adaptive(
      1e-9, 5, clipped_count_stddev=1e-9, initial_l2_norm_clip=0.05
    )
  ),
  'tree_aggregation': _unweighted(
    _Private.tree_aggregation(1e-9, 5, 0.1, _MODEL_SPECS, noise_seed=1)
  ),
  'robust': lambda: _ALGORITHMS.build_weighted_fed_avg(
    _model_fn, _SGD, model_aggregator=tff.learning.robust_aggregator()
  ),
  'clipped_mean': _unweighted(
    aggregators.clipped_mean_factory(clipping_norm=0.05)
  ),
  'dp_mean': _unweighted(
    aggregators.dp_mean_factory(
      clipping_norm=0.05, noise_multiplier=1e-9, clients_per_round=5
    )
  ),
  # Its noise is repeatable, and the same in both.
  'correlated_dp_mean': _unweighted(
    aggregators.correlated_dp_mean_factory(
      clipping_norm=0.05,
      noise_multiplier=1.0,
      clients_per_round=5,
      strategy=noise_strategies.blt(2),
      noise_key=(1, 2),
    )
  ),
}


def _evaluate():
  process = _ALGORITHMS.build_fed_eval(_model_fn)
  return process.next(process.initialize(), _DATA)


def _draw_noise():
  """Returns noise of so many elements that it is compiled where that can be."""
  size = 140_001
  process = aggregators.gaussian_noise_factory(1.0, noise_key=(1, 2)).create(
    tff.TensorType(np.float64, [size])
  )
  return process.next(process.initialize(), [np.zeros(size)]).result


def _describe(value):
  """Returns the leaves of a structure, with the path and type of each."""
  return [
    (str(path), type(leaf).__name__, np.asarray(leaf))
    for path, leaf in tree.flatten_with_path(value)
  ]


if __name__ == '__main__':
  main(*sys.argv[1:])
