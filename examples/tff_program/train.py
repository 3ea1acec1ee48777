"""A TFF program with a privacy budget: run it, kill it, and run it again.

python train.py FOLDER ours       # or: tff, for TFF's own context
python train.py FOLDER ours 3     # dies in round 3, charged and not released
"""

import asyncio
import os
import pathlib
import secrets
import signal
import sys

import numpy as np
from tff_clipping import aggregators, learning, privacy, programs, runtime
import tensorflow as tf
import tensorflow_federated as tff

folder, context, *dies_in = sys.argv[1:]
folder = pathlib.Path(folder)
folder.mkdir(mode=0o700, parents=True, exist_ok=True)
if context == 'ours':
  runtime.set_default_context()

rng = np.random.default_rng(0)
examples = {}
for client in range(100):
  x = rng.normal(size=[20, 4]).astype(np.float32)
  examples[f'{client:03d}'] = {'x': x, 'y': (x.sum(1) > 0).astype(np.int32)}
client_data = tff.simulation.datasets.TestClientData(examples)
store = programs.write_client_data(folder, 'clients', client_data)

settings = dict(
  num_clients=len(store.client_ids),
  clients_per_round=20,
  num_rounds=5,
  target_epsilon=8.0,
  target_delta=1e-3,
)
plan = privacy.read_plan(folder / 'ledger.jsonl', **settings)
if plan is None:
  plan = privacy.PrivacyPlan.from_target_epsilon(**settings)

seed_file = folder / 'sampling_seed'
if not (folder / 'ledger.jsonl').exists():  # The run is to begin.
  seed_file.touch(mode=0o600)
  seed_file.write_text(str(secrets.randbits(128)))
sampler = programs.build_private_sampler(
  plan, store.client_ids, seed=int(seed_file.read_text())
)


def model_fn():
  return tff.learning.models.from_keras_model(
    tf.keras.Sequential([tf.keras.Input((4,)), tf.keras.layers.Dense(2)]),
    loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    input_spec={
      'x': tf.TensorSpec([None, 4]),
      'y': tf.TensorSpec([None], tf.int32),
    },
  )


process = learning.build_fed_avg(
  model_fn,
  local_steps=4,
  batch_size=5,
  client_learning_rate=0.5,
  model_aggregator=aggregators.dp_mean_factory(
    clipping_norm=0.3,
    **plan.aggregator_parameters._asdict(),
  ),
  client_store=store,
)


async def main(ledger):
  outcomes = programs.Checkpoints(folder / 'outcomes')
  private = programs.PrivateProcess(process, sampler, ledger, outcomes)
  metrics = tff.program.CSVFileReleaseManager(folder / 'metrics.csv')
  done, state = private.resume()
  for round_num in range(done + 1, plan.num_rounds + 1):
    try:
      output = private.next(state, round_num)
    except privacy.BudgetExhaustedError as e:
      print(e)
      break
    if dies_in == [str(round_num)]:
      os.kill(os.getpid(), signal.SIGKILL)
    state = output.state
    await metrics.release(output.metrics, round_num)
  model = private.get_model_weights(state)
  np.savez(folder / 'model.npz', *model.trainable)


with privacy.PrivacyLedger(folder / 'ledger.jsonl', plan) as ledger:
  asyncio.run(main(ledger))
  print('rounds', ledger.rounds, f'epsilon {ledger.epsilon:.2f}')
