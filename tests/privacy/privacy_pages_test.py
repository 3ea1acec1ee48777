"""Runs the commands of the pages on privacy, and compares what they answer."""

import json
import re
import shlex

import pytest

from tests.privacy.ledgers import ROOT, charge
from tests.privacy.paper import PAPER
from tff_clipping import privacy
from tff_clipping.privacy.calculator import budget_main, ledger_main

_DOCS = ROOT / 'docs'
_PAGES = 'accounting.md', 'answering_for_a_budget.md', 'privacy.md'
_PROGRAMS = {
  'tff-clipping-budget': budget_main.run,
  'tff-clipping-ledger': ledger_main.run,
}
_BLOCK = re.compile(
  r'^```\w*\n(.*?)^```\n(.*?)(?=^```|\Z)', re.DOTALL | re.MULTILINE
)


def _commands():
  """Yields each command, and the lines that its page says it answers."""
  for page in _PAGES:
    blocks = _BLOCK.findall((_DOCS / page).read_text())
    for index, (block, after) in enumerate(blocks):
      command = block[block.find('tff-clipping-') :]
      if command.startswith('tff-clipping-'):
        leads_over = re.search(r'answers( \(in part\))?\n*\Z', after)
        answer = blocks[index + 1][0] if leads_over else ''
        yield shlex.split(command.replace('\\\n', ' ')), answer.splitlines()


def _words(line):
  """Returns a line without what only widens it."""
  return ' '.join(line.split())


@pytest.fixture(name='folder', scope='module')
def _folder(tmp_path_factory):
  """Returns a folder with two runs of one plan."""
  folder = tmp_path_factory.mktemp('page')
  plan = privacy.PrivacyPlan.from_target_epsilon(
    **PAPER, num_rounds=100, target_epsilon=1.5, accountant='pld'
  )
  for name, num_releases in (('first', 60), ('second', 40)):
    run = folder / 'runs' / name
    run.mkdir(parents=True)
    charge(run / 'ledger.jsonl', range(num_releases), plan)
  answer = privacy.PrivacyPlan.from_target_epsilon(
    num_clients=100_000,
    clients_per_round=500,
    num_rounds=500,
    target_epsilon=2,
    target_delta=1e-6,
  )
  (folder / 'first.json').write_text(json.dumps(privacy.plan_to_json(answer)))
  (folder / 'second.flags').write_text(
    '--num_clients=100000\n--clients_per_round=500\n--target_delta=1e-6\n'
    '--num_rounds=500\n--noise_multiplier=0.8\n'
  )
  return folder


@pytest.mark.slow
@pytest.mark.parametrize(('command', 'answer'), [*_commands()])
def test_command_answers_what_is_shown(
  capsys, monkeypatch, folder, command, answer
):
  monkeypatch.chdir(folder)
  code = _PROGRAMS[command[0]](command)
  captured = capsys.readouterr()
  assert (code, captured.err) == (0, '')
  found = [_words(line) for line in captured.out.splitlines()]
  for line in answer:
    assert any(each.startswith(_words(line)) for each in found), line


def test_the_pages_have_both_commands_and_their_answers():
  commands = [*_commands()]
  assert {command[0] for command, _ in commands} == {*_PROGRAMS}
  assert sum(bool(answer) for _, answer in commands) == 11


def test_the_matrix_has_every_sampler():
  page = (_DOCS / 'accounting.md').read_text()
  matrix = page.partition('## Which sampler with which noise')[2]
  rows = re.findall(r'^\| `(\w+)`', matrix.partition('\n## ')[0], re.MULTILINE)
  assert {*rows} == {
    *('poisson', 'fixed_size', 'none', 'random_allocation'),
    *('min_separation', 'grouped_poisson'),
  }
