"""Tests of tff_clipping.privacy.budget_main."""

import dataclasses
import json
import math
import os
import pathlib
import random
import subprocess
import sys

import pytest

from tff_clipping import privacy
from tff_clipping.privacy import budget_main, budget_report

ROOT = pathlib.Path(privacy.__file__).parents[2]
PAPER = (
  '--num_clients=1920',
  '--clients_per_round=80',
  '--target_delta=1e-5',
)
# Cheap to compute: one round only.
ONE_ROUND = (*PAPER, '--num_rounds=1', '--noise_multiplier=3')


def run_here(capsys, *arguments):
  """Runs the command in this process; returns exit code, stdout, stderr."""
  code = budget_main.run(['tff-clipping-budget', *arguments])
  captured = capsys.readouterr()
  return code, captured.out, captured.err


# Runs the command and prints the most memory that it had, in KB. Not by
# `resource`, which counts the process that started this one.
PEAK = """
import sys
from tff_clipping.privacy import budget_main
code = budget_main.run()
status = dict(line.split(':', 1) for line in open('/proc/self/status'))
print(status['VmHWM'].split()[0])
sys.exit(code)
"""


def run_process(*arguments, reports_peak=False, **options):
  """Runs the command as a user does."""
  program = ['-m', 'tff_clipping.privacy.budget_main']
  if reports_peak:
    program = ['-c', PEAK]
  return subprocess.run(
    [sys.executable, *program, *arguments],
    capture_output=True,
    text=True,
    env={**os.environ, 'PYTHONPATH': str(ROOT)},
    check=False,
    **options,
  )


def test_truncated_poisson_has_bounds_in_its_answer(capsys):
  question = (*ONE_ROUND, '--sampling=truncated_poisson', '--format=json')
  code, out, _ = run_here(capsys, *question)
  assert code == 0
  answer = json.loads(out)
  assert answer['relation'] == 'add_or_remove_one'
  least, largest = (
    answer['min_clients_per_round'],
    answer['max_clients_per_round'],
  )
  assert 0 < least < 80 < largest
  assert f'outside of {least} to {largest} clients' in answer['description']
  code, _, err = run_here(capsys, *question, '--max_clients_per_round=90')
  assert code == 2
  assert '--max_clients_per_round must be wider, found' in err


def test_command_of_the_readme():
  result = run_process(
    *PAPER,
    '--num_rounds=100',
    '--target_epsilon=1.5',
    '--sampling=poisson',
    '--accountant=rdp',
    '--format=json',
  )
  assert result.returncode == 0
  assert result.stderr == ''
  answer = json.loads(result.stdout)
  assert answer['noise_multiplier'] == pytest.approx(1.52998, rel=1e-5)
  assert 1.4999 < answer['epsilon'] <= 1.5
  assert answer['num_rounds'] == 100
  assert answer['solved_for'] == 'noise_multiplier'
  assert answer['relation'] == 'add_or_remove_one'
  assert answer['warnings'] == []
  figures = {
    (each['sampling'], each['accountant']): each
    for each in answer['comparisons']
  }
  assert list(figures) == [
    ('poisson', 'pld'),
    ('fixed_size', 'rdp'),
    ('fixed_size', 'pld'),
    ('fixed_size', 'pld_one_sided'),
    ('paper', 'rdp'),
    ('paper', 'pld'),
  ]
  multipliers = {key: row['noise_multiplier'] for key, row in figures.items()}
  assert multipliers == pytest.approx(
    {
      ('poisson', 'pld'): 1.4206,
      ('fixed_size', 'rdp'): 5.1014,
      ('fixed_size', 'pld'): 3.0191,
      ('fixed_size', 'pld_one_sided'): 2.8412,
      ('paper', 'rdp'): 1.52999,
      ('paper', 'pld'): 1.4206,
    },
    rel=1e-4,
  )
  assert [key for key, row in figures.items() if not row['guarantee']] == [
    ('fixed_size', 'pld_one_sided'),
    ('paper', 'rdp'),
    ('paper', 'pld'),
  ]
  assert figures['paper', 'rdp']['actual_epsilon'] == pytest.approx(
    5.8785, rel=1e-3
  )


def test_command_does_not_import_tensorflow():
  code = (
    'import sys\n'
    'from tff_clipping.privacy import budget_main\n'
    f'budget_main.run(["x", *{ONE_ROUND!r}])\n'
    'slow = {"tensorflow", "tensorflow_federated", "matplotlib", "pandas"}\n'
    'sys.exit(str(slow & set(sys.modules)) if slow & set(sys.modules) else 0)\n'
  )
  result = subprocess.run(
    [sys.executable, '-c', code],
    env={**os.environ, 'PYTHONPATH': str(ROOT)},
    capture_output=True,
    text=True,
    check=False,
  )
  assert (result.returncode, result.stderr) == (0, '')


