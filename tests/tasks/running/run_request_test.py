"""Tests of the flags that describe a run."""

import dataclasses
import json
import pathlib
import re

import pytest
from absl import flags

from tasks import train
from tasks.algorithms.experiment import ExperimentConfig
from tasks.data.datasets import registry
from tasks.experiments import experiment_table
from tasks.experiments.named_runs import get_run
from tasks.running import run_privacy, run_request
from tasks.running.execution import Execution
from tasks.settings import command_line
from tests.tasks import train_command
from tests.tasks.small_runs import FED_AVG

_ROOT = pathlib.Path(__file__).parents[3]
_SEARCHES = pathlib.Path('tasks/flagfiles/search')
_ROW = ['--row=table3_mlp_mnist_noniid', '--scale=paper']


@pytest.fixture(autouse=True)
def parsed_flags():
  assert train  # Defines the flags.
  flags.FLAGS.mark_as_parsed()


def _config(*arguments):
  return run_request.parse(arguments).config()


def _text(*arguments):
  return run_request.parse(arguments).describe()


def _write_fed_avg(folder):
  folder.mkdir()
  (folder / 'config.json').write_text(
    json.dumps(dict(algorithm='fed_avg', experiment=dict(num_rounds=2)))
  )
  (folder / 'metrics.csv').write_text(
    'round_num,update_norm_mean,num_clients\n0,nan,nan\n1,1.0,1\n2,4.0,2\n'
  )


def test_a_row_gives_all_settings():
  settings = get_run('table3_mlp_mnist_noniid', 'paper', 'fed_avg').settings
  assert _config(*_ROW, '--algorithm=fed_avg') == ExperimentConfig(**settings)


def test_any_flag_overrides_the_row():
  config = _config(
    *_ROW, '--algorithm=fed_avg', '--num_rounds=3', '--update_rounds=1,2'
  )
  assert config.num_rounds == 3
  assert config.update_rounds == (1, 2)
  assert config.local_steps == 32


def test_a_seed_of_a_row_is_that_of_all_three():
  config = _config(*_ROW, '--algorithm=fed_avg', '--seed=4', '--model_seed=1')
  assert (config.seed, config.model_seed, config.sampling_seed) == (4, 1, 4)


def test_the_threshold_of_a_row_comes_from_its_own_run_of_fed_avg(tmp_path):
  _write_fed_avg(tmp_path / 'mnist-label_skew_125-mlp-paper-fed_avg-seed0')
  arguments = [*_ROW, '--algorithm=ce_fed_avg', f'--output_dir={tmp_path}/run']
  # Half of (1 + 2 * 4) / 3.
  assert _config(*arguments).clipping_norm == 1.5
  assert _config(*arguments, '--clipping_norm=7').clipping_norm == 7
  # Of other settings, it is a run of these settings.
  with pytest.raises(ValueError, match='fed_avg-seed0-num_rounds=9'):
    _config(*arguments, '--num_rounds=9')


def test_noise_does_not_change_the_run_that_gives_the_threshold(tmp_path):
  _write_fed_avg(tmp_path / 'mnist-label_skew_125-mlp-paper-fed_avg-seed0')
  config = _config(
    *_ROW,
    '--algorithm=dp_fed_avg',
    '--mechanism=blt',
    '--sampling=min_separation',
    '--min_separation=24',
    f'--output_dir={tmp_path}/run',
  )
  assert config.clipping_norm == 1.5


def test_a_given_noise_takes_the_place_of_the_rows_budget():
  config = _config(
    *_ROW,
    '--algorithm=dp_fed_avg',
    '--clipping_norm=1',
    '--noise_multiplier=2',
  )
  assert (config.noise_multiplier, config.target_epsilon) == (2, None)


def test_folder_of_a_row_is_called_what_runs():
  request = run_request.parse([*_ROW, '--algorithm=fed_avg', '--batch_size=4'])
  assert str(request.folder) == (
    'runs/mnist-label_skew_125-mlp-paper-fed_avg-seed0-batch_size=4'
  )


