"""Tests of thresholds from runs."""

import json
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