def test_solves_for_epsilon(capsys):
  code, out, err = run_here(capsys, *ONE_ROUND, '--format=json')
  answer = json.loads(out)
  plan = privacy.PrivacyPlan(
    num_clients=1920,
    clients_per_round=80,
    target_delta=1e-5,
    num_rounds=1,
    noise_multiplier=3.0,
  )
  assert (code, err) == (0, '')
  assert answer['solved_for'] == 'epsilon'
  assert answer['epsilon'] == plan.epsilon
  assert answer['target_epsilon'] is None
  assert answer['description'] == plan.describe()


def test_solves_for_rounds(capsys):
  code, out, _ = run_here(
    capsys,
    *PAPER,
    '--noise_multiplier=1.8',
    '--target_epsilon=1.5',
    '--format=json',
  )
  answer = json.loads(out)
  assert code == 0
  assert answer['solved_for'] == 'num_rounds'
  assert answer['num_rounds'] == privacy.compute_max_rounds(
    num_clients=1920,
    clients_per_round=80,
    target_delta=1e-5,
    noise_multiplier=1.8,
    target_epsilon=1.5,
  )
  # So little noise allows fixed cohorts some rounds by 'pld', none by 'rdp'.
  rows = {
    (each['sampling'], each['accountant']): each
    for each in answer['comparisons']
  }
  assert rows['fixed_size', 'rdp']['num_rounds'] is None
  assert 'not allow a single round' in rows['fixed_size', 'rdp']['error']
  assert rows['fixed_size', 'pld']['num_rounds'] > 1


def test_paper_sampling_shows_both_epsilons(capsys):
  code, out, _ = run_here(capsys, *ONE_ROUND, '--sampling=paper')
  plan = privacy.PrivacyPlan(
    num_clients=1920,
    clients_per_round=80,
    target_delta=1e-5,
    num_rounds=1,
    noise_multiplier=3.0,
    sampling='paper',
  )
  assert code == 0
  assert 'as the paper charges; its cohorts really give' in out
  assert f'{plan.epsilon:.5g}' in out
  assert f'{plan.actual_epsilon:.5g}' in out


def test_sampling_none_takes_all_clients(capsys):
  code, out, _ = run_here(
    capsys,
    '--num_clients=100',
    '--target_delta=1e-5',
    '--num_rounds=1',
    '--noise_multiplier=8',
    '--sampling=none',
    '--format=json',
  )
  answer = json.loads(out)
  assert code == 0
  assert answer['clients_per_round'] == 100
  assert answer['sampling_prob'] == 1


def test_model_size_adds_the_noise_norm(capsys):
  _, out, _ = run_here(
    capsys, *ONE_ROUND, '--model_size=160000', '--clipping_norm=0.5'
  )
  # 3 * 400 / 80 = 15 clipping norms; 3 * 0.5 = 1.5 on the sum.
  assert 'norm on the mean  15 c for 160000 parameters' in out
  assert 'on the sum        1.5\n' in out


def test_large_delta_is_answered_with_a_warning(capsys):
  code, out, err = run_here(
    capsys, *ONE_ROUND, '--target_delta=0.01', '--format=json'
  )
  assert code == 0
  assert err.startswith('tff-clipping-budget: warning: --target_delta should')
  assert len(err.splitlines()) == 1
  assert len(json.loads(out)['warnings']) == 1


def test_help_explains(capsys):
  for flag in ('--help', '--helpshort', '-h'):
    code, out, err = run_here(capsys, flag)
    assert (code, err) == (0, '')
    assert '--target_epsilon' in out
    assert 'Exit codes' in out


