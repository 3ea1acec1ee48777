"""Tests of sweeps, as a user runs them."""

import os
import signal

import pandas as pd
import pytest

from tasks.running import sweep_table
from tasks.running.run_folder import RunFolder
from tests import processes
from tests.tasks import train_command
from tff_clipping import privacy

_GRID = """
--task=embedded_digits
--partition=label_skew
--num_clients=40
--examples_per_client=10
--model=mlp
--algorithm=fed_avg
--clients_per_round=8
--num_rounds=2,150,3
--local_steps=2
--batch_size=5
--client_learning_rate=0.1
"""


def _start(grid, output_dir, cache_dir=None):
  flags = dict(grid=grid, output_dir=output_dir, cache_dir=cache_dir)
  environment = {**os.environ, 'OMP_NUM_THREADS': '1'}
  return train_command.start(flags, 'tasks.sweep', env=environment)


def _sweep(*arguments):
  return train_command.finish(_start(*arguments))


def _plan(sampling):
  return privacy.PrivacyPlan(
    num_clients=100,
    clients_per_round=10,
    num_rounds=1,
    target_delta=1e-3,
    noise_multiplier=1.0,
    sampling=sampling,
  )


def _write_run(folder, *rows, plan=None, caveats=()):
  folder.mkdir()
  columns = 'round_num,round_seconds,test_accuracy,test_loss'
  (folder / 'metrics.csv').write_text('\n'.join([columns, *rows]) + '\n')
  if plan is not None:
    path = folder / 'ledger.jsonl'
    with privacy.PrivacyLedger(path, plan, caveats=caveats) as ledger:
      ledger.charge(1, '0' * 64)
      ledger.add_caveats(caveats)


def test_the_table_holds_what_the_runs_measured(tmp_path):
  _write_run(
    tmp_path / 'a',
    '0,nan,0.1,2.3',
    '1,3.0,0.625,0.5',
    '2,1.0,nan,nan',
    '3,2.0,0.5,0.75',
  )
  _write_run(
    tmp_path / 'b',
    '0,nan,0.1,2.3',
    plan=_plan('paper'),
  )
  rows = [
    sweep_table.read_row(RunFolder(tmp_path / name), {'seed': name}, status)
    for name, status in (('a', 'finished'), ('b', 'diverged'), ('c', None))
  ]
  text = sweep_table.write_tables(rows, tmp_path)
  assert text == (tmp_path / 'sweep.md').read_text()
  assert text.splitlines()[0].split(' | ')[0] == '| seed'
  table = pd.read_csv(tmp_path / 'sweep.csv')
  assert table['seed'].tolist() == ['a', 'b', 'c']
  assert table['status'].tolist() == ['finished', 'diverged', 'not started']
  assert table['rounds'].tolist()[:2] == [3, 0]
  assert table['final_accuracy'].tolist()[:2] == [0.5, 0.1]
  assert table['best_accuracy'].tolist()[:2] == [0.625, 0.1]
  assert table['final_loss'].tolist()[:2] == [0.75, 2.3]
  found = [table[name].tolist()[1] for name in ('epsilon', 'actual_epsilon')]
  expected = _plan('paper').epsilon_after(1), _plan('paper').actual_epsilon
  for rounded, cost in zip(found, expected, strict=True):
    assert cost <= rounded <= 1.001 * cost
  assert table['epsilon_holds'].tolist()[1] == 'no'
  assert table['seconds_per_round'].tolist()[0] == 2.0
  assert table.iloc[2, 2:].isna().all()


@pytest.mark.parametrize(('goal', 'best'), [('min', 0.25), ('max', 0.75)])
def test_the_table_calls_what_decides_by_its_name(tmp_path, goal, best):
  folder = RunFolder(tmp_path)
  folder.metrics.write_text(
    'round_num,round_seconds,test_huber,test_loss\n'
    '0,nan,0.75,2.0\n1,1.0,0.25,1.0\n2,1.0,nan,nan\n3,1.0,0.5,0.5\n'
  )
  folder.write_json(
    folder.config, dict(experiment={}, metric='huber', metric_goal=goal)
  )
  row = sweep_table.read_row(folder, {}, 'finished')
  assert (row['final_huber'], row['best_huber']) == (0.5, best)
  assert row['final_loss'] == 0.5
  assert 'final_accuracy' not in row


@pytest.mark.parametrize('caveats', [(), ('the noise is known',)])
def test_what_private_runs_cost_together_is_said(tmp_path, caveats):
  names = 'abc'
  for name in names:
    _write_run(tmp_path / name, plan=_plan('poisson'), caveats=caveats)
  folders = [RunFolder(tmp_path / name) for name in (*names, 'not there')]
  rows = [sweep_table.read_row(folders[0], {}, 'finished')]
  assert rows[0]['epsilon_holds'] == ('no' if caveats else 'yes')
  below = sweep_table.describe_spending(folders)
  if caveats:
    assert below == ''
    return
  assert below.startswith('Together, the 3 releases of 3 runs satisfy')
  text = sweep_table.write_tables(rows, tmp_path, below=below)
  assert text.endswith(f'\n\n{below}')
  assert sweep_table.describe_spending(folders[:1]) == ''


