"""A run that does not classify, from its data to the end of its training.

What a user writes is the data and the model; the command does the rest.
"""

import numpy as np
import pandas as pd
import pytest

from tests.tasks import train_command
from tests.tasks.small_runs import read_json

_MODEL = """
import tensorflow as tf

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
  (tmp_path / 'mine.py').write_text(_MODEL)
  flags = dict(
    task='energy.csv',
    model='mine.py:create_model',
    loss='mean_squared_error',
    metrics='mae,r2_score',
    algorithm='fed_avg',
    clients_per_round=8,
    num_rounds=6,
    local_steps=4,
    batch_size=8,
    client_learning_rate=0.1,
    output_dir='run',
    cache_dir='cache',
  )
  ended = train_command.Fork(flags, folder=tmp_path).communicate()
  assert ended.code == 0, ended.errors
  assert 'Test mae: ' in ended.output
  config = read_json(tmp_path / 'run' / 'config.json')
  assert (config['metric'], config['metric_goal']) == ('mae', 'min')
  metrics = pd.read_csv(tmp_path / 'run' / 'metrics.csv')
  assert 'test_accuracy' not in metrics
  last = metrics.iloc[-1]
  assert last['test_mae'] < 0.1
  assert last['test_r2_score'] > 0.9
