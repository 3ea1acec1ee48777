"""Tests of what is found before a run begins."""

import pytest
from absl import flags

from tasks import train
from tasks.running import run_request
from tests.tasks import train_command

_FED_AVG = '--flagfile=tasks/flagfiles/demo/fed_avg.flags'
_DP_FED_AVG = '--flagfile=tasks/flagfiles/demo/dp_fed_avg.flags'

# Runs tasks.train, and fails if TensorFlow was imported.
_TRAIN = """
import sys
from tasks import train
from tasks.settings import command_line
try:
  command_line.run(train.main)
finally:
  assert 'tensorflow' not in sys.modules
"""


@pytest.mark.parametrize(
  ('arguments', 'message'),
  [
    (['--task=x'], '--task must be one of'),
    (['--test_examples=10001'], '--test_examples must be between'),
    *(
      pytest.param(*each, marks=pytest.mark.slow)
      for each in (
        (['--runtime=x'], '--runtime must be one of'),
        (
          ['--loss=huber'],
          '--loss must be one for classes, which `y` of the data has',
        ),
        (
          ['--task=mnist', '--data_dir=/nowhere'],
          '--data_dir must be a folder',
        ),
        (
          ['--output_dir=/proc/run'],
          '--output_dir must be a folder that can be written, found '
          "'/proc/run' (no folder can be made there)",
        ),
      )
    ),
  ],
)
def test_wrong_flags_are_refused_without_tensorflow(
  tmp_path, arguments, message
):
  output_dir = f'--output_dir={tmp_path / "runs" / "run"}'
  result = train_command.run('-c', _TRAIN, _FED_AVG, output_dir, *arguments)
  assert result.code == 2, result.errors
  (line,) = result.errors.splitlines()
  assert line.startswith('Error: ')
  assert message in line
  assert not (tmp_path / 'runs').exists()


def test_who_asks_sees_where_an_error_comes_from(tmp_path):
  output_dir = f'--output_dir={tmp_path / "run"}'
  wrong = '--task=x', '--verbosity=1'
  result = train_command.run('-c', _TRAIN, _FED_AVG, output_dir, *wrong)
  assert result.code == 2
  assert 'Traceback' in result.errors
  assert result.errors.splitlines()[-1].startswith('Error: --task must be')


@pytest.fixture(autouse=True)
def parsed_flags():
  assert train  # Defines the flags.
  flags.FLAGS.mark_as_parsed()


def _settings(*arguments):
  return run_request.parse(arguments).config()


@pytest.mark.parametrize(
  ('arguments', 'message'),
  [
    (['--num_clients=1e12'], '`num_clients` must be at most 10000000'),
    (['--num_rounds=1e9'], '`num_rounds` must be at most 10000000'),
    (['--local_steps=1e15'], '`local_steps` must be at most 1000000000'),
    (
      ['--update_rounds=0,60'],
      r'`update_rounds` must be below `num_rounds` \(60',
    ),
    (['--update_rounds=1,1'], '`update_rounds` must be different rounds'),
    (['--noise_seed=3'], '`noise_seed` must not be given for fed_avg'),
    (['--dirichlet_alpha=1e-320'], '`dirichlet_alpha` must be from 1e-06'),
    ([f'--model_seed={2**62}'], '`model_seed` must be from 0 to'),
    ([f'--sampling_seed={2**128}'], '`sampling_seed` must be at most'),
    (['--max_client_seconds=5'], '`max_client_seconds` must be given with'),
    (
      ['--runtime=ray', '--max_client_seconds=0'],
      '`max_client_seconds` must be positive',
    ),
  ],
)
def test_values_that_cannot_be_used_are_refused(arguments, message):
  _settings(_FED_AVG, '--output_dir=run')
  with pytest.raises(ValueError, match=message):
    _settings(_FED_AVG, '--output_dir=run', *arguments)


@pytest.mark.parametrize(
  ('text', 'number'),
  [('1e3', 1000), ('1e23', 10**23), (str(2**128 - 1), 2**128 - 1)],
)
def test_whole_numbers_are_taken_as_they_are_written(text, number):
  arguments = _FED_AVG, '--output_dir=run'
  found = _settings(*arguments, f'--sampling_seed={text}').sampling_seed
  assert found == number


def test_a_number_that_no_setting_has_is_refused():
  with pytest.raises(flags.Error, match='1e50'):
    _settings(_FED_AVG, '--output_dir=run', '--num_rounds=1e50')


def test_a_row_leaves_out_rounds_beyond_those_that_are_given():
  row = '--row=mlp_embedded_digits', '--scale=demo', '--algorithm=fed_avg'
  assert _settings(*row, '--num_rounds=3').update_rounds == (0, 2)
  with pytest.raises(ValueError, match='`update_rounds` must be below'):
    _settings(*row, '--num_rounds=3', '--update_rounds=3')


@pytest.mark.parametrize(
  ('line', 'message'),
  [
    pytest.param(
      '--update_rounds=70',
      'line 3: `update_rounds` must be below',
      marks=pytest.mark.slow,
    ),
    pytest.param('--target_epsilon=2,1e-7', 'line 3', marks=pytest.mark.slow),
    ('--test_examples=100,10001', 'line 3: `test_examples` must be between'),
  ],
)
def test_a_sweep_refuses_a_wrong_cell_before_its_first_run(
  tmp_path, line, message
):
  grid = tmp_path / 'grid.txt'
  grid.write_text(f'{_DP_FED_AVG}\n--clipping_norm=0.2\n{line}\n')
  output_dir = tmp_path / 'runs'
  result = train_command.run(
    '-m', 'tasks.sweep', f'--grid={grid}', f'--output_dir={output_dir}'
  )
  assert result.code == 2, result.errors
  assert message.replace('`', '--', 1).replace('`', '') in result.errors
  assert not output_dir.exists()
