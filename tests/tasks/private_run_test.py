"""Tests of what the files of a private run say, and who can read them."""

import json

import numpy as np
import pandas as pd
import pytest

from tasks.data import public
from tasks.running import trained_model
from tasks.running.folder import RunFolder
from tests import processes
from tests.tasks.small_runs import (
  DP_FED_AVG,
  read_json,
  run_small,
  write_adaptive,
  write_fed_avg,
)
from tff_clipping import privacy
from tff_clipping.privacy.accounting import rounding


def _run(folder, cache_dir, **changes):
  return run_small({**DP_FED_AVG, **changes}, folder, cache_dir)


def _mode(path):
  return path.stat().st_mode & 0o777


def test_a_private_run_says_what_it_satisfies_and_keeps_its_secrets(
  tmp_path, cache_dir
):
  result = _run(tmp_path / 'run', cache_dir)
  plan = read_json(tmp_path / 'run' / 'privacy.json')
  epsilon = rounding.format_up(plan['epsilon'])
  assert result.message == (
    f'Finished 2 rounds. Charged: ({epsilon}, 0.001)-differential privacy with '
    'respect to adding or removing one client.'
  )
  assert plan['caveats'] == []
  assert plan['description'].startswith('Training for 2 rounds satisfies')
  # The seed of the cohorts, and the key of the noise.
  assert _mode(tmp_path / 'run' / 'config.json') == 0o600
  assert _mode(tmp_path / 'run' / 'checkpoints') == 0o700
  metrics = pd.read_csv(tmp_path / 'run' / 'metrics.csv')
  for secret in ('num_clients', 'round_seconds', 'update_norm_mean'):
    assert metrics[secret].isna().all()
  assert not (tmp_path / 'run' / 'updates').exists()
  # What was charged is the plan.
  assert plan['noise_multiplier'] > 0
  assert metrics['epsilon'][2] == pytest.approx(plan['epsilon'])
  assert plan['epsilon'] <= 8
  # The model that was released is that of the last row.
  digits = public.read_embedded_digits()
  logits = trained_model.load(tmp_path / 'run')(digits['x_test'])
  right = np.argmax(logits, axis=-1) == digits['y_test']
  assert right.mean() == pytest.approx(metrics['test_accuracy'][2])
  assert privacy.read_ledger(tmp_path / 'run').num_releases == 2


def test_a_private_run_that_diverges_promises_all_its_rounds(
  tmp_path, cache_dir
):
  # What was released decided where it ends.
  result = _run(
    tmp_path / 'run', cache_dir, clipping_norm=1e19, server_learning_rate=3e38
  )
  plan = read_json(tmp_path / 'run' / 'privacy.json')
  epsilon = rounding.format_up(plan['epsilon'])
  assert result.round_num < 2
  assert f'All 2 rounds: ({epsilon}, 0.001)-differential' in result.message
  assert 'Charged' not in result.message


@pytest.mark.slow
def test_what_breaks_the_guarantee_is_said_wherever_it_is_claimed(
  tmp_path, cache_dir
):
  folder = RunFolder(tmp_path / 'run')
  message = _run(
    folder.path,
    cache_dir,
    **dict(sampling='random_allocation', accountant='pld', num_rounds=6),
    **dict(sampling_seed=1, simulation_diagnostics=True),
  ).message
  assert message.startswith('Finished 6 rounds. Charged: ')
  saved = read_json(folder.privacy)
  header = json.loads(folder.ledger.read_text().splitlines()[0])
  for plan in (saved, header['plan']):
    assert plan['description'].startswith('No guarantee as it was run: ')
  for words in (
    'the seed of the cohorts was given',
    'hold exact figures of the clients',
  ):
    for text in (
      *(message, read_json(folder.result)['message']),
      *(saved['description'], header['plan']['description']),
      *(' '.join(plan['caveats']) for plan in (saved, header['plan'])),
    ):
      assert words in text
  # Clients that draw their own rounds are charged by epochs.
  assert 'one of the 5 rounds of an epoch' in saved['description']
  plan = privacy.plan_from_json(saved)
  with privacy.PrivacyLedger(folder.ledger, plan) as ledger:
    assert ledger.rounds == [1, 2, 3, 4, 5, 6]
    assert ledger.epsilon == plan.epsilon == plan.epsilon_after(10) <= 8.0


