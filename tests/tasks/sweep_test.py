"""Tests of sweeps: the grid, and runs one after the other."""

import signal

import pandas as pd
import pytest

from tasks import config
from tasks.running.folder import RunFolder
from tests import processes
from tests.analysis import run_folders
from tests.privacy.ledgers import charge
from tests.tasks import train_command
from tests.tasks.small_runs import DP_FED_AVG, FED_AVG, run_small

_GRID = """
# A comment.
--task=embedded_digits
--partition=label_skew
--num_clients=40
--examples_per_client=10
--model=mlp
--algorithm=fed_avg
--clients_per_round=8
--num_rounds=1,150,2
--local_steps=2
--batch_size=5
--client_learning_rate=0.1
--update_rounds=0
"""


def _start(grid, output_dir, cache_dir=None):
  flags = dict(grid=grid, output_dir=output_dir, cache_dir=cache_dir)
  return train_command.Fork(flags, 'tasks.sweep')


def _sweep(*arguments):
  return _start(*arguments).communicate()


@pytest.fixture
def grid(tmp_path):
  path = tmp_path / 'grid'
  path.write_text(_GRID)
  return path


@pytest.mark.parametrize(
  ('line', 'words'),
  [
    ('--seed=0,0', 'different values'),
    ('--num_rounds=3', 'again below the values to try, found --num_rounds.'),
    ('--local_steps=0', '--local_steps must be at least 1, found 0'),
    ('--clipping_norm=1', 'must be given for an algorithm that clips only'),
  ],
)
def test_a_bad_grid_is_refused_before_any_run(tmp_path, grid, line, words):
  grid.write_text(f'{_GRID}{line}\n')
  code, output, errors = _sweep(grid, tmp_path / 'runs')
  assert code == 2
  assert output == ''
  assert len(errors.splitlines()) == 1
  assert words in errors
  assert not (tmp_path / 'runs').exists()


def test_the_runs_of_an_earlier_grid_are_reported_and_count(tmp_path):
  runs = tmp_path / 'runs'
  for name, local_steps in (('earlier', 1), ('run', 2)):
    settings = config.Config(**DP_FED_AVG | dict(local_steps=local_steps))
    path = run_folders.write_run(
      runs / name,
      privacy=run_folders.PRIVACY,
      **settings.to_json(),
    )
    run = RunFolder(path)
    run.result.write_text('{}')
    charge(run.ledger, [1, 2])
  grid = tmp_path / 'grid'
  flags = DP_FED_AVG | dict(local_steps=2)
  grid.write_text('\n'.join(f'--{name}={x}' for name, x in flags.items()))
  code, output, errors = _sweep(grid, runs)
  assert (code, errors) == (0, '')
  assert '[1/1] run: done before' in output
  for name in ('DP-FedAvg, Q = 1', 'DP-FedAvg, Q = 2'):
    assert name in output
  assert 'the 4 releases of 2 runs' in output


def test_a_flag_of_the_grid_is_not_taken_from_the_command_line_too(
  tmp_path, grid
):
  (tmp_path / 'more').write_text('--nosimulation_diagnostics\n')
  grid.write_text(f'{_GRID}--flagfile={tmp_path}/more\n')
  given = dict(
    **dict(grid=grid, output_dir=tmp_path / 'runs'),
    **dict(num_rounds=3, simulation_diagnostics=True, seed=1),
  )
  code, output, errors = train_command.Fork(given, 'tasks.sweep').communicate()
  assert (code, output) == (2, '')
  assert errors == (
    'Error: --grid must not have flags that the command line has too, found '
    '--num_rounds, --simulation_diagnostics.\n'
  )
  assert not (tmp_path / 'runs').exists()


@pytest.mark.slow
def test_an_interrupted_sweep_is_continued(tmp_path, grid):
  runs, cache = tmp_path / 'runs', tmp_path / 'cache'
  first, second, third = (runs / f'num_rounds={t}' for t in (1, 150, 2))
  run_small(
    FED_AVG | dict(num_rounds=1, local_steps=2, update_rounds=(0,)),
    *(first, cache),
  )
  before = (first / 'metrics.csv').stat().st_mtime_ns
  with processes.ended_at_last(_start(grid, runs, cache)) as process:
    processes.wait_for(second.exists, process)
    # Only one at a time.
    code, _, errors = _sweep(grid, runs, cache)
    assert code == 2
    assert 'one program at a time' in errors
    metrics = second / 'metrics.csv'
    processes.wait_for(lambda: processes.num_lines(metrics) > 4, process)
    process.send_signal(signal.SIGINT)
    code, output, errors = process.communicate()
  assert code == 130, errors
  assert 'the same command continues' in output
  assert 'Traceback' not in errors
  assert '[1/3] num_rounds=1: done before' in output
  assert not RunFolder(second).result.exists()
  assert not third.exists()
  code, output, errors = _sweep(grid, runs, cache)
  assert code == 0, errors
  assert (first / 'metrics.csv').stat().st_mtime_ns == before
  rounds = pd.read_csv(second / 'metrics.csv')['round_num']
  assert rounds.tolist() == list(range(151))
  # What the report says in a terminal, and where it is.
  assert f'Report: {runs / "report" / "report.md"}' in output
  assert (runs / 'report' / 'report.html').exists()

  # Another grid over the same folders is refused with the difference.
  grid.write_text(_GRID.replace('local_steps=2', 'local_steps=4'))
  code, _, errors = _sweep(grid, runs, cache)
  assert code == 2
  assert 'local_steps was 2 and is 4' in errors
