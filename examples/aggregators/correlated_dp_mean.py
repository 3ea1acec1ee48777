"""Private federated averaging for clients that come in turns, in no secret."""

import collections

import numpy as np
from tff_clipping import aggregators, privacy, programs, runtime
import tensorflow as tf
import tensorflow_federated as tff

_IDS = tuple(f'client {i}' for i in range(40))
_SPEC = collections.OrderedDict(
  x=tf.TensorSpec([None, 2], tf.float32),
  y=tf.TensorSpec([None, 1], tf.float32),
)


def _model_fn() -> tff.learning.models.VariableModel:
  return tff.learning.models.from_keras_model(
    tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(2,))]),
    loss=tf.keras.losses.MeanSquaredError(),
    input_spec=_SPEC,
  )


def _client(client_id: str) -> tf.data.Dataset:
  seed = _IDS.index(client_id)
  x = np.random.default_rng(seed).normal(size=(20, 2)).astype(np.float32)
  y = x @ np.array([[1.0], [-2.0]], np.float32)
  return tf.data.Dataset.from_tensor_slices(
    collections.OrderedDict(x=x, y=y)
  ).batch(5)


def main() -> None:
  runtime.set_default_context()
  # Each client takes part at most once in any 10 consecutive rounds.
  participation = privacy.Participation(min_separation=10)
  plan = privacy.CorrelatedNoisePlan.from_target_epsilon(
    num_clients=40,
    clients_per_round=4,
    strategy=privacy.blt_strategy(num_rounds=20, participation=participation),
    # So large an epsilon protects nobody; 40 clients cannot do better.
    target_epsilon=1000.0,
    target_delta=1e-3,
    min_separation=10,
  )
  print('participations of a client', plan.max_participations)
  print('epsilon after half of the rounds', round(plan.epsilon_after(10)))
  sampler = programs.build_private_sampler(plan, _IDS, seed=0)
  process = tff.learning.algorithms.build_unweighted_fed_avg(
    _model_fn,
    tff.learning.optimizers.build_sgdm(0.2),
    model_aggregator=aggregators.correlated_dp_mean_factory(
      clipping_norm=1.0,
      strategy=plan.strategy,
      **plan.aggregator_parameters._asdict(),
    ),
  )
  state = process.initialize()
  for round_num in range(1, plan.num_rounds + 1):
    clients = [_client(c) for c in sampler.sample(round_num)]
    state = process.next(state, clients).state
  kernel = process.get_model_weights(state).trainable[0]
  print('weights', np.round(np.ravel(kernel)))


if __name__ == '__main__':
  main()
