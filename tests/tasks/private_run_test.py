"""Tests of what the files of a private run say, and who can read them."""

import json
import os
import shutil

import pandas as pd
import pytest

from tasks.running.folder import RunFolder
from tests.tasks.small_runs import DP_FED_AVG, FED_AVG, read_json, run_small
from tff_clipping import privacy
from tff_clipping.privacy.accounting import rounding
from tff_clipping.programs.training import training_program


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


@pytest.mark.slow
def test_clients_that_draw_their_own_rounds_are_charged_by_epochs(
  tmp_path, cache_dir
):
  allocation = dict(
    sampling='random_allocation', accountant='pld', num_rounds=6
  )
  result = _run(tmp_path / 'run', cache_dir, **allocation)
  assert result.message.startswith('Finished 6 rounds. Charged: ')
  saved = read_json(tmp_path / 'run' / 'privacy.json')
  plan = privacy.plan_from_json(saved)
  assert plan.epsilon == plan.epsilon_after(10) <= 8.0
  assert 'one of the 5 rounds of an epoch' in saved['description']
  with privacy.PrivacyLedger(tmp_path / 'run' / 'ledger.jsonl', plan) as ledger:
    assert ledger.rounds == [1, 2, 3, 4, 5, 6]
    assert ledger.epsilon == plan.epsilon


@pytest.mark.slow
def test_what_breaks_the_guarantee_is_said_wherever_it_is_claimed(
  tmp_path, cache_dir
):
  changes = dict(sampling_seed=1, simulation_diagnostics=True, num_rounds=1)
  message = _run(tmp_path / 'run', cache_dir, **changes).message
  assert 'No guarantee as it was run: ' in message
  header = (tmp_path / 'run' / 'ledger.jsonl').read_text().splitlines()[0]
  for words in (
    'the seed of the cohorts was given',
    'hold exact figures of the clients',
  ):
    assert words in message
    for plan in (
      read_json(tmp_path / 'run' / 'privacy.json'),
      json.loads(header)['plan'],
    ):
      assert words in ' '.join(plan['caveats'])
      assert plan['description'].startswith('No guarantee as it was run: ')
      assert words in plan['description']
    assert words in read_json(tmp_path / 'run' / 'result.json')['message']


@pytest.mark.slow
def test_caveats_of_a_run_that_fails_are_in_its_privacy_json(
  tmp_path, cache_dir, monkeypatch
):
  def fail(program):
    program.ledger.add_caveats(['the data changed'])
    raise training_program.RoundError('It failed.')

  monkeypatch.setattr(training_program.TrainingProgram, 'run', fail)
  with pytest.raises(training_program.RoundError, match='It failed'):
    _run(tmp_path / 'run', cache_dir)
  plan = read_json(tmp_path / 'run' / 'privacy.json')
  assert plan['caveats'] == ['the data changed']


@pytest.mark.slow
def test_a_norm_from_a_run_before_is_said_by_the_resumed_run(
  tmp_path, cache_dir
):
  source = tmp_path / 'fed_avg'
  run_small(FED_AVG, source, cache_dir)
  asked = dict(clipping_norm=None, clipping_norm_from=str(source), num_rounds=1)
  _run(tmp_path / 'run', cache_dir, **asked)
  # As if the first start had been stopped before it opened its ledger; and c
  # comes as a number now.
  folder = RunFolder(tmp_path / 'run')
  norm = read_json(folder.config)['experiment']['clipping_norm']
  for path in (*folder.path.glob('*ledger*'), folder.privacy, folder.result):
    path.unlink()
  shutil.rmtree(folder.checkpoints)
  folder.metrics.unlink()
  message = _run(
    folder.path, cache_dir, num_rounds=1, clipping_norm=norm
  ).message
  assert "an exact figure of the clients' data" in message
  assert read_json(folder.config)['clipping_norm_source']['exact']


@pytest.mark.slow
def test_what_a_private_run_paid_for_its_norm_is_spent_too(tmp_path, cache_dir):
  before = tmp_path / 'adaptive'
  _run(before, cache_dir, clipping='adaptive', clipping_norm=0.1)
  result = _run(
    tmp_path / 'run',
    cache_dir,
    clipping_norm=None,
    clipping_norm_from=str(before),
  )
  ledgers = [privacy.read_ledger(path) for path in (before, tmp_path / 'run')]
  together = privacy.compute_spending(ledgers).epsilon
  said = read_json(tmp_path / 'run' / 'privacy.json')['with_clipping_norm']
  for text in (result.message, said):
    assert f'epsilon {rounding.format_up(ledgers[0].epsilon)}' in text
    assert rounding.format_up(together) in text
  assert 'No guarantee' not in result.message


@pytest.mark.slow
def test_the_client_store_is_for_those_whom_the_umask_lets_in(tmp_path):
  before = os.umask(0o077)
  try:
    _run(tmp_path / 'run', tmp_path / 'cache', num_rounds=1)
  finally:
    os.umask(before)
  paths = list((tmp_path / 'cache').rglob('*'))
  assert paths
  for path in paths:
    assert not _mode(path) & 0o077, path
