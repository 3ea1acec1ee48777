"""Holds the pages on privacy: the answers of commands, and the figures."""

import functools
import json
import re
import runpy
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


# The table of docs/correlated_noise.md.
_COLUMNS = [(100, 5.0), (100, 1.5), (1000, 5.0), (1000, 1.5)]
_SEPARATION = privacy.Participation(min_separation=24)


def _rows():
  lines = re.findall(
    r'^\| `.*\| [\d.]+ \|$',
    (_DOCS / 'correlated_noise.md').read_text(),
    re.MULTILINE,
  )
  return [[cell.strip() for cell in line.split('|')[1:-1]] for line in lines]


@functools.cache
def _strategy(noise, num_rounds):
  if noise == 'identity':
    return privacy.identity_strategy(num_rounds=num_rounds)
  build = privacy.banded_strategy if noise == 'banded' else privacy.blt_strategy
  return build(num_rounds=num_rounds, participation=_SEPARATION)


def _error(sampler, noise, column):
  num_rounds, epsilon = _COLUMNS[column]
  if noise == 'independent':
    plan = privacy.PrivacyPlan.from_target_epsilon(
      **PAPER,
      num_rounds=num_rounds,
      target_epsilon=epsilon,
      sampling=sampler,
      accountant='pld',
    )
    return plan, plan.running_sum_error
  name, *sizes = re.findall(r'\w+', noise.replace('b =', ''))
  if sampler == 'grouped_poisson':
    separation = int(sizes[column])
    strategy = privacy.banded_strategy(
      num_rounds=num_rounds,
      participation=privacy.Participation(
        min_separation=separation, max_participations=1
      ),
      num_bands=separation,
    )
  else:
    sampler, separation = 'min_separation', 24
    strategy = _strategy(name.lower(), num_rounds)
    if sizes:
      size = strategy.num_bands if name == 'banded' else strategy.num_buffers
      assert size == int(sizes[0])
  plan = privacy.CorrelatedNoisePlan.from_target_epsilon(
    **PAPER,
    strategy=strategy,
    target_epsilon=epsilon,
    min_separation=separation,
    sampling=sampler,
  )
  return plan, plan.running_sum_error


def _computed_rows():
  return [row for row in _rows() if 'commit 44967cd3' not in row[1]]


def test_the_table_has_all_mechanisms():
  assert (len(_rows()), len(_computed_rows())) == (7, 6)


@pytest.mark.parametrize('row', range(6))
@pytest.mark.parametrize('column', range(4))
def test_errors_are_those_of_the_plans(row, column):
  sampler, noise, relation, *errors = _computed_rows()[row]
  sampler = re.search(r'`(\w+)`', sampler)[1]
  plan, error = _error(sampler, noise, column)
  assert f'{error:.1f}' == errors[column]
  assert plan.relation.value == relation.replace('-', '_')


@pytest.mark.slow
def test_a_budget_is_drawn(tmp_path, capsys):
  pytest.importorskip('matplotlib')
  path = tmp_path / 'budget.svg'
  example = runpy.run_path(str(ROOT / 'examples/plot_budget.py'))
  # A small plan takes seconds.
  example['_PLAN'].update(num_clients=4, clients_per_round=2, num_rounds=10)
  example['main'](path)
  assert capsys.readouterr().out == f'The figure is in {path}.\n'
  # Text is drawn as shapes, and named in comments.
  drawing = path.read_text()
  for text in (
    *('rounds', 'clients per round', 'noise multiplier 4.36569'),
    *('Poisson, add or remove one', 'fixed size, replace one'),
  ):
    assert f'<!-- {text} -->' in drawing
