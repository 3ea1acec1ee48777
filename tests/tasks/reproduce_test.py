"""Tests of what is run for docs/reproduction.md."""

import json

import pytest

from tasks import reproduce
from tests.tasks import train_command

_ALEXNET = 'table3_alexnet_mnist_noniid'


def _names(*rows, seeds=(), **named):
  runs = reproduce.named_runs(rows, ['reduced'], **named)
  return [run.name for run in reproduce.with_thresholds(runs, seeds)]


def test_fed_avg_comes_before_what_takes_its_threshold_from_it():
  name = 'mnist-label_skew_125-alexnet-reduced-{}-seed0'
  fed_avg, ce_fed_avg, dp_fed_avg = (
    name.format(algorithm)
    for algorithm in ('fed_avg', 'ce_fed_avg', 'dp_fed_avg')
  )
  assert _names(_ALEXNET) == [fed_avg, ce_fed_avg, dp_fed_avg]
  assert _names(_ALEXNET, algorithms=('fed_avg',)) == [fed_avg]
  private = _names(_ALEXNET, algorithms=('dp_fed_avg',))
  assert private == [fed_avg, dp_fed_avg]


def test_seeds_come_one_after_the_other():
  names = _names('table2_alexnet_mnist_iid', seeds=(1, 2))
  assert [name[-5:] for name in names] == ['seed1', 'seed1', 'seed2', 'seed2']


def test_a_star_stands_for_any_letters_and_equal_rows_are_run_once():
  # Tables 2 and 4 share a row; Table 2 has no noise.
  names = _names('table*_alexnet_cifar10_iid')
  assert [name.split('-')[4] for name in names] == [
    'fed_avg',
    'ce_fed_avg',
    'dp_fed_avg',
  ]
  assert len(_names('table2_alexnet_mnist_*')) == 2 * 2
  with pytest.raises(ValueError, match="`rows` must be .*, found 'table9'"):
    _names('table9')


def test_what_is_published_is_run_again():
  names = []
  for run in reproduce.with_thresholds(reproduce.published_runs()):
    assert run.threshold_run is None or run.threshold_run.name in names
    names.append(run.name)
  assert len(set(names)) == len(names)
  # In place of what had less noise.
  assert (
    'mnist-label_skew_125-mlp-reduced-dp_fed_avg-noise_of_80-seed0' in names
  )


_SMALLEST = dict(rows='mlp_embedded_digits', scales='demo')


def _reproduce(**flags):
  return train_command.Fork(_SMALLEST | flags, 'tasks.reproduce').communicate()


@pytest.mark.slow
def test_runs_are_made_in_order_and_skipped_when_they_are_done(
  tmp_path, cache_dir
):
  names = [
    f'embedded_digits-label_skew_8-mlp-demo-{algorithm}-seed0-num_rounds=1'
    for algorithm in ('fed_avg', 'ce_fed_avg')
  ]
  for status in ('', ': done before'):
    result = _reproduce(
      algorithms='ce_fed_avg',
      # Any flag is for all runs, and in the names of their folders.
      num_rounds=1,
      output_dir=tmp_path / 'runs',
      cache_dir=cache_dir,
      # It reads no files.
      data_dir='nowhere',
    )
    assert result.code == 0, result.errors
    for number, name in enumerate(names, start=1):
      assert f'[{number}/2] {name}{status}' in result.output
  # c comes from the run of FedAvg before it.
  saved = json.loads((tmp_path / 'runs' / names[1] / 'config.json').read_text())
  assert saved['clipping_norm_source']['exact']


@pytest.mark.slow
def test_runs_whose_c_is_of_a_run_that_failed_are_skipped(tmp_path):
  code, output, errors = _reproduce(
    rows='table3_mlp_mnist_noniid',
    output_dir=tmp_path / 'runs',
    data_dir=tmp_path,
  )
  assert code == 1
  _, first, *others = output.splitlines()
  assert first.endswith('-fed_avg-seed0: failed (exit code 2)')
  skipped = 'skipped, for the run that gives c failed'
  assert [line.partition(': ')[2] for line in others] == [skipped] * 2
  assert len(errors.splitlines()) == 1


def test_no_run_gives_c_where_a_flag_does(tmp_path):
  code, output, errors = _reproduce(
    **dict(rows='table3_mlp_mnist_noniid', algorithms='ce_fed_avg'),
    **dict(clipping_norm=0.3, output_dir=tmp_path / 'runs', data_dir=tmp_path),
  )
  name = 'mnist-label_skew_125-mlp-demo-ce_fed_avg-seed0-clipping_norm=0.3'
  assert output.splitlines()[0] == f'[1/1] {name}', errors
  assert code == 1  # There are no data.


@pytest.mark.parametrize(
  ('flags', 'message'),
  [
    # Of the private run alone, whose threshold no run has given yet.
    (dict(target_epsilon=-1), '--target_epsilon must be positive'),
    (dict(seed=1), '--seed must be given as --seeds here'),
  ],
)
def test_a_wrong_flag_of_any_run_is_refused_first(tmp_path, flags, message):
  result = _reproduce(output_dir=tmp_path / 'runs', **flags)
  assert result.code == 2, result.output
  assert message in result.errors
  assert len(result.errors.splitlines()) == 1
  assert not (tmp_path / 'runs').exists()
