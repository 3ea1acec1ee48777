"""Makes the file of the work from our perceptron, for other environments.

python -m benchmarks.peers.export WORK.npz
"""

import dataclasses
import json
import sys

import numpy as np
import tensorflow as tf

from benchmarks.peers import work_file
from benchmarks.workload import WORKLOADS, Workload
from tasks.models import keras_models


def main(path: str) -> None:
  """Writes the file of the paper's round."""
  work_file.write(path, create_work(WORKLOADS['mlp']))
  print(json.dumps(dict(written=path)))


def create_work(workload: Workload) -> work_file.Work:
  """Returns a workload as arrays, with the model's initial weights."""
  examples, test = workload.examples(), workload.test_examples()
  rows = np.stack(workload.partition())
  model = keras_models.MODELS[workload.model](
    workload.image_shape, workload.num_classes
  )
  loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
  dense = [layer for layer in model.layers if layer.weights]
  return work_file.Work(
    settings=dict(
      dataclasses.asdict(workload), total_rounds=workload.total_rounds
    ),
    x=examples['x'][rows],
    y=examples['y'][rows],
    test_x=test['x'],
    test_y=test['y'],
    weights={
      f'dense_{number}_{name}': weights
      for number, layer in enumerate(dense)
      for name, weights in zip(
        ('kernel', 'bias'), layer.get_weights(), strict=True
      )
    },
    test_loss=float(loss(test['y'], model.predict(test['x'], verbose=0))),
  )


if __name__ == '__main__':
  main(*sys.argv[1:])