def test_settings_are_shown_with_their_sources_before_anything_has_run():
  text = _text(*_ROW, '--algorithm=dp_fed_avg', '--num_rounds=7')
  lines = {
    line.split()[0]: ' '.join(line.split()[1:])
    for line in text.splitlines()
    if line
  }
  assert 'in place of table3_mlp_emnist_noniid' in lines['row:']
  assert lines['clients_per_round'] == '80 Sec. 4'
  assert lines['num_rounds'] == '7 given'
  assert lines['shards_per_client'] == '2 default'
  assert lines['target_epsilon'] == '1.5 Table 3'
  assert 'mlp-paper-fed_avg-seed0-num_rounds=7' in lines['clipping_norm']
  assert set(ExperimentConfig.__dataclass_fields__) <= set(lines)


@pytest.mark.parametrize('algorithm', ['fed_avg', 'ce_fed_avg', 'dp_fed_avg'])
def test_the_demo_is_the_smallest_row(algorithm, monkeypatch):
  # Flag files name each other from the root of the checkout.
  monkeypatch.chdir(_ROOT)
  clip = [] if algorithm == 'fed_avg' else ['--clipping_norm=1']
  demo = _config(
    f'--flagfile=tasks/flagfiles/demo/{algorithm}.flags',
    '--output_dir=x',
    *clip,
  )
  row = _config(
    '--row=mlp_embedded_digits',
    '--scale=demo',
    f'--algorithm={algorithm}',
    *clip,
  )
  demo = dataclasses.replace(
    demo,
    # The demo's figures are of exact updates, and its cohorts are drawn.
    simulation_diagnostics=False,
    sampling_seed=0,
  )
  assert demo == row


def test_nothing_takes_the_guarantee_from_the_last_run_of_the_demo(
  monkeypatch, tmp_path
):
  monkeypatch.chdir(_ROOT)
  asked = _config(
    '--flagfile=tasks/flagfiles/demo/private.flags', '--output_dir=x'
  )
  task = registry.create_task(
    asked.task, asked.partition_config(), cache_dir=tmp_path
  )
  assert run_privacy.find_caveats(asked, task, None) == ()
  assert asked.target_delta < 1 / task.num_clients
  # Nor do its rates come from a search on the clients.
  others = _config(
    '--flagfile=tasks/flagfiles/demo/fed_avg.flags', '--output_dir=x'
  )
  assert asked.server_learning_rate == 1.0 != others.server_learning_rate


@pytest.mark.parametrize(
  'name', sorted(path.name for path in (_ROOT / _SEARCHES).glob('*.grid'))
)
def test_a_search_is_of_fed_avg_alone_and_of_its_rate_alone(name):
  lines = (_ROOT / _SEARCHES / name).read_text().splitlines()
  flags_of_search = [line for line in lines if not line.startswith('#')]
  swept = [line for line in flags_of_search[:-1] if ',' in line]
  assert not swept
  rate, _, values = flags_of_search[-1].partition('=')
  assert rate == '--client_learning_rate'
  configs = [
    _config(*flags_of_search[:-1], f'{rate}={value}')
    for value in values.split(',')
  ]
  assert len(configs) > 1
  # The rate that the table has is among those that were tried.
  model, _, task = name.removesuffix('.grid').rpartition('_')
  assert {(c.algorithm, c.model, c.task) for c in configs} == {
    ('fed_avg', model, task)
  }
  tried = [config.client_learning_rate for config in configs]
  assert experiment_table.RATES[model][task] in tried


@pytest.mark.parametrize(
  ('arguments', 'message'),
  [
    (['--scale=paper'], '`scale` must be given with `row`'),
    (['--row=x'], '`scale`, `algorithm` must be given with `row`'),
    (_ROW, '`algorithm` must be given with `row`'),
    (
      ['--algorithm=fed_avg', '--num_rounds=3', '--model=mlp'],
      '^`task`, `partition`, `clients_per_round`, `local_steps`, `batch_size`, '
      '`client_learning_rate`, `output_dir` must be given',
    ),
  ],
)
def test_all_that_is_missing_is_named(arguments, message):
  with pytest.raises(ValueError, match=message):
    _config(*arguments)


