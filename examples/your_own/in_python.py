"""The same run with Python objects, and what it has learnt."""

# Before TensorFlow: makes it quiet.
from tasks import own_run  # noqa: I001
from tasks.data.datasets import own_data
from tasks.data.partitions.partition_config import PartitionConfig
from tasks.running import trained_model

import mine
import numpy as np

data = np.load('mine.npz')
task = own_data.create_task('measurements', PartitionConfig('natural'), **data)
result = own_run.train(
  task=task,
  model=mine.create_model,
  aggregator=mine.create_aggregator,
  output_dir='runs/in_python',
  algorithm='fed_avg',
  clients_per_round=10,
  num_rounds=40,
  local_steps=4,
  batch_size=10,
  client_learning_rate=0.1,
  server_learning_rate=0.02,
)
print(result.message)

model = trained_model.load('runs/in_python', mine.create_model)
logits = model(data['x_test'].astype(np.float32), training=False)
found = np.argmax(logits, axis=1)
print(f'{np.mean(found == data["y_test"]):.0%} of the test examples are right')
