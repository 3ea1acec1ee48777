"""Tests of grid files."""

import pytest
from absl import flags
from absl.testing import flagsaver

from tasks.running import grid, run_queue

_BASE = """
--task=embedded_digits
--partition=label_skew
--num_clients=40
--model=mlp
--clients_per_round=8
--num_rounds=2
--local_steps=3
--batch_size=5
"""


@pytest.fixture(autouse=True)
def parsed_flags():
  flags.FLAGS.mark_as_parsed()


@pytest.fixture
def base(tmp_path):
  path = tmp_path / 'base.flags'
  path.write_text(_BASE)
  return path


def _read(tmp_path, *lines, **kwargs):
  path = tmp_path / 'grid'
  path.write_text('\n'.join(lines) + '\n')
  return grid.read_grid(str(path), tmp_path / 'runs', **kwargs)


def _config(run):
  return run.request.config()


def _names(runs):
  return [run.folder.path.name for run in runs]


def test_every_combination_is_a_run_in_a_fixed_order(tmp_path, base):
  runs = _read(
    tmp_path,
    '# Two by two.',
    f'--flagfile={base}',
    '',
    '--algorithm=fed_avg',
    '--client_learning_rate=0.1, 0.3',
    '--seed=0,1',
    '--update_rounds=0,1',
  )
  assert _names(runs) == [
    'client_learning_rate=0.1_seed=0',
    'client_learning_rate=0.1_seed=1',
    'client_learning_rate=0.3_seed=0',
    'client_learning_rate=0.3_seed=1',
  ]
  configs = [_config(run) for run in runs]
  assert [c.client_learning_rate for c in configs] == [0.1, 0.1, 0.3, 0.3]
  assert [c.seed for c in configs] == [0, 1, 0, 1]
  # A list is one value.
  assert {c.update_rounds for c in configs} == {(0, 1)}
  assert runs[1].values == {'client_learning_rate': '0.1', 'seed': '1'}
  assert '--seed=1' in runs[1].flags


def test_a_list_may_be_empty(tmp_path, base):
  # The flag file may have rounds that a shorter run has not.
  (run,) = _read(
    tmp_path,
    f'--flagfile={base}',
    '--algorithm=fed_avg',
    '--client_learning_rate=0.1',
    '--update_rounds=',
  )
  assert _config(run).update_rounds == ()


def test_flag_files_are_values_named_by_their_stems(tmp_path, base):
  for algorithm, more in (('fed_avg', ''), ('ce_fed_avg', '--clipping_norm=2')):
    (tmp_path / f'{algorithm}.flags').write_text(
      f'--flagfile={base}\n--algorithm={algorithm}\n{more}\n'
    )
  runs = _read(
    tmp_path,
    f'--flagfile={tmp_path}/fed_avg.flags,{tmp_path}/ce_fed_avg.flags',
    '--client_learning_rate=0.1',
  )
  assert _names(runs) == [
    'flagfile=fed_avg',
    'flagfile=ce_fed_avg',
  ]
  # Nothing of one run is left in the next.
  assert [_config(run).clipping_norm for run in runs] == [None, 2.0]


def test_flags_of_the_command_line_come_first(tmp_path, base):
  (run,) = _read(
    tmp_path,
    '--algorithm=fed_avg',
    '--client_learning_rate=0.1',
    common_flags=[f'--flagfile={base}', '--seed=5'],
  )
  assert _names([run]) == ['run']
  assert _config(run).seed == 5
  assert _config(run).client_learning_rate == 0.1


def test_a_flag_of_the_command_line_that_no_run_keeps_is_refused(
  tmp_path, base
):
  lines = f'--flagfile={base}', '--algorithm=fed_avg'
  rates = '--client_learning_rate=0.1,0.2'
  with pytest.raises(grid.GridError, match='--num_rounds=9 would have no effe'):
    _read(tmp_path, *lines, rates, typed_flags=['--num_rounds=9'])
  # Here one run has it.
  typed = ['--client_learning_rate=0.2']
  assert len(_read(tmp_path, *lines, rates, typed_flags=typed)) == 2


