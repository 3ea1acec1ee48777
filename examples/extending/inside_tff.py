"""Our factories in a TFF program: the code of docs/inside_tff.md."""

import numpy as np
from tff_clipping import aggregators, privacy, programs, runtime
import tensorflow as tf
import tensorflow_federated as tff

CLIENT_IDS = [f'client {i}' for i in range(100)]


def client_data(client_id):
  rng = np.random.default_rng(CLIENT_IDS.index(client_id))
  x = rng.normal(size=[20, 4]).astype(np.float32)
  y = (x.sum(axis=1) > 0).astype(np.int32)
  return tf.data.Dataset.from_tensor_slices((x, y)).batch(5)


def model_fn():
  inputs = tf.keras.Input((4,))
  outputs = tf.keras.layers.Dense(2, kernel_initializer='zeros')(inputs)
  return tff.learning.models.from_keras_model(
    tf.keras.Model(inputs, outputs),
    loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    input_spec=(tf.TensorSpec([None, 4]), tf.TensorSpec([None], tf.int32)),
    metrics=[tf.keras.metrics.SparseCategoricalAccuracy('accuracy')],
  )


def train(process, sample, num_rounds=8):
  state = process.initialize()
  for round_num in range(1, num_rounds + 1):
    clients = [client_data(client_id) for client_id in sample(round_num)]
    output = process.next(state, clients)
    state = output.state
  return state, output.metrics


def accuracy_of(process, state):
  evaluation = tff.learning.algorithms.build_fed_eval(model_fn)
  eval_state = evaluation.set_model_weights(
    evaluation.initialize(), process.get_model_weights(state)
  )
  clients = [client_data(client_id) for client_id in CLIENT_IDS[-10:]]
  metrics = evaluation.next(eval_state, clients).metrics
  return metrics['client_work']['eval']['current_round_metrics']['accuracy']


def sample_uniformly(round_num):
  return np.random.default_rng(round_num).choice(CLIENT_IDS, 10, replace=False)


runtime.set_default_context()

optimizer = tff.learning.optimizers.build_sgdm(0.5)
process = tff.learning.algorithms.build_weighted_fed_avg(
  model_fn, client_optimizer_fn=optimizer
)
state, metrics = train(process, sample_uniformly)
print('weighted mean: accuracy', accuracy_of(process, state))

process = tff.learning.algorithms.build_weighted_fed_avg(
  model_fn,
  client_optimizer_fn=optimizer,
  model_aggregator=aggregators.difference_clipping_factory(
    0.3, tff.aggregators.MeanFactory()
  ),
)
state, metrics = train(process, sample_uniformly)
print('clipped: accuracy', accuracy_of(process, state))
print('clipped in the last round:', metrics['aggregator']['clipped_count'])

plan = privacy.PrivacyPlan.from_target_epsilon(
  num_clients=100,
  clients_per_round=10,
  num_rounds=8,
  target_epsilon=8.0,
  target_delta=1e-3,
)
process = tff.learning.algorithms.build_unweighted_fed_avg(
  model_fn,
  client_optimizer_fn=optimizer,
  model_aggregator=aggregators.dp_mean_factory(
    clipping_norm=0.3, **plan.aggregator_parameters._asdict()
  ),
)
sampler = programs.build_private_sampler(plan, CLIENT_IDS, seed=0)
state, metrics = train(process, sampler.sample, plan.num_rounds)
print('private: accuracy', accuracy_of(process, state))
print(plan)

with privacy.PrivacyLedger('ledger.jsonl', plan) as ledger:
  private = programs.PrivateProcess(
    process,
    # Another run than the one above: other cohorts.
    programs.build_private_sampler(plan, CLIENT_IDS, seed=1),
    ledger,
    client_value=client_data,
  )
  state = tff.simulation.run_training_process(
    private,
    lambda round_num: round_num,
    total_rounds=plan.num_rounds,
    program_state_manager=tff.program.FileProgramStateManager('states'),
  )
  print(f'{ledger.num_releases} releases, epsilon {ledger.epsilon:.2f}')
