"""Tests of tff_clipping.privacy.calculator.budget_main."""

import json
import os
import subprocess

import pytest

import tff_clipping
from tests import processes
from tests.privacy.budget_commands import (
  ONE_ROUND,
  PAPER,
  ask,
  check_refused,
  run_here,
  run_process,
)


@pytest.mark.parametrize(
  ('command', 'arguments', 'code'),
  [('budget_main', ONE_ROUND, 0), ('ledger_main', ['/missing'], 2)],
)
def test_commands_do_not_import_tensorflow(command, arguments, code):
  program = (
    'import sys\n'
    f'from tff_clipping.privacy.calculator import {command}\n'
    f'assert {command}.run(["x", *{arguments!r}]) == {code}\n'
    'slow = {"tensorflow", "tensorflow_federated", "matplotlib", "pandas"}\n'
    'sys.exit(str(slow & set(sys.modules)) if slow & set(sys.modules) else 0)\n'
  )
  ended = processes.run_python('-c', program)
  assert ended.code == 0, ended.errors


def test_flags_may_come_from_a_file_and_have_an_exponent(capsys, tmp_path):
  path = tmp_path / 'question.flags'
  path.write_text('# The paper\n--num_clients=1920\n--target_delta=1e-5\n')
  # What comes later counts.
  given = (f'--flagfile={path}', '--num_clients=1e2', '--sampling=none')
  answer = ask(capsys, *given, '--num_rounds=1.0', '--noise_multiplier=8')
  assert answer['num_clients'] == 100
  assert answer['num_rounds'] == 1
  assert answer['target_delta'] == 1e-5


@pytest.mark.parametrize('form', ['table', 'json'])
def test_output_is_a_new_file_that_says_how_it_came_about(
  capsys, tmp_path, form
):
  path = tmp_path / 'answer'
  arguments = (*ONE_ROUND, f'--format={form}', f'--output={path}')
  code, out, err = run_here(capsys, *arguments)
  assert (code, out, err) == (0, f'The answer is in {path}.\n', '')
  text = path.read_text()
  assert f'tff-clipping-budget {" ".join(ONE_ROUND)}' in text
  assert tff_clipping.__version__ in text
  if form == 'json':
    answer = json.loads(text)
    assert {*answer['versions']} == {
      *('tff-clipping', 'dp-accounting', 'numpy', 'scipy', 'python')
    }
    assert len(answer['date']) == len('2026-01-01')
  # Never over another answer.
  check_refused(capsys, '--output must be a new file', *arguments)
  assert path.read_text() == text


def test_help_explains(capsys):
  code, out, err = run_here(capsys, '--help')
  assert (code, err) == (0, '')
  for part in ('--target_epsilon', 'random_allocation', 'Exit codes'):
    assert part in out
  expected = f'tff-clipping-budget {tff_clipping.__version__}\n'
  assert run_here(capsys, '--version') == (0, expected, '')


# Wrong flags are argparse's to name, with a line of usage before.
@pytest.mark.parametrize(
  ('arguments', 'name'),
  [
    (['--num_clients=1.5'], '--num_clients'),
    (['--mechanism=laplace'], '--mechanism'),
    (['--num_client=3'], '--num_client'),
  ],
)
def test_a_wrong_flag_is_named(capsys, arguments, name):
  code, out, err = run_here(capsys, *ONE_ROUND, *arguments)
  assert (code, out) == (2, '')
  assert name in err.splitlines()[-1]


@pytest.mark.parametrize(
  ('arguments', 'message'),
  [
    ([*PAPER[:2]], '--target_delta must be given'),
    (
      [*PAPER, '--num_rounds=1'],
      'found --num_clients, --clients_per_round, --num_rounds.',
    ),
    ([*ONE_ROUND, '--accountant=gaussian'], "must be 'rdp' or 'pld' where"),
    ([*ONE_ROUND, '--flagfile=/missing'], '/missing'),
    ([*ONE_ROUND, '--false_positive_rate=1'], '--false_positive_rate must be'),
    ([*ONE_ROUND, '--output=/missing/a.txt'], '--output must be a file that'),
  ],
)
def test_a_wrong_question_is_one_line_and_exit_code_2(
  capsys, arguments, message
):
  check_refused(capsys, message, *arguments)


# Fair questions at the accountants' edges: all clients in a million rounds, one
# of a billion clients, a delta that the rounding of doubles would hide.
EDGES = [
  (
    ('--num_clients=100', '--clients_per_round=100', '--target_delta=1e-5'),
    ('--num_rounds=1000000', '--target_epsilon=1'),
  ),
  (
    ('--num_clients=1000000000', '--clients_per_round=1'),
    ('--target_delta=1e-9', '--num_rounds=1000000', '--noise_multiplier=30'),
  ),
  (
    ('--num_clients=1000', '--clients_per_round=500', '--target_delta=1e-10'),
    ('--num_rounds=100', '--noise_multiplier=2', '--accountant=pld'),
  ),
]


@pytest.mark.parametrize(
  ('population', 'rounds'),
  [
    EDGES[0],
    *(pytest.param(*edge, marks=pytest.mark.slow) for edge in EDGES[1:]),
  ],
)
def test_question_at_the_edge_is_answered_in_little_memory(population, rounds):
  result = run_process(*population, *rounds, '--format=json', reports_peak=True)
  assert result.returncode == 0, result.stderr
  assert result.stderr == ''
  *answer, peak = result.stdout.splitlines()
  assert int(peak) < 500_000  # KB, of which 100 MB are Python's modules.
  answer = json.loads('\n'.join(answer))
  assert answer['epsilon'] > 0


def test_reader_that_leaves_early_is_no_error():
  read, write = os.pipe()
  os.close(read)
  try:
    result = run_process(
      *ONE_ROUND, stdout=write, stderr=subprocess.PIPE, capture_output=False
    )
  finally:
    os.close(write)
  assert (result.returncode, result.stderr) == (0, '')
