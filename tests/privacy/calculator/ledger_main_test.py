"""Tests of tff_clipping.privacy.calculator.ledger_main."""

import dataclasses
import errno
import functools
import json
import pathlib

import pytest

import tff_clipping
from tests.privacy import budget_commands
from tests.privacy.budget_commands import check_refused
from tests.privacy.ledgers import PLAN, charge
from tff_clipping import privacy
from tff_clipping.privacy.accounting import rounding
from tff_clipping.privacy.calculator import ledger_main

CAVEAT = 'a seed is known'


@pytest.fixture(name='runs')
def _runs(tmp_path):
  """Returns the folders of two runs, the second with a caveat."""
  folders = []
  for name, caveats in (('first', []), ('second', [CAVEAT])):
    folder = tmp_path / name
    folder.mkdir()
    charge(folder / 'ledger.jsonl', range(10), caveats=caveats)
    folders.append(str(folder))
  return folders


run_here = functools.partial(budget_commands.run_here, main=ledger_main)


def test_tells_what_a_run_spent(capsys, runs):
  code, out, err = run_here(capsys, runs[0])
  assert (code, err) == (0, '')
  assert '10 of 20 planned' in out
  assert f'({rounding.format_up(PLAN.epsilon_after(10))}, 1e-05)' in out
  assert privacy.describe_plan(PLAN) in out
  assert 'Together' not in out
  planned = f'promise epsilon {rounding.format_up(PLAN.epsilon)}, that of all'
  assert planned in out
  assert f'tff-clipping-ledger {runs[0]}' in out


def test_a_budget_is_promised_where_more_rounds_than_planned_may_run(
  capsys, tmp_path
):
  plan = dataclasses.replace(PLAN, num_rounds=2, target_epsilon=PLAN.epsilon)
  assert plan.permitted_rounds == 20
  path = tmp_path / 'ledger.jsonl'
  charge(path, range(7), plan)
  _, out, _ = run_here(capsys, str(path))
  assert '7 of 2 planned' in out
  budget = rounding.format_up(PLAN.epsilon)
  assert f'promise epsilon {budget}, that of all 20 rounds' in out
  spent = rounding.format_up(PLAN.epsilon_after(7))
  assert f'Training for 7 rounds satisfies client-level ({spent}, ' in out
  _, out, _ = run_here(capsys, str(path), '--format=json')
  (found,) = json.loads(out)['ledgers']
  assert found['planned_epsilon'] == pytest.approx(PLAN.epsilon)
  assert f'({spent}, ' in found['plan']['description']


@pytest.mark.parametrize('target', [None, PLAN.epsilon])
def test_a_line_cut_short_after_the_last_round_has_one_epsilon(
  capsys, tmp_path, target
):
  path = tmp_path / 'ledger.jsonl'
  charge(path, range(20), dataclasses.replace(PLAN, target_epsilon=target))
  with open(path, 'ab') as file:
    file.write(b'{"line":22,"kind":"cave')
  statement = tmp_path / 'statement.md'
  code, out, _ = run_here(capsys, str(path), f'--statement={statement}')
  spent = rounding.format_up(PLAN.epsilon_after(21))
  assert code == 0
  assert '21 of 20 planned' in out
  assert f'{spent} of {rounding.format_up(PLAN.epsilon, digits=6)}' in out
  assert f'Training for 21 rounds satisfies client-level ({spent}, ' in out
  assert f'| Epsilon | {spent} |' in statement.read_text()


@pytest.mark.filterwarnings('ignore:`target_delta` should be at least')
def test_what_the_draws_of_the_noise_add_to_a_small_delta_is_a_caveat(
  capsys, tmp_path
):
  plan = dataclasses.replace(PLAN, target_delta=1e-18)
  path, statement = tmp_path / 'ledger.jsonl', tmp_path / 'statement.md'
  charge(path, range(20), plan)
  run_here(capsys, str(path), f'--statement={statement}')
  described = privacy.plan_to_json(plan)
  assert 'may add more to delta' in statement.read_text().split('## What')[0]
  assert described['caveats'] == list(privacy.read_ledger(path).caveats)
  assert described['description'].startswith('No guarantee as it was run: ')
  assert not dataclasses.replace(PLAN, target_delta=1e-10).caveats


