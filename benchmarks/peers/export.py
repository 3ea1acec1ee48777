"""Makes the file of a workload from our models, for the other environments.

python -m benchmarks.peers.export mlp WORK.npz
"""

import dataclasses
import json
import re
import sys

import numpy as np
import tensorflow as tf

from benchmarks.peers import work_file
from benchmarks.workload import WORKLOADS, Workload
from tasks.models import group_norm, keras_models

_KINDS = {
  tf.keras.layers.Conv2D: 'conv',
  tf.keras.layers.DepthwiseConv2D: 'depthwise',
  tf.keras.layers.Dense: 'dense',
  group_norm.GroupNorm: 'norm',
}


def main(name: str, path: str) -> None:
  """Writes the file of the workload `name`."""
  work_file.write(path, create_work(WORKLOADS[name]))
  print(json.dumps(dict(written=path)))


def create_work(workload: Workload) -> work_file.Work:
  """Returns a workload as arrays, with the model's initial weights."""
  examples, test = workload.examples(), workload.test_examples()
  rows = np.stack(workload.partition())
  model = keras_models.MODELS[workload.model](
    workload.image_shape, workload.num_classes
  )
  loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
  return work_file.Work(
    settings=dict(
      dataclasses.asdict(workload), total_rounds=workload.total_rounds
    ),
    x=examples['x'][rows],
    y=examples['y'][rows],
    test_x=test['x'],
    test_y=test['y'],
    weights=_named_weights(model),
    test_loss=float(loss(test['y'], model.predict(test['x'], verbose=0))),
  )


def _named_weights(model: tf.keras.Model) -> dict[str, np.ndarray]:
  """Returns the weights by kind and number of their layer; see `Work`."""
  weights = {}
  for layer_type, kind in _KINDS.items():
    layers = [layer for layer in model.layers if type(layer) is layer_type]
    # Keras orders the layers of a model by depth; their names count them.
    for number, layer in enumerate(sorted(layers, key=_number)):
      for variable in layer.trainable_variables:
        name = variable.name.rsplit('/', 1)[1].removesuffix(':0')
        weights[f'{kind}_{number}_{name}'] = variable.numpy()
  assert len(weights) == len(model.trainable_variables)
  return weights


def _number(layer: tf.keras.layers.Layer) -> int:
  digits = re.search(r'_(\d+)$', layer.name)
  return int(digits.group(1)) if digits else 0


if __name__ == '__main__':
  main(*sys.argv[1:])
