"""From a plan to a private run: the code of docs/private_run.md."""

import pathlib
import secrets

import numpy as np
from tff_clipping import aggregators, learning, privacy, programs, runtime
import tensorflow as tf
import tensorflow_federated as tff

run_dir = pathlib.Path('private_run')
run_dir.mkdir(mode=0o700, exist_ok=True)
rng = np.random.default_rng(0)
x = rng.normal(size=[8000, 4]).astype(np.float32)
y = (x.sum(axis=1) > 0).astype(np.int32)
store = programs.write_client_store(
  run_dir, 'points', {'x': x, 'y': y}, np.split(np.arange(8000), 1000)
)


def keras_model():
  inputs = tf.keras.Input((4,))
  return tf.keras.Model(inputs, tf.keras.layers.Dense(2)(inputs))


loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
runtime.set_default_context()

program = programs.build_private_program(
  keras_model,
  store,
  loss=loss,
  target_epsilon=4.0,
  target_delta=1e-5,
  num_rounds=20,
  clients_per_round=100,
  clipping_norm=0.2,
  client_learning_rate=0.5,
  folder=run_dir / 'in_one_call',
)
result = program.run()
print(result.message)

settings = dict(
  num_clients=1000,
  clients_per_round=100,
  num_rounds=20,
  target_epsilon=4.0,
  target_delta=1e-5,
)
plan = privacy.read_plan(run_dir / 'ledger.jsonl', **settings)
if plan is None:  # The run is to begin.
  plan = privacy.PrivacyPlan.from_target_epsilon(**settings)
print(f'noise multiplier {plan.noise_multiplier:.4f}')

seed_file = run_dir / 'sampling_seed'
if not seed_file.exists():
  seed_file.touch(mode=0o600)
  seed_file.write_text(str(secrets.randbits(128)))
sampler = programs.build_private_sampler(
  plan, store.client_ids, seed=int(seed_file.read_text())
)

model_aggregator = aggregators.dp_mean_factory(
  clipping_norm=0.2,
  noise_key='drawn',
  **plan.aggregator_parameters._asdict(),
)


def model_fn():
  return tff.learning.models.from_keras_model(
    keras_model(),
    loss=loss,
    input_spec={
      'x': tf.TensorSpec([None, 4]),
      'y': tf.TensorSpec([None], tf.int32),
    },
  )


process = learning.build_fed_avg(
  model_fn,
  local_steps=4,
  batch_size=8,
  client_learning_rate=0.5,
  model_aggregator=model_aggregator,
  client_store=store,
)

with privacy.PrivacyLedger(run_dir / 'ledger.jsonl', plan) as ledger:
  result = programs.TrainingProgram(
    process=process,
    sampler=sampler,
    num_rounds=plan.num_rounds,
    evaluate=None,
    checkpoints=programs.Checkpoints(run_dir / 'checkpoints'),
    watchers=[
      programs.MetricsFiles(
        run_dir / 'metrics.csv', tensorboard_dir=run_dir / 'tensorboard'
      )
    ],
    ledger=ledger,
  ).run()
  print(result.message)
  print(f'epsilon spent: {ledger.epsilon:.2f}')
if result.interrupted is not None:
  raise SystemExit(result.interrupted.exit_code)

model = keras_model()
process.get_model_weights(result.state).assign_weights_to(model)
model.save_weights(str(run_dir / 'model.weights.h5'))
