"""Tests of thresholds from runs."""

import json
import math
import warnings

import pytest

from tasks.running import threshold

_SETTINGS = dict(
  task='mine.csv',
  partition='natural',
  model='mlp',
  local_steps=4,
  batch_size=8,
  client_learning_rate=0.1,
)


@pytest.mark.parametrize(
  ('changes', 'words'),
  [
    ({}, None),
    (dict(seed=1, num_rounds=7), None),
    (dict(task='yours.csv'), '`task` yours.csv and not mine.csv: its'),
    (
      dict(model='a.py:b', local_steps=2),
      '`model` a.py:b and not mlp, `local_steps` 2 and not 4: its',
    ),
  ],
)
def test_a_run_whose_updates_have_other_norms_is_warned_of(
  tmp_path, changes, words
):
  experiment = {**_SETTINGS, **changes}
  (tmp_path / 'config.json').write_text(json.dumps({'experiment': experiment}))
  with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter('always')
    threshold.warn_of_other_settings(tmp_path, {**_SETTINGS, 'seed': 0})
  found = [str(each.message) for each in caught]
  assert len(found) == (words is not None)
  assert words is None or words in found[0]


def _write_run(folder, norm):
  config = dict(algorithm='fed_avg', experiment=dict(num_rounds=2))
  (folder / 'config.json').write_text(json.dumps(config))
  rows = [f'{t},{norm},4' for t in (1, 2)]
  table = ['round_num,update_norm_mean,num_clients', *rows, '']
  (folder / 'metrics.csv').write_text('\n'.join(table))


def test_the_threshold_is_a_share_of_the_mean_norm(tmp_path):
  _write_run(tmp_path, 3.0)
  assert threshold.compute_clipping_norm(tmp_path) == 1.5


@pytest.mark.parametrize('norm', [0.0, math.nan, math.inf])
def test_a_run_whose_updates_have_no_norm_is_named(tmp_path, norm):
  _write_run(tmp_path, norm)
  with pytest.raises(
    ValueError, match='`clipping_norm_from` must be a run who'
  ):
    threshold.compute_clipping_norm(tmp_path)


@pytest.mark.parametrize('factor', [0, -1, math.inf, math.nan])
def test_the_factor_is_positive_and_finite(tmp_path, factor):
  with pytest.raises(ValueError, match='`clipping_factor` must be positive'):
    threshold.compute_clipping_norm(tmp_path, factor)