def test_flags_of_a_flag_file_are_not_typed(base):
  argv = ['tasks.sweep', '--num_rounds=3', f'--flagfile={base}']
  with flagsaver.flagsaver():
    flags.FLAGS(argv)
    assert '--local_steps=3' in run_queue.given_flags()
    typed = run_queue.typed_flags(argv)
  assert typed == ['--num_rounds=2']  # The flag file's came last.


def test_reading_leaves_the_flags_as_they_were(tmp_path, base):
  before = flags.FLAGS.flag_values_dict()
  _read(
    tmp_path,
    f'--flagfile={base}',
    '--algorithm=fed_avg',
    '--client_learning_rate=0.1',
  )
  assert flags.FLAGS.flag_values_dict() == before


@pytest.mark.parametrize(
  ('line', 'message'),
  [
    ('seed=1', r"line 3: must be --flag=value,value,..., found 'seed=1'"),
    ('--sed=1', 'line 3: --sed must be a flag of tasks.train'),
    ('--seed', 'line 3: --seed must be a switch or have a value'),
    ('--seed=', 'line 3: --seed must have a value'),
    ('--seed=1,,2', 'line 3: --seed must have a value'),
    ('--seed=1,1', 'line 3: --seed must have different values, found 1 twice'),
    ('--seed=1,b', "line 3: flag --seed=b: 'b' is not a whole number"),
    ('--output_dir=x', 'line 3: --output_dir must be'),
    ('--flagfile=/nowhere', "line 3: --flagfile must be a file, found '/nowh"),
    ('--algorithm=ce_fed_avg', 'line 3: --algorithm must be on one line'),
    ('--local_steps=3,0', 'line 3: `local_steps` must be at least 1, found 0'),
    ('--clients_per_round=8,41', 'line 3: `clients_per_round` must be at most'),
    ('--threads_per_worker=1,2', 'line 3: `threads_per_worker` must be given'),
    (
      '--server_optimizer=sgd,lion',
      'line 3: `server_optimizer` must be one of',
    ),
    ('--data_dir=/nowhere', '`data_dir`'),
  ],
)
def test_a_bad_line_is_named(tmp_path, base, line, message):
  with pytest.raises(grid.GridError, match=message):
    _read(
      tmp_path,
      f'--flagfile={base}',
      '--algorithm=fed_avg',
      line,
      '--client_learning_rate=0.1',
    )


def test_data_that_cannot_be_split_so_are_refused(tmp_path, base):
  with pytest.raises(grid.GridError, match='line 2: .*`num_clients`'):
    _read(
      tmp_path,
      f'--flagfile={base}',
      '--num_clients=40,5000',
      '--algorithm=fed_avg',
      '--client_learning_rate=0.1',
    )


def test_rows_of_the_table_are_swept_as_well(tmp_path):
  runs = _read(
    tmp_path,
    '--row=mlp_embedded_digits',
    '--scale=demo',
    '--algorithm=fed_avg',
    '--client_learning_rate=0.1,0.3',
  )
  assert [_config(run).client_learning_rate for run in runs] == [0.1, 0.3]
  assert {_config(run).num_clients for run in runs} == {500}


def test_what_is_missing_is_named(tmp_path, base):
  with pytest.raises(grid.GridError, match='`algorithm` must be given'):
    _read(tmp_path, f'--flagfile={base}', '--client_learning_rate=0.1')


def test_an_empty_grid_and_no_grid_are_refused(tmp_path):
  with pytest.raises(grid.GridError, match='`grid` must hold flags'):
    _read(tmp_path, '# nothing')
  with pytest.raises(grid.GridError, match='`grid` must be a file'):
    grid.read_grid(str(tmp_path / 'nowhere'), tmp_path)


def test_flags_of_the_data_are_flags_of_a_grid():
  assert {'data_dir', 'cache_dir', 'seed'} <= set(run_queue.flags_of_runs())