WRONG = [
  ([], '--num_clients must be given'),
  (['--num_clients=10'], '--clients_per_round must be given'),
  ([*PAPER], 'exactly two of --target_epsilon, --noise_multiplier and'),
  ([*PAPER, '--num_rounds=1'], 'must be given, found --num_rounds.'),
  ([*ONE_ROUND, '--target_epsilon=1'], 'exactly two of'),
  ([*ONE_ROUND, '--num_clients=1e3'], "must be an integer, found '1e3'"),
  ([*ONE_ROUND, '--num_clients=-4'], '--num_clients must be at least 1'),
  ([*ONE_ROUND, '--num_clients=79'], '--clients_per_round must be at most'),
  ([*ONE_ROUND, '--clients_per_round='], '--clients_per_round must be an int'),
  ([*ONE_ROUND, '--target_delta=x'], '--target_delta must be a number, found'),
  ([*ONE_ROUND, '--target_delta=0'], '--target_delta must be above 0'),
  ([*ONE_ROUND, '--target_delta=nan'], '--target_delta must be finite'),
  ([*ONE_ROUND, '--target_delta=1.5'], '--target_delta must be above 0'),
  ([*ONE_ROUND, '--noise_multiplier=0'], '--noise_multiplier must be positive'),
  ([*ONE_ROUND, '--noise_multiplier=1e-9'], '--noise_multiplier must be at le'),
  ([*ONE_ROUND, '--noise_multiplier=1e99'], '--noise_multiplier must be at mo'),
  ([*ONE_ROUND, '--num_rounds=0'], '--num_rounds must be at least 1'),
  ([*ONE_ROUND, '--num_rounds=1000000000000'], '--num_rounds must be at most'),
  ([*ONE_ROUND, '--sampling=uniform'], '--sampling must be one of poisson, tr'),
  ([*ONE_ROUND, '--sampling=none'], '--clients_per_round must equal'),
  ([*ONE_ROUND, '--accountant=gdp'], '--accountant must be one of rdp, pld'),
  ([*ONE_ROUND, '--accountant=pld_one_sided'], '--accountant must be one of'),
  ([*ONE_ROUND, '--format=xml'], '--format must be one of table, json'),
  ([*ONE_ROUND, '--model_size=0'], '--model_size must be at least 1'),
  ([*ONE_ROUND, '--clipping_norm=-1'], '--clipping_norm must be positive'),
  ([*ONE_ROUND, '--clipping_norm=inf'], '--clipping_norm must be positive'),
  ([*ONE_ROUND, '--epsilom=3'], "'epsilom'"),
  ([*ONE_ROUND, 'json'], "every argument must be a --flag, found 'json'"),
  ([*ONE_ROUND, '--flagfile=/missing'], '/missing'),
  (
    [*PAPER, '--num_rounds=1', '--target_epsilon=0'],
    '--target_epsilon must be positive',
  ),
  (
    [*PAPER, '--num_rounds=1', '--target_epsilon=1e5'],
    '--target_epsilon must be smaller',
  ),
  (
    [*PAPER, '--num_rounds=100', '--target_epsilon=1e308'],
    '--target_epsilon must be at most',
  ),
  (
    [*PAPER, '--num_rounds=10000000', '--target_epsilon=1e-6'],
    '--target_epsilon 1e-06 is out of reach',
  ),
  (
    [*PAPER, '--noise_multiplier=0.5', '--target_epsilon=0.1'],
    '--target_epsilon 0.1 does not allow a single round',
  ),
  (
    [*PAPER, '--noise_multiplier=0.3', '--target_epsilon=1.5'],
    '--target_epsilon 1.5 does not allow a single round',
  ),
  ([*ONE_ROUND, '--target_delta=1e-300'], '--target_delta must be at least 1'),
]


@pytest.mark.parametrize(('arguments', 'message'), WRONG)
def test_wrong_input_is_one_line_and_exit_code_2(capsys, arguments, message):
  code, out, err = run_here(capsys, *arguments)
  assert (code, out) == (2, '')
  assert message in err
  assert err.startswith('tff-clipping-budget: ')
  assert len(err.splitlines()) == 1
  assert '`' not in err


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


@pytest.mark.parametrize(('population', 'rounds'), EDGES)
def test_question_at_the_edge_is_answered_in_little_memory(population, rounds):
  result = run_process(*population, *rounds, '--format=json', reports_peak=True)
  assert result.returncode == 0, result.stderr
  assert result.stderr == ''
  *answer, peak = result.stdout.splitlines()
  assert int(peak) < 500_000  # KB, of which 100 MB are Python's modules.
  answer = json.loads('\n'.join(answer))
  assert answer['epsilon'] > 0
  for row in answer['comparisons']:
    assert (row['epsilon'] is None) == (row['error'] is not None)


def draw_question(seed):
  """Returns a question from the whole range that the calculator takes."""
  generator = random.Random(seed)

  def draw(low, high):
    return math.exp(generator.uniform(math.log(low), math.log(high)))

  num_clients = int(draw(1, 1e9))
  sampling = generator.choice(['poisson', 'fixed_size', 'paper', 'none'])
  cohort = num_clients if sampling == 'none' else int(draw(1, num_clients))
  values = {
    'target_epsilon': draw(1e-3, 1e3),
    'noise_multiplier': draw(0.05, 1e3),
    'num_rounds': int(draw(1, 1e7)),
  }
  values[generator.choice([*values])] = None
  return budget_report.Question(
    num_clients=num_clients,
    clients_per_round=max(cohort, 1),
    target_delta=draw(1e-15, 0.1),
    sampling=sampling,
    accountant=generator.choice(['rdp', 'pld']),
    clipping_norm=1.0,
    model_size=None,
    **values,
  )