def test_a_run_without_a_guarantee_is_not_left_out_of_the_sum(tmp_path):
  for name, caveats in (('a', ()), ('b', ('the noise is known',))):
    _write_run(tmp_path / name, plan=_plan('poisson'), caveats=caveats)
  folders = [RunFolder(tmp_path / name) for name in 'ab']
  below = sweep_table.describe_spending(folders)
  assert below.startswith('No guarantee as it was run: the noise is known. ')
  assert 'Together, the 2 releases of 2 runs' in below
  folders[0].ledger.write_text('damaged\n')
  below = sweep_table.describe_spending(folders)
  assert below.startswith('What the private runs cost together is not known: ')


def test_columns_that_no_run_has_are_left_out(tmp_path):
  _write_run(tmp_path / 'a', '0,nan,0.1,2.3')
  row = sweep_table.read_row(RunFolder(tmp_path / 'a'), {'seed': '1'}, 'x')
  assert 'epsilon' not in sweep_table.write_tables([row], tmp_path)


def test_a_bad_grid_is_refused_before_any_run(tmp_path):
  grid = tmp_path / 'grid'
  grid.write_text(_GRID + '--seed=0,x\n')
  code, output, errors = _sweep(grid, tmp_path / 'runs')
  assert code == 2
  assert output == ''
  assert len(errors.splitlines()) == 1
  assert "line 13: flag --seed=x: 'x' is not a whole number" in errors
  assert not (tmp_path / 'runs').exists()


def test_the_settings_of_all_runs_are_printed_without_training(tmp_path):
  grid = tmp_path / 'grid'
  grid.write_text(_GRID)
  flags = dict(grid=grid, output_dir=tmp_path / 'runs', print_settings=True)
  ended = train_command.finish(train_command.start(flags, 'tasks.sweep'))
  assert ended.code == 0, ended.errors
  lines = [' '.join(line.split()) for line in ended.output.splitlines()]
  for num_rounds in (2, 150, 3):
    assert f'num_rounds {num_rounds} given' in lines
  assert not (tmp_path / 'runs').exists()


@pytest.mark.slow
def test_printing_settings_is_no_setting_of_a_grid(tmp_path):
  grid = tmp_path / 'grid'
  grid.write_text(_GRID + '--print_settings\n')
  code, _, errors = _sweep(grid, tmp_path / 'runs')
  assert code == 2
  assert 'print_settings' in errors
  assert not (tmp_path / 'runs').exists()


@pytest.mark.slow
def test_an_interrupted_sweep_is_continued(tmp_path):
  grid = tmp_path / 'grid'
  grid.write_text(_GRID)
  runs = tmp_path / 'runs'
  cache = tmp_path / 'cache'
  first, second, third = (runs / f'num_rounds={t}' for t in (2, 150, 3))
  with processes.ended_at_last(_start(grid, runs, cache)) as process:
    processes.wait_for(first.exists, process)
    # Only one at a time.
    code, _, errors = _sweep(grid, runs, cache)
    assert code == 2
    assert 'one program at a time' in errors
    metrics = second / 'metrics.csv'
    processes.wait_for(lambda: processes.num_lines(metrics) > 4, process)
    process.send_signal(signal.SIGINT)
    code, output, errors = train_command.finish(process)
  assert code == 130, errors
  assert 'the same command continues' in output
  assert 'Traceback' not in errors
  table = pd.read_csv(runs / 'sweep.csv')
  assert table['status'].tolist() == ['finished', 'not finished', 'not started']
  assert not third.exists()
  done = len(pd.read_csv(second / 'metrics.csv'))
  before = (first / 'metrics.csv').stat().st_mtime_ns

  code, output, errors = _sweep(grid, runs, cache)
  assert code == 0, errors
  assert '[1/3] num_rounds=2: done before' in output
  assert (first / 'metrics.csv').stat().st_mtime_ns == before
  table = pd.read_csv(runs / 'sweep.csv')
  assert table['status'].tolist() == ['finished'] * 3
  assert table['rounds'].tolist() == [2, 150, 3]
  assert done > 3
  rounds = pd.read_csv(second / 'metrics.csv')['round_num']
  assert rounds.tolist() == list(range(151))
  assert (runs / 'sweep.md').read_text() in output

  # Another grid over the same folders is refused with the difference.
  grid.write_text(_GRID.replace('local_steps=2', 'local_steps=4'))
  code, _, errors = _sweep(grid, runs, cache)
  assert code == 2
  assert 'local_steps was 2 and is 4' in errors
