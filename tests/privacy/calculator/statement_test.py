"""Tests of tff_clipping.privacy.calculator.statement."""

import hashlib
import json

import pytest

import tff_clipping
from tests.privacy.budget_commands import check_refused, run_here
from tests.privacy.ledgers import PLAN, charge
from tff_clipping.privacy.accounting import rounding
from tff_clipping.privacy.calculator import ledger_main


@pytest.fixture(name='write')
def _write(tmp_path, capsys):
  """Returns a function that runs the command and returns the statement."""

  def write(num_releases=20, caveats=(), files=()):
    run = tmp_path / 'run'
    run.mkdir()
    charge(run / 'ledger.jsonl', range(num_releases), caveats=caveats)
    for name, content in files:
      (run / name).write_bytes(content)
    path = tmp_path / 'statement.md'
    code, out, err = run_here(capsys, str(run), _flag(path), main=ledger_main)
    assert (code, err) == (0, '')
    assert f'The statement is in {path}.\n' in out
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


@pytest.mark.parametrize('num_releases', [5, 20])
def test_the_whole_plan_is_promised_also_of_a_run_that_ended_early(
  write, num_releases
):
  text = write(num_releases=num_releases)
  assert f'| Epsilon | {rounding.format_up(PLAN.epsilon)} |' in text
  assert '| Delta | 1e-05 |' in text
  assert 'add\\_or\\_remove\\_one: ' in text
  assert '(the true-positive rate)' in text
  assert f'{num_releases} of 20 planned' in text
  assert f'tff-clipping {tff_clipping.__version__}' in text
  spent = rounding.format_up(PLAN.epsilon_after(num_releases))
  is_told = f'The {num_releases} rounds that were run cost epsilon {spent}'
  assert (is_told in text) == (num_releases == 5)


def test_caveats_take_the_guarantee_away(write):
  text = write(caveats=['a <b>seed</b> is known'])
  caveats = text.partition('## What was trained')[0]
  assert 'does not have the guarantee' in caveats
  # Markdown shows it as it is.
  assert '* a \\<b\\>seed\\</b\\> is known' in caveats


@pytest.mark.parametrize(
  ('clipping', 'norm', 'noise', 'choice'),
  [
    ('fixed', '0.1', 'Noise on the sum | 1.5 times c, ', 'the clipping norm'),
    # The noise on the sum alone is another, and larger.
    (
      'adaptive',
      'adaptive, from 0.1',
      'Noise on the sum and on the bits that adapt c, together | a noise mult',
      'where the clipping norm began',
    ),
  ],
)
def test_what_the_folder_says_is_there_and_digests_are_those_of_files(
  write, clipping, norm, noise, choice
):
  experiment = {'model': 'mlp', 'clipping': clipping, 'clipping_norm': 0.1}
  text = write(
    files=[
      ('config.json', json.dumps({'experiment': experiment}).encode()),
      ('model.weights.h5', b'weights'),
    ]
  )
  assert '| Model | mlp |' in text
  assert f'| Clipping norm c | {norm} |' in text
  assert f'| {noise}' in text
  assert f': {choice}, learning rates' in text
  digest = hashlib.sha256(b'weights').hexdigest()
  assert f'| model.weights.h5 | {digest} |' in text


def test_what_is_wrong_is_one_line(write, capsys, tmp_path):
  write()
  run = str(tmp_path / 'run')
  for arguments, message in (
    ([run, _flag(tmp_path / 'x.pdf')], '--statement must end in .md'),
    ([run, _flag(tmp_path / 'statement.md')], '--statement must be a new file'),
    ([run, run, _flag('x.md')], '--statement must be given with one ledger'),
  ):
    check_refused(capsys, message, *arguments, main=ledger_main)