@pytest.mark.parametrize(
  ('changes', 'words'),
  [
    (dict(clients_per_round=41), ['--clients_per_round', '40', '41']),
    (dict(num_rounds=0), ['--num_rounds', 'at least 1', '0']),
    (dict(client_learning_rate='nan'), ['--client_learning_rate', 'nan']),
    (dict(algorithm='sgd'), ['--algorithm', 'fed_avg', "'sgd'"]),
    (dict(task=None), ['--task', 'must be given']),
    (dict(clipping_norm=1), ['--clipping_norm', 'fed_avg']),
    (dict(algorithm='ce_fed_avg'), ['--clipping_norm', 'must be given']),
    (dict(target_epsilon=1), ['--target_epsilon', 'adds no noise']),
    (
      dict(algorithm='dp_fed_avg', clipping_norm=1, target_epsilon=1),
      ['--target_delta', 'must be given'],
    ),
    (
      dict(algorithm='dp_fed_avg', clipping_norm=1, target_delta=1e-3),
      ['--target_epsilon', '--noise_multiplier'],
    ),
    (
      dict(
        algorithm='dp_fed_avg',
        clipping_norm=1,
        target_delta=1e-3,
        target_epsilon=1,
        sampling='round_robin',
      ),
      ['--sampling', 'poisson', 'round_robin'],
    ),
    (dict(audit_canaries=100), ['--audit_canaries', 'fed_avg', '100']),
    (dict(audit_canaries=9), ['--audit_canaries', 'at least 10', '9']),
    (dict(update_rounds='1,b'), ['--update_rounds', "'b'"]),
    (dict(partition='random'), ['--partition', 'label_skew', "'random'"]),
    (dict(sampling='all'), ['--sampling', "'all'"]),
    (dict(seed=-1), ['--seed', '-1']),
    (
      dict(algorithm='ce_fed_avg', clipping_norm_from='/nowhere'),
      ['--clipping_norm_from', "'/nowhere', which has no config.json"],
    ),
  ],
)
def test_settings_that_cannot_be_are_told_by_their_flags(
  capsys, changes, words
):
  given = {**FED_AVG, 'output_dir': 'x', **changes}
  arguments = [f'--{k}={x}' for k, x in given.items() if x is not None]
  with pytest.raises(ValueError) as refused:
    _config(*arguments)
  command_line.print_error(refused.value)
  (line,) = capsys.readouterr().err.splitlines()
  for word in words:
    assert word in line


def test_a_whole_number_may_have_an_exponent():
  assert (
    _config(*_ROW, '--algorithm=fed_avg', '--num_rounds=1e3').num_rounds == 1000
  )
  for text in ('1.5', '1e-1', 'inf', 'many'):
    with pytest.raises(flags.IllegalFlagValueError, match='num_rounds'):
      _config(*_ROW, '--algorithm=fed_avg', f'--num_rounds={text}')


def test_the_help_is_complete_and_says_what_is_required():
  result = train_command.run('-m', 'tasks.train', '--helpshort')
  assert result.code == 0, result.errors
  text = ' '.join(result.output.split())
  shown = set(re.findall(r' --(?:\[no\])?(\w+):', text))
  settings = (ExperimentConfig, Execution)
  fields = [x.name for kind in settings for x in dataclasses.fields(kind)]
  assert {*fields, 'row', 'scale', 'output_dir'} <= shown
  # Of absl's own there are none.
  assert not shown & {'verbosity', 'logtostderr', 'pdb'}
  for name in ('num_rounds', 'output_dir'):
    help_of_flag = text.partition(f' --{name}:')[2].partition(' --')[0]
    assert 'Required without' in help_of_flag
  assert 'Required' not in text.partition(' --seed:')[2].partition(' --')[0]


@pytest.mark.parametrize(
  ('flags', 'is_named'),
  [
    ([], True),
    (['--seed=3'], True),
    # How it is watched does not make it another run.
    (['--test_examples=10', '--rounds_per_checkpoint=1'], True),
    (['--client_learning_rate=0.02'], False),
    (['--clipping_norm=0.1'], False),
    (['--clipping_factor=0.25'], False),
    (['--clipping=per_layer'], False),
  ],
)
def test_a_run_of_the_table_has_its_name(flags, is_named):
  request = run_request.parse(
    [
      '--row=table3_mlp_mnist_noniid',
      '--scale=paper',
      '--algorithm=ce_fed_avg',
      '--variants=matched_steps',
      *flags,
    ]
  )
  expected = {
    'row': 'table3_mlp_mnist_noniid',
    'scale': 'paper',
    'algorithm': 'ce_fed_avg',
    'seed': 3 if flags == ['--seed=3'] else 0,
    'variants': ['matched_steps'],
  }
  name = request.run_name
  assert (name and name.to_json()) == (expected if is_named else None)


def test_a_run_of_settings_alone_has_no_name():
  flags = ['--task=mnist', '--model=mlp', '--algorithm=fed_avg']
  assert run_request.parse(flags).run_name is None