@pytest.mark.slow
@pytest.mark.parametrize('seed', range(40))
def test_any_question_has_an_answer_or_one_line(seed):
  question = draw_question(seed)
  try:
    answer = budget_report.compute_answer(question)
  except ValueError as error:
    lines = str(error).splitlines()
  else:
    lines = ['']
  assert len(lines) == 1
  if lines != ['']:
    return
  budget_report.format_table(answer)
  budget_report.format_json(answer)
  plan = answer.plan
  if question.target_epsilon is not None:
    assert plan.epsilon <= question.target_epsilon
  # More rounds and less noise cost more.
  worse = dataclasses.replace(
    plan,
    target_epsilon=None,
    num_rounds=min(2 * plan.num_rounds, 10**7),
    noise_multiplier=max(0.9 * plan.noise_multiplier, 0.01),
  )
  assert worse.epsilon >= plan.epsilon * (1 - 1e-3)


def test_row_without_answer_says_why(capsys):
  arguments = (*PAPER, '--num_rounds=100', '--noise_multiplier=0.02')
  code, out, err = run_here(capsys, *arguments)
  assert (code, err) == (0, '')
  (row,) = [x for x in out.splitlines() if x.startswith('  poisson     pld')]
  assert row.count('–') == 3
  assert 'no answer: The accountant has no finite epsilon' in row
  code, out, _ = run_here(capsys, *arguments, '--format=json')
  assert code == 0
  (row,) = [
    x
    for x in json.loads(out)['comparisons']
    if (x['sampling'], x['accountant']) == ('poisson', 'pld')
  ]
  assert row['noise_multiplier'] is row['epsilon'] is row['num_rounds'] is None
  assert 'no finite epsilon' in row['error']


def test_wrong_input_of_a_process():
  result = run_process(*ONE_ROUND, '--target_delta=2')
  assert result.returncode == 2
  assert result.stdout == ''
  assert result.stderr == (
    'tff-clipping-budget: --target_delta must be above 0 and below 1, found '
    '2.\n'
  )


def test_reader_that_leaves_early_is_no_error():
  read, write = os.pipe()
  os.close(read)
  try:
    result = subprocess.run(
      [sys.executable, '-m', 'tff_clipping.privacy.budget_main', *ONE_ROUND],
      stdout=write,
      stderr=subprocess.PIPE,
      text=True,
      env={**os.environ, 'PYTHONPATH': str(ROOT)},
      check=False,
    )
  finally:
    os.close(write)
  assert (result.returncode, result.stderr) == (0, '')


def test_plot_is_drawn(capsys, tmp_path):
  pytest.importorskip('matplotlib')
  path = tmp_path / 'budget.svg'
  code, _, err = run_here(
    capsys, *ONE_ROUND, '--accountant=pld', f'--plot={path}'
  )
  assert (code, err) == (0, '')
  drawing = path.read_text()
  for text in ('clients per round', 'rounds', 'Poisson, add or remove one'):
    assert text in drawing


@pytest.mark.parametrize(
  ('name', 'message'),
  [
    ('missing/budget.png', '--plot must be a file that can be written'),
    ('budget.xyz', '--plot must end in one of .png, .pdf, .svg'),
  ],
)
def test_plot_that_cannot_be_drawn(capsys, tmp_path, name, message):
  pytest.importorskip('matplotlib')
  code, out, err = run_here(capsys, *ONE_ROUND, f'--plot={tmp_path / name}')
  assert (code, out) == (2, '')
  assert message in err
  assert len(err.splitlines()) == 1


def test_plot_without_matplotlib_says_what_to_install(capsys, monkeypatch):
  monkeypatch.setitem(sys.modules, 'matplotlib', None)
  monkeypatch.delitem(
    sys.modules, 'tff_clipping.privacy.budget_plot', raising=False
  )
  monkeypatch.delattr(privacy, 'budget_plot', raising=False)
  code, out, err = run_here(capsys, *ONE_ROUND, '--plot=x.png')
  assert (code, out) == (2, '')
  assert "--plot needs matplotlib: pip install 'tff-clipping[plot]'" in err
