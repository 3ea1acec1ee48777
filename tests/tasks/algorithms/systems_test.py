"""Tests of the systems that the paper is compared with, as `--algorithm`."""

import pytest

from tasks.algorithms import experiment

_COMMON = dict(
  task='mine.npz',
  model='mlp',
  num_clients=40,
  clients_per_round=10,
  num_rounds=8,
  local_steps=2,
  batch_size=5,
  client_learning_rate=0.1,
  clipping_norm=0.5,
  target_delta=1e-3,
)
_DP_SGD = dict(
  _COMMON,
  algorithm='dp_fed_avg',
  sampling='poisson',
  noise_multiplier=3.0,
  unit='example',
  partition='iid',
  task='embedded_digits',
  examples_per_client=1,
  local_steps=1,
  batch_size=1,
)


def _build(settings, **changes):
  return experiment.ExperimentConfig(**{**settings, **changes}).builder


def test_no_sentence_says_client_of_an_example():
  plan = _build(_DP_SGD).find_plan(40)
  assert plan.unit == 'example'
  described, condition = plan.describe().split(' It holds where ')
  assert 'example-level' in described
  assert 'adding or removing one example' in described
  assert 'client' not in described
  assert condition.startswith('each client has one example of its own')


@pytest.mark.parametrize(
  ('settings', 'changes', 'message'),
  [
    (_DP_SGD, dict(local_steps=2), '`local_steps` must be 1 for `unit` exampl'),
    (_DP_SGD, dict(batch_size=2), '`batch_size` must be 1 for `unit` example'),
    (
      _DP_SGD,
      dict(examples_per_client=2),
      '`examples_per_client` must be 1 for `unit` example',
    ),
    (
      _DP_SGD,
      dict(algorithm='ce_fed_avg', noise_multiplier=None, target_delta=None),
      '`unit` must not be given for ce_fed_avg',
    ),
    (
      _DP_SGD,
      dict(mechanism='blt', sampling='min_separation', min_separation=4),
      'whose plan is of clients',
    ),
  ],
)
def test_what_does_not_go_together_is_refused(settings, changes, message):
  with pytest.raises(ValueError, match=message):
    _build(settings, **changes)
