"""TFF's own processes on data sets, in our context and in TFF's.

  python -m benchmarks.tff_processes fed_avg 40 ours

20 clients with a perceptron, as a program of TFF's has them: each a data set of
so many examples, shuffled, in batches of 20. Prints the seconds of the timed
rounds as JSON. A program of its own, since TFF's native context leaves a worker
behind, which this ends.
"""

import collections
import json
import sys
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from benchmarks import federated
from benchmarks.turns import Rounds
from benchmarks.workload import NUM_CONTEXT_ROUNDS
from tff_clipping import runtime

_NUM_CLIENTS = 20
_NUM_FEATURES = 784
_NUM_CLASSES = 10


def main(kind: str, num_examples: str, context: str) -> None:
  """Prints the seconds of the rounds of a process in a context."""
  if context == 'ours':
    runtime.set_default_context()
  else:
    tff.backends.native.set_sync_local_cpp_execution_context()
  try:
    seconds = _round_seconds(PROCESSES[kind], _clients(int(num_examples)))
  finally:
    federated.end_workers()
  print(json.dumps(dict(seconds=seconds)), flush=True)


def _round_seconds(
  build: Callable[[], tff.templates.IterativeProcess],
  clients: Sequence[tf.data.Dataset],
) -> list[float]:
  process = build()
  state = process.initialize()
  rounds = Rounds(NUM_CONTEXT_ROUNDS)
  for _ in rounds:
    output = process.next(state, clients)
    state = getattr(output, 'state', output)
  return rounds.seconds


def _clients(num_examples: int) -> list[tf.data.Dataset]:
  rng = np.random.default_rng(0)
  # As `ClientData.create_tf_dataset_for_client` makes them from arrays.
  data = tff.simulation.datasets.TestClientData(
    {
      str(client): collections.OrderedDict(
        x=rng.random((num_examples, _NUM_FEATURES), np.float32),
        y=rng.integers(0, _NUM_CLASSES, num_examples).astype(np.int32),
      )
      for client in range(_NUM_CLIENTS)
    }
  )
  return [
    data.create_tf_dataset_for_client(client).shuffle(100).batch(20)
    for client in data.client_ids
  ]


def _model_fn() -> tff.learning.models.VariableModel:
  return tff.learning.models.from_keras_model(
    tf.keras.Sequential(
      [
        tf.keras.layers.Dense(
          200, activation='relu', input_shape=[_NUM_FEATURES]
        ),
        tf.keras.layers.Dense(_NUM_CLASSES),
      ]
    ),
    loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    input_spec=collections.OrderedDict(
      x=tf.TensorSpec([None, _NUM_FEATURES]),
      y=tf.TensorSpec([None], tf.int32),
    ),
    metrics=[tf.keras.metrics.SparseCategoricalAccuracy()],
  )


PROCESSES: Mapping[str, Callable[[], tff.templates.IterativeProcess]] = {
  'fed_avg': lambda: tff.learning.algorithms.build_unweighted_fed_avg(
    _model_fn, tff.learning.optimizers.build_sgdm(0.1)
  ),
  'fed_eval': lambda: tff.learning.algorithms.build_fed_eval(_model_fn),
}


if __name__ == '__main__':
  main(*sys.argv[1:])
