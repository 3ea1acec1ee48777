"""Trains the head alone, with a ledger, from Python."""

import pathlib

import models
import numpy as np
from tff_clipping import programs, runtime
import tensorflow as tf
import tensorflow_federated as tff

with np.load('clients.npz') as file:
  data = dict(file)
folder = pathlib.Path('in_python')
clients = [np.flatnonzero(data['client'] == c) for c in range(1000)]
store = programs.write_client_store(
  folder, 'clients', {'x': data['x'], 'y': data['y']}, clients
)
loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model = models.create_with_head([32], 4)
model.compile(loss=loss, metrics=['accuracy'])


def evaluate(weights):
  weights.assign_weights_to(model)
  found, accuracy = model.evaluate(data['x_test'], data['y_test'], verbose=0)
  return {'test_loss': found, 'test_accuracy': accuracy}


runtime.set_default_context()
program = programs.build_private_program(
  lambda: models.create_with_head([32], 4),
  store,
  loss=loss,
  evaluate=evaluate,
  # The frozen ones among them.
  initial_weights=tff.learning.models.ModelWeights.from_model(model),
  target_epsilon=2.0,
  target_delta=1e-4,
  num_rounds=40,
  clients_per_round=100,
  clipping_norm=0.5,
  client_learning_rate=0.2,
  local_steps=8,
  batch_size=8,
  rounds_per_evaluation=40,
  folder=folder / 'run',
)
result = program.run()
weights = program.process.get_model_weights(result.state)
trained, frozen = (
  sum(w.size for w in part)
  for part in (weights.trainable, weights.non_trainable)
)
print(result.message)
print(f'trained: {trained}, frozen: {frozen}')
with program.open_ledger() as ledger:
  print(f'epsilon spent: {ledger.epsilon:.2f}')
