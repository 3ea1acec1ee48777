"""Runs that do not classify, each from its data to the end of its training.

What a user writes is the data and the model; the commands do the rest.
"""

import json
import math
import pathlib

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

from tasks.running import trained_model
from tests.tasks import train_command

_FLAGS = dict(
  clients_per_round=8,
  num_rounds=6,
  local_steps=4,
  batch_size=8,
  client_learning_rate=0.1,
)


def _train(folder: pathlib.Path, model: str, **flags) -> train_command.Ended:
  """Writes mine.py with a model, and trains it from the folder."""
  (folder / 'mine.py').write_text(f'import tensorflow as tf\n{model}')
  arguments = dict(
    algorithm='fed_avg',
    model='mine.py:create_model',
    output_dir='run',
    cache_dir='cache',
  )
  fork = train_command.Fork(_FLAGS | arguments | flags, folder=folder)
  return fork.communicate()


def _read(folder: pathlib.Path):
  config = json.loads((folder / 'run' / 'config.json').read_text())
  return config, pd.read_csv(folder / 'run' / 'metrics.csv')


def _function(model: str):
  names = {'tf': tf}
  exec(model, names)
  return names['create_model']


_REGRESSION = """
def create_model(input_shape, num_outputs):
  return tf.keras.Sequential(
    [tf.keras.layers.Dense(num_outputs, input_shape=input_shape)]
  )
"""


@pytest.mark.slow
def test_energy_use_by_household_from_a_table(tmp_path):
  rng = np.random.default_rng(0)
  table = pd.DataFrame(
    {
      'rooms': rng.normal(size=800),
      'degrees': rng.normal(size=800),
      'client': [f'household {i}' for i in np.arange(800) % 40],
      'is_test': 0,
    }
  )
  table.loc[600:, 'is_test'] = 1
  table.loc[600:, 'client'] = 'nobody'
  table['y'] = 2 * table['rooms'] - table['degrees'] + 0.1
  table.to_csv(tmp_path / 'energy.csv', index=False)
  ended = _train(
    tmp_path,
    _REGRESSION,
    task='energy.csv',
    loss='mean_squared_error',
    metrics='mae,r2_score',
  )
  assert ended.code == 0, ended.errors
  config, metrics = _read(tmp_path)
  assert (config['metric'], config['metric_goal']) == ('mae', 'min')
  assert 'test_accuracy' not in metrics
  last = metrics.iloc[-1]
  assert last['test_mae'] < 0.1
  assert last['test_r2_score'] > 0.9
  assert 'Test mae: ' in ended.output
  # What was measured is what the model does on the test set.
  test = table[table['is_test'] == 1]
  model = trained_model.load(tmp_path / 'run', _function(_REGRESSION))
  errors = model(test[['rooms', 'degrees']].to_numpy(np.float32)).numpy()
  errors = errors[:, 0] - test['y']
  assert last['test_mae'] == pytest.approx(np.abs(errors).mean(), rel=1e-4)
  assert last['test_loss'] == pytest.approx(np.square(errors).mean(), rel=1e-4)


_LSTM = """
def create_model(input_shape, num_outputs):
  return tf.keras.Sequential([
    tf.keras.layers.Embedding(
      num_outputs, 8, mask_zero=True, input_length=input_shape[0]
    ),
    tf.keras.layers.LSTM(16, return_sequences=True),
    tf.keras.layers.Dense(num_outputs),
  ])
"""


@pytest.mark.slow
def test_an_lstm_is_judged_by_its_perplexity(tmp_path):
  rng = np.random.default_rng(0)
  # Counts on from anywhere; rows are of several lengths.
  starts, lengths = rng.integers(5, size=400), rng.integers(3, 9, 400)
  tokens = (starts[:, None] + np.arange(9)) % 5 + 1
  tokens[np.arange(9) >= lengths[:, None]] = 0
  tokens = tokens.astype(np.int32)
  # Where the label is padding, so is the input: rows end together.
  x, y = tokens[:, :-1], tokens[:, 1:]
  np.savez(
    tmp_path / 'words.npz',
    x=x[:320],
    y=y[:320],
    client=np.arange(320) % 20,
    x_test=x[320:],
    y_test=y[320:],
    num_classes=6,
    has_padding=True,
  )
  ended = _train(
    tmp_path,
    _LSTM,
    task='words.npz',
    metrics='perplexity,accuracy',
    client_learning_rate=1.0,
    num_rounds=30,
  )
  assert ended.code == 0, ended.errors
  config, metrics = _read(tmp_path)
  assert (config['metric'], config['metric_goal']) == ('perplexity', 'min')
  first, last = (metrics['test_perplexity'].iloc[i] for i in (0, -1))
  # At first it says each of the six tokens as often.
  assert first == pytest.approx(6, rel=0.1)
  assert last < 4
  assert metrics['test_accuracy'].iloc[-1] > metrics['test_accuracy'][0]
  model = trained_model.load(tmp_path / 'run', _function(_LSTM))
  logits = model(x[320:], training=False).numpy().astype(float)
  log_probs = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
  of_labels = np.take_along_axis(log_probs, y[320:, :, None], axis=-1)[..., 0]
  assert math.exp(-of_labels[y[320:] != 0].mean()) == pytest.approx(
    last, rel=1e-4
  )
