"""Tests of what privacy.json says of the aggregation."""

import pytest

from tasks.algorithms import aggregation_text, experiment

_CONFIG = dict(
  task='mine.npz',
  model='mlp',
  algorithm='dp_fed_avg',
  num_clients=40,
  clients_per_round=20,
  num_rounds=2,
  local_steps=1,
  batch_size=5,
  client_learning_rate=0.1,
  clipping_norm=0.5,
  noise_multiplier=1.5,
  target_delta=1e-3,
  sampling='fixed_size',
)


@pytest.mark.parametrize(
  ('changes', 'words'),
  [
    (dict(), 'The clipping norm is 0.5.'),
    (dict(clipping='adaptive'), 'the sum alone has more'),
    (dict(clipping='per_layer'), 'of all tensors together is 0.5'),
    (
      dict(clipping='smooth', smoothing=0.25, clipping_norm=None),
      'plus 0.25: the clipping norm is 1.',
    ),
    (dict(aggregation='secure'), 'in fixed point'),
    (dict(aggregation='distributed'), 'in shares of the clients'),
    (dict(aggregator='mine:f'), 'only if mine:f clips each update'),
  ],
)
def test_what_the_plan_speaks_of_is_said(changes, words):
  config = experiment.ExperimentConfig(**{**_CONFIG, **changes})
  assert words in aggregation_text.describe(config)