@pytest.mark.slow
def test_a_norm_from_a_run_before_is_said_by_the_resumed_run(
  tmp_path, cache_dir, monkeypatch
):
  write_fed_avg(tmp_path / 'fed_avg', ['3.0,6'] * 2, partition='iid')
  blt = dict(mechanism='blt', sampling='min_separation')
  asked = dict(clipping_norm=None, clipping_norm_from=str(tmp_path / 'fed_avg'))
  with monkeypatch.context() as patch:
    patch.setattr(privacy, 'PrivacyLedger', processes.kill)
    with pytest.raises(processes.Killed):
      _run(tmp_path / 'run', cache_dir, **blt, **asked)
  # c comes as a number now.
  message = _run(tmp_path / 'run', cache_dir, **blt, clipping_norm=1.5).message
  assert "an exact figure of the clients' data" in message
  saved = read_json(tmp_path / 'run' / 'config.json')
  assert saved['clipping_norm_source']['exact']


@pytest.mark.slow
def test_a_run_misses_the_run_that_gave_its_norm_before_it_changes_anything(
  tmp_path, cache_dir
):
  before, folder = tmp_path / 'adaptive', RunFolder(tmp_path / 'run')
  write_adaptive(before)

  def go_on(source):
    asked = dict(clipping_norm=None, clipping_norm_from=str(source))
    return _run(folder.path, cache_dir, **asked).message

  message = go_on(before)
  moved = before.rename(tmp_path / 'moved')
  # It was made again, or is another one.
  for another in (before, tmp_path / 'another'):
    write_adaptive(another)
    files = {p: p.read_bytes() for p in folder.path.rglob('*') if p.is_file()}
    with pytest.raises(ValueError, match=f"not {before}/.* '{another}'"):
      go_on(another)
    assert all(p.read_bytes() == found for p, found in files.items())
  again = go_on(moved)
  assert again == f'Nothing was left to do. {message}'.replace(
    str(before), str(moved)
  )
  saved = read_json(folder.config)['clipping_norm_source']
  assert saved['ledger'] == str(moved / 'ledger.jsonl')
  assert 'is not known' not in folder.privacy.read_text()


@pytest.mark.slow
def test_a_killed_run_goes_on_with_its_plan_and_what_its_norm_has_cost(
  tmp_path, cache_dir, monkeypatch
):
  charge = privacy.PrivacyLedger.charge

  def kill(ledger, round_num, *args, **kwargs):
    # The outcome is saved.
    if round_num == 2:
      raise processes.Killed
    return charge(ledger, round_num, *args, **kwargs)

  before, folder = tmp_path / 'adaptive', tmp_path / 'run'
  write_adaptive(before)
  settings = dict(clipping_norm=None, clipping_norm_from=str(before))
  with monkeypatch.context() as patch:
    patch.setattr(privacy.PrivacyLedger, 'charge', kill)
    with pytest.raises(processes.Killed):
      _run(folder, cache_dir, **settings)
  plan = privacy.read_plan(folder)
  described = read_json(folder / 'privacy.json')
  assert privacy.read_ledger(folder).num_releases == 1
  (folder / 'privacy.json').unlink()
  message = _run(folder, cache_dir, **settings).message
  assert 'Finished 2 rounds.' in message
  assert 'No guarantee' not in message
  assert privacy.read_plan(folder) == plan
  assert read_json(folder / 'privacy.json') == described
  ledgers = [privacy.read_ledger(path) for path in (before, folder)]
  assert ledgers[1].num_releases == 2
  together = privacy.compute_spending(ledgers).epsilon
  for text in (message, described['with_clipping_norm']):
    assert f'epsilon {rounding.format_up(ledgers[0].epsilon)}' in text
    assert rounding.format_up(together) in text
