"""Tests of DP-FedAvg by sampler, noise and budget."""

from analysis import mechanisms
from tests.analysis import run_folders

_MNIST = ('table3_mlp_mnist_noniid', 'paper')


def test_mechanisms_stand_side_by_side_by_budget(tmp_path):
  run_folders.write_named_runs(
    tmp_path, _MNIST, {'fed_avg': 0.95, 'ce_fed_avg': 0.93}
  )
  run_folders.write_named_runs(tmp_path, _MNIST, {'dp_fed_avg': 0.92})
  assert mechanisms.mechanism_table(run_folders.paired_runs(tmp_path)).empty
  for names, accuracy, privacy in (
    (('fixed_size',), 0.85, {'relation': 'replace_one'}),
    (('paper_sampling',), 0.92, {'actual_epsilon': 5.88}),
    (('epsilon_5',), 0.925, {'epsilon': 5.0, 'actual_epsilon': 5.0}),
  ):
    run_folders.write_named_run(
      tmp_path,
      *_MNIST,
      'dp_fed_avg',
      accuracy,
      variants=names,
      privacy=privacy,
    )
  table = mechanisms.mechanism_table(run_folders.paired_runs(tmp_path))
  assert table['ε'].to_list() == ['1.5', '1.5', '1.5', '5']
  assert table['ε as drawn'].to_list() == ['1.5', '5.88', '1.5', '5']
  assert table['relation'].to_list() == [
    'add-or-remove-one',
    'replace-one',
    'replace-one',
    'add-or-remove-one',
  ]
  assert table['drop from CE-FedAvg'].to_list() == [
    '1.00',
    '1.00',
    '8.00',
    '0.50',
  ]
  # None that needs no secret draw.
  assert mechanisms.without_draw(run_folders.paired_runs(tmp_path)) == {
    'turns': '',
    'better_noise': '',
  }


def test_who_cannot_draw_cohorts_sees_what_it_costs(tmp_path):
  for seed in range(3):
    run_folders.write_named_runs(
      tmp_path, _MNIST, {'fed_avg': 0.95, 'ce_fed_avg': 0.93}, seed
    )
    for names, accuracy in (
      ((), 0.92),
      (('banded',), 0.90),
      (('blt',), 0.91),
      (('epsilon_5', 'banded'), 0.92),
    ):
      run_folders.write_named_runs(
        tmp_path, _MNIST, {'dp_fed_avg': accuracy}, seed, names
      )
  found = mechanisms.without_draw(run_folders.paired_runs(tmp_path))
  assert found['turns'] == (
    '2.00 to 3.00 on MNIST at ε = 1.5 (Poisson cohorts 1.00); '
    '1.00 on MNIST at ε = 5'
  )
  # At ε = 5 the other one was not run.
  assert found['better_noise'] == 'BLT noise in 1 of 1'


def test_seeds_that_spread_tell_no_noise_from_the_other(tmp_path):
  for seed, shift in enumerate((-0.02, 0.0, 0.03)):
    accuracies = {'fed_avg': 0.95, 'ce_fed_avg': 0.93}
    run_folders.write_named_runs(tmp_path, _MNIST, accuracies, seed)
    for name, accuracy in (('banded', 0.90), ('blt', 0.90 + shift)):
      run_folders.write_named_runs(
        tmp_path, _MNIST, {'dp_fed_avg': accuracy}, seed, (name,)
      )
  found = mechanisms.without_draw(run_folders.paired_runs(tmp_path))
  assert found['better_noise'] == 'not decided in 1 of 1'


def test_noises_are_compared_by_the_seeds_that_both_have(tmp_path):
  for seed in range(4):
    accuracies = {'fed_avg': 0.95, 'ce_fed_avg': 0.93}
    run_folders.write_named_runs(tmp_path, _MNIST, accuracies, seed)
    # Each seed has an accuracy of its own, and BLT noise is one point better.
    for name, lead in (('banded', 0.0), ('blt', 0.01)):
      if (name, seed) != ('blt', 0):
        run_folders.write_named_runs(
          tmp_path,
          _MNIST,
          {'dp_fed_avg': 0.8 + 0.03 * seed + lead},
          seed,
          (name,),
        )
  found = mechanisms.without_draw(run_folders.paired_runs(tmp_path))
  assert found['better_noise'] == 'BLT noise in 1 of 1'
