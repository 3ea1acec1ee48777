"""Tests of what is run for docs/reproduction.md."""

import pathlib
import re

import pytest

from tasks import reproduce

_ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _in_the_checkout(monkeypatch):
  monkeypatch.chdir(_ROOT)


def _names(*names, seeds=(0,)):
  return [run.name for run in reproduce.plan_runs(names, seeds)]


def test_fed_avg_comes_before_what_takes_its_threshold_from_it():
  assert _names('table3_alexnet') == [
    'table3_alexnet_emnist_noniid_fed_avg_seed0',
    'table3_alexnet_emnist_noniid_ce_fed_avg_seed0',
    'table3_alexnet_emnist_noniid_dp_fed_avg_seed0',
  ]


def test_seeds_come_one_after_the_other():
  names = _names('table2_alexnet_emnist_iid', seeds=(0, 2))
  assert [name[-5:] for name in names] == ['seed0', 'seed0', 'seed2', 'seed2']


def test_whole_name_is_that_run_and_the_one_that_it_clips_like():
  row = 'table3_mlp_emnist_noniid'
  name = f'{row}_dp_fed_avg'
  assert _names(f'{row}_fed_avg') == [f'{row}_fed_avg_seed0']
  assert _names(name) == [f'{row}_fed_avg_seed0', f'{name}_seed0']
  assert f'{name}_paper_seed0' in _names(f'{name}_')


@pytest.mark.parametrize(
  'name',
  [
    'table3_mlp_emnist_noniid_dp_fed_avg_paper',
    'table4_alexnet_cifar10_iid_dp_fed_avg',
  ],
)
def test_every_run_comes_after_what_it_needs(name):
  first, last = reproduce.plan_runs([name], [1])
  (source,) = [
    flag
    for flag in last.command(pathlib.Path('out'))
    if flag.startswith('--clipping_norm_from')
  ]
  assert last.name == f'{name}_seed1'
  assert source == f'--clipping_norm_from=out/{first.name}'


def test_no_name_is_everything_and_every_threshold_has_its_run():
  runs = reproduce.plan_runs([], [0])
  names = [run.name for run in runs]
  assert len(set(names)) == len(names)
  for index, run in enumerate(runs):
    for flag in run.command(pathlib.Path('out')):
      if flag.startswith('--clipping_norm_from=out/'):
        assert flag.rpartition('/')[2] in names[:index]


def test_rows_that_table_4_shares_with_table_2_are_run_once():
  names = _names('table4_alexnet')
  assert names == [
    'table2_alexnet_cifar10_iid_fed_avg_seed0',
    'table2_alexnet_cifar10_iid_ce_fed_avg_seed0',
    'table4_alexnet_cifar10_iid_dp_fed_avg_seed0',
  ]
  command = reproduce.plan_runs(['table4_alexnet'], [0])[2].command(
    pathlib.Path('out')
  )
  assert (
    '--clipping_norm_from=out/table2_alexnet_cifar10_iid_fed_avg_seed0'
    in command
  )


def test_a_seed_is_that_of_the_split_the_model_and_the_cohorts():
  command = reproduce.plan_runs(['table3_alexnet'], [3])[0].command(
    pathlib.Path('out')
  )
  assert {'--seed=3', '--model_seed=3', '--sampling_seed=3'} <= set(command)


def test_unknown_name_is_refused():
  with pytest.raises(ValueError, match="found 'table9'"):
    reproduce.plan_runs(['table9'], [0])


def test_data_folder_is_for_runs_that_read_files():
  digits, embedded = (
    reproduce.plan_runs([name], [0])[0].command(
      pathlib.Path('out'), data_dir='data', cache_dir='cache'
    )
    for name in ('table3_alexnet', 'mlp_embedded_digits')
  )
  assert '--data_dir=data' in digits
  assert '--data_dir=data' not in embedded
  assert '--cache_dir=cache' in digits
  assert '--cache_dir=cache' in embedded


def test_commands_of_the_page_make_its_runs():
  page = pathlib.Path('docs/reproduction.md').read_text(encoding='utf-8')
  commands = re.findall(r'`python -m tasks\.reproduce ([^`]*)`', page)
  assert len(commands) > 20
  made = set()
  for command in commands:
    words = command.split()
    seeds = [w for w in words if w.startswith('--seeds=')]
    made.update(
      _names(
        *(w for w in words if not w.startswith('--')),
        seeds=[int(s) for s in (seeds or ['--seeds=0'])[0][8:].split(',')],
      )
    )
  published = {
    path.parent.name for path in pathlib.Path('results').glob('*/config.json')
  }
  assert published
  assert published <= made
