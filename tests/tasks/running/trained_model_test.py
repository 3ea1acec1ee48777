"""Tests of the file that a run's trained model is in."""

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

from tasks import config
from tasks.data import public
from tasks.running import folder as folder_lib
from tasks.running import trained_model
from tests.tasks.small_runs import FED_AVG, run_small

_MODULE = """
import tensorflow as tf

def create_model(input_shape, num_classes):
  # Each model that is made has other weights in its first layer.
  return tf.keras.Sequential([
    tf.keras.layers.Rescaling(1 / 255, input_shape=input_shape),
    tf.keras.layers.Flatten(),
    tf.keras.layers.Dense(30, activation='relu', trainable=False),
    tf.keras.layers.Dense(num_classes),
  ])

def create_wider(input_shape, num_classes):
  return tf.keras.Sequential([
    tf.keras.layers.Flatten(input_shape=input_shape),
    tf.keras.layers.Dense(12),
    tf.keras.layers.Dense(num_classes),
  ])
"""


def _accuracy(model):
  digits = public.read_embedded_digits()
  found = np.argmax(model(tf.constant(digits['x_test'])), axis=-1)
  return np.mean(found == digits['y_test'])


@pytest.mark.slow
def test_an_own_model_with_frozen_layers_is_loaded_by_its_name_or_by_keras(
  tmp_path, cache_dir
):
  path = tmp_path / 'mine.py'
  path.write_text(_MODULE)
  settings = FED_AVG | dict(
    model=f'{path}:create_model',
    num_rounds=5,
    local_steps=20,
    client_learning_rate=0.3,
  )
  run_small(settings, tmp_path / 'run', cache_dir)
  accuracies = pd.read_csv(tmp_path / 'run' / 'metrics.csv')['test_accuracy']
  assert accuracies.iloc[-1] > accuracies[0] + 0.1
  last = pytest.approx(accuracies.iloc[-1])
  # The frozen layers are those of the clients all along.
  assert _accuracy(trained_model.load(tmp_path / 'run')) == last
  # Those that are trained count.
  description = folder_lib.RunFolder(tmp_path / 'run').read_description()
  assert description['model']['num_parameters'] == 31 * 10
  # Without this project.
  names = {}
  exec(_MODULE, names)
  model = names['create_model']((28, 28, 1), 10)
  model.load_weights(tmp_path / 'run' / 'model.weights.h5')
  assert _accuracy(model) == last
  with pytest.raises(ValueError, match='Shape mismatch'):
    trained_model.load(tmp_path / 'run', names['create_wider'])


def test_a_folder_without_a_model_is_refused(tmp_path):
  with pytest.raises(ValueError, match='`run_dir` must be the folder of a run'):
    trained_model.load(tmp_path)
  folder = folder_lib.RunFolder(tmp_path)
  settings = config.Config(**FED_AVG).to_json()
  folder.write_json(folder.config, dict(experiment=settings))
  with pytest.raises(ValueError, match='must be a run that has ended'):
    trained_model.load(tmp_path)
