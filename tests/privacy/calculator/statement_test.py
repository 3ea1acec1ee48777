"""Tests of tff_clipping.privacy.calculator.statement."""

import hashlib
import json

import pytest

import tff_clipping
from tests.privacy.ledgers import PLAN, new_id
from tff_clipping import privacy
from tff_clipping.privacy.accounting import rounding
from tff_clipping.privacy.calculator import ledger_main


@pytest.fixture(name='write')
def _write(tmp_path, capsys):
  """Returns a function that runs the command and returns the statement."""

  def write(num_releases=20, caveats=(), plan=PLAN, files=()):
    run = tmp_path / 'run'
    run.mkdir()
    with privacy.PrivacyLedger(
      run / 'ledger.jsonl', plan, caveats=caveats
    ) as ledger:
      for round_num in range(1, num_releases + 1):
        ledger.charge(round_num, new_id())
    for name, content in files:
      (run / name).write_bytes(content)
    path = tmp_path / 'statement.md'
    code = ledger_main.run(['tff-clipping-ledger', str(run), _flag(path)])
    captured = capsys.readouterr()
    assert (code, captured.err) == (0, '')
    assert captured.out.endswith(f'The statement is in {path}.\n')
    return path.read_text()

  return write


def _flag(path):
  return f'--statement={path}'


def _titles(text):
  return [line[3:] for line in text.splitlines() if line.startswith('## ')]


def test_a_statement_has_its_parts_in_order_caveats_first(write):
  text = write()
  assert _titles(text) == [
    'Caveats',
    'What was trained',
    'What is promised',
    'What is not covered',
    'How it was computed',
    'Digests (SHA-256)',
  ]
  assert 'No caveat is recorded' in text
  assert len(text.split()) < 700  # A page or so.


def test_the_promise_is_in_words_and_in_numbers(write):
  text = write()
  epsilon = rounding.format_up(PLAN.epsilon)
  assert f'| Epsilon | {epsilon} |' in text
  assert '| Delta | 1e-05 |' in text
  assert 'one client, with all of its data' in text
  assert 'add\\_or\\_remove\\_one: two sets of clients that differ in' in text
  assert 'the probability of any result that is published' in text
  assert '(the true-positive rate)' in text
  assert '20 of 20 planned' in text
  assert f'tff-clipping {tff_clipping.__version__}' in text


def test_of_a_run_that_ended_early_the_whole_plan_is_promised(write):
  text = write(num_releases=5)
  assert f'| Epsilon | {rounding.format_up(PLAN.epsilon)} |' in text
  spent = rounding.format_up(PLAN.epsilon_after(5))
  assert f'The 5 rounds that were run cost epsilon {spent}; that is a' in text


def test_caveats_take_the_guarantee_away(write):
  text = write(caveats=['a <b>seed</b> is known'])
  caveats = text.partition('## What was trained')[0]
  assert 'does not have the guarantee' in caveats
  # Markdown shows it as it is.
  assert '* a \\<b\\>seed\\</b\\> is known' in caveats


def test_what_the_folder_says_is_there_and_digests_are_those_of_files(write):
  experiment = {'model': 'mlp', 'task': 'mnist', 'clipping_norm': 0.1}
  config = {'experiment': experiment}
  text = write(
    files=[
      ('config.json', json.dumps(config).encode()),
      ('model.weights.h5', b'weights'),
    ]
  )
  assert '| Model | mlp |' in text
  assert '| Data | mnist |' in text
  assert '| Clipping norm c | 0.1 |' in text
  assert '| Noise on the sum | 1.5 times c, ' in text
  assert ': the clipping norm, learning rates' in text
  digest = hashlib.sha256(b'weights').hexdigest()
  assert f'| model.weights.h5 | {digest} |' in text


def test_an_adaptive_norm_is_said_to_be_so_with_what_was_paid_for(write):
  experiment = {'clipping': 'adaptive', 'clipping_norm': 0.1}
  config = json.dumps({'experiment': experiment}).encode()
  text = write(files=[('config.json', config)])
  assert '| Clipping norm c | adaptive, from 0.1 |' in text
  # The noise on the sum alone is another, and larger.
  together = '| Noise on the sum and on the bits that adapt c, together | '
  assert f'{together}a noise multiplier of 1.5 |' in text
  assert 'times c' not in text.partition('## How it was computed')[0]
  assert ': where the clipping norm began, learning rates' in text


def test_what_is_wrong_is_one_line(write, capsys, tmp_path):
  write()
  run = str(tmp_path / 'run')
  for arguments, message in (
    ([run, _flag(tmp_path / 'x.pdf')], '--statement must end in .md'),
    ([run, _flag(tmp_path / 'statement.md')], '--statement must be a new file'),
    ([run, run, _flag('x.md')], '--statement must be given with one ledger'),
  ):
    code = ledger_main.run(['tff-clipping-ledger', *arguments])
    captured = capsys.readouterr()
    assert (code, captured.out) == (2, '')
    assert message in captured.err
    assert len(captured.err.splitlines()) == 1