@pytest.mark.filterwarnings('ignore:`target_delta` should be at least')
def test_what_the_draws_of_all_permitted_rounds_add_is_a_caveat(
  capsys, tmp_path
):
  setting = {'num_rounds': 1, 'target_delta': 1e-11, 'noise_multiplier': 0.7}
  plan = dataclasses.replace(PLAN, **setting, target_epsilon=9.5)
  assert not plan.caveats
  path, statement = tmp_path / 'ledger.jsonl', tmp_path / 'statement.md'
  charge(path, range(1), plan)
  run_here(capsys, str(path), f'--statement={statement}')
  text = statement.read_text()
  assert f'This is for all {plan.permitted_rounds} rounds' in text
  assert 'may add more to delta' in text.split('## What')[0]
  charge(path, range(1, plan.permitted_rounds), plan)
  _, out, _ = run_here(capsys, str(path), '--format=json')
  (found,) = json.loads(out)['ledgers']
  assert 'may add more to delta' in found['caveats'][0]
  assert found['caveats'] == found['plan']['caveats']


def test_tells_what_runs_spent_together_caveats_first(capsys, runs):
  code, out, err = run_here(capsys, *runs, '--format=json')
  assert (code, err) == (0, '')
  answer = json.loads(out)
  assert [each['num_releases'] for each in answer['ledgers']] == [10, 10]
  assert [each['caveats'] for each in answer['ledgers']] == [[], [CAVEAT]]
  together = answer['together']
  assert together['epsilon'] == pytest.approx(PLAN.epsilon, rel=1e-9)
  assert together['relation'] == 'add_or_remove_one'
  assert together['caveats'] == [CAVEAT]
  assert answer['versions']['tff-clipping'] == tff_clipping.__version__
  _, out, _ = run_here(capsys, *runs)
  first, second, together, _ = out.split('\n\n')
  assert 'No guarantee' not in first
  assert f'No guarantee as it was run: {CAVEAT}.' in second.splitlines()[1]
  assert together.startswith(f'No guarantee as it was run: {CAVEAT}.')
  assert 'the 20 releases of 2 runs satisfy client-level (' in together
  _, out, _ = run_here(capsys, runs[0], '--target_delta=1e-4')
  assert '10 releases of 1 run satisfy client-level (' in out
  assert '0.0001)-differential privacy' in out


def test_what_is_wrong_is_one_line_and_exit_code_2(capsys, runs, tmp_path):
  for arguments, message in (
    ([], 'a ledger, or the folder of a run, must be given'),
    ([str(tmp_path / 'none')], 'must be a file that can be read, found'),
    ([str(tmp_path)], 'has no ledger.jsonl: it is not that of a private run'),
    ([__file__], 'is not a ledger: that of a run is the ledger.jsonl in its'),
    ([runs[0], runs[0]], 'ledgers must be different ones'),
  ):
    check_refused(capsys, message, *arguments, main=ledger_main)
  ledger = tmp_path / 'first' / 'ledger.jsonl'
  ledger.write_text(ledger.read_text().replace('"draw":0', '"draw":1', 1))
  code, _, err = run_here(capsys, runs[0])
  assert code == 2
  assert 'Line 3 of' in err


def test_a_file_that_a_statement_cannot_read_is_named(
  capsys, runs, tmp_path, monkeypatch
):
  def refuse(path):
    raise PermissionError(errno.EACCES, 'Permission denied', str(path))

  model = tmp_path / 'first' / 'model.weights.h5'
  model.touch()
  monkeypatch.setattr(pathlib.Path, 'read_bytes', refuse)
  statement = tmp_path / 'statement.md'
  arguments = runs[0], f'--statement={statement}'
  message = '(Permission denied)'
  check_refused(capsys, message, *arguments, main=ledger_main)
  assert not statement.exists()


def test_what_gave_a_run_its_clipping_norm_is_told(capsys, runs, tmp_path):
  source = f'{runs[0]}/ledger.jsonl'
  config = {'experiment': {}, 'clipping_norm_source': {'ledger': source}}
  (tmp_path / 'second' / 'config.json').write_text(json.dumps(config))
  _, out, _ = run_here(capsys, runs[1])
  assert f'spent too         what {source} has spent' in out
  _, out, _ = run_here(capsys, runs[1], '--format=json')
  assert json.loads(out)['ledgers'][0]['clipping_norm_from'] == [source]
  run_here(capsys, runs[1], f'--statement={tmp_path / "statement.md"}')
  text = (tmp_path / 'statement.md').read_text()
  assert 'whose epsilon is spent too and is not counted here' in text
