"""TFF's own processes on data sets, in our context and in TFF's.

  python -m benchmarks.stock ours fed_avg 40

20 clients with a perceptron, as a program of TFF's has them: each a data set of
so many examples, shuffled, in batches of 20. Prints the seconds of every round
as JSON. A program of its own, since TFF's native context leaves a worker
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
from benchmarks.workload import NUM_CONTEXT_ROUNDS, NUM_WARM_UP_ROUNDS
from tff_clipping import runtime

_NUM_CLIENTS = 20
_NUM_FEATURES = 784
_NUM_CLASSES = 10


def main(context: str, kind: str, num_examples: str) -> None:
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
  rounds = Rounds(NUM_WARM_UP_ROUNDS + NUM_CONTEXT_ROUNDS)
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


def _sgd() -> tff.learning.optimizers.Optimizer:
  return tff.learning.optimizers.build_sgdm(0.1)


def _build_private() -> tff.learning.templates.LearningProcess:
  return tff.learning.algorithms.build_unweighted_fed_avg(
    _model_fn,
    _sgd(),
    model_aggregator=tff.aggregators.DifferentiallyPrivateFactory.gaussian_fixed(
      1.0, _NUM_CLIENTS, 1.0
    ),
  )


def _build_computation() -> tff.templates.IterativeProcess:
  """Returns a process whose round is a `federated_computation` by hand."""
  element = collections.OrderedDict(
    x=tff.TensorType(np.float32, [None, _NUM_FEATURES]),
    y=tff.TensorType(np.int32, [None]),
  )
  sums = tff.TensorType(np.float32, [_NUM_FEATURES])

  @tff.tensorflow.computation(tff.SequenceType(element), sums)
  def add_up(data, start):
    return data.reduce(
      start, lambda total, batch: total + tf.reduce_sum(batch['x'], axis=0)
    )

  @tff.federated_computation
  def initialize():
    return tff.federated_value(np.zeros(_NUM_FEATURES, np.float32), tff.SERVER)

  @tff.federated_computation(
    tff.FederatedType(sums, tff.SERVER),
    tff.FederatedType(tff.SequenceType(element), tff.CLIENTS),
  )
  def next_fn(state, data):
    start = tff.federated_broadcast(state)
    return tff.federated_mean(tff.federated_map(add_up, (data, start)))

  return tff.templates.IterativeProcess(initialize, next_fn)


PROCESSES: Mapping[str, Callable[[], tff.templates.IterativeProcess]] = {
  'fed_avg': lambda: tff.learning.algorithms.build_unweighted_fed_avg(
    _model_fn, _sgd()
  ),
  'weighted_fed_avg': lambda: tff.learning.algorithms.build_weighted_fed_avg(
    _model_fn, _sgd()
  ),
  'fed_prox': lambda: tff.learning.algorithms.build_unweighted_fed_prox(
    _model_fn, 0.1, _sgd()
  ),
  'dp_fed_avg': _build_private,
  'fed_eval': lambda: tff.learning.algorithms.build_fed_eval(_model_fn),
  'computation': _build_computation,
}


if __name__ == '__main__':
  main(*sys.argv[1:])
