"""What runs are called, and in which order they stand."""

import pytest

from analysis import names, runs, stats
from tests.analysis import run_folders


@pytest.mark.parametrize(
  ('setting', 'values', 'details'),
  [
    ('dirichlet_alpha', (0.1, 1.0), ['α = 0.1', 'α = 1']),
    (
      'server_optimizer',
      ('sgd', 'adam'),
      ['server optimizer = sgd', 'server optimizer = adam'],
    ),
    (
      'local_step',
      ('sgd', 'a/b.py:f'),
      ['local step = sgd', 'local step = b.py:f'],
    ),
    ('model', ('mlp', 'dir/models.py:wide'), ['MLP', 'models.py:wide']),
    ('proximal_mu', (None, 2.0), [None, 'μ = 2']),
    # Of one algorithm, in runs of one setting and seed.
    ('clipping_norm', (0.5, 0.1), ['c = 0.5', 'c = 0.1']),
    ('target_epsilon', (5.0, 1.5), ['ε = 5', 'ε = 1.5']),
    # What changes no figure.
    ('rounds_per_evaluation', (1, 2), ['(a)', '(b)']),
  ],
)
def test_the_settings_that_vary_are_the_names(
  read_runs, setting, values, details
):
  common = dict(partition='dirichlet', algorithm='ce_fed_avg')
  table = read_runs(
    **{
      name: common | {setting: value}
      for name, value in zip('ab', values, strict=True)
    }
  ).table
  expected = [
    'CE-FedAvg' + (f', {detail}' if detail else '') for detail in details
  ]
  found = names.labels(table).to_list()
  assert [name.replace(' (', ', (') for name in found] == expected


def test_seeds_of_one_line_have_one_label_and_names_of_their_own(read_runs):
  table = read_runs(
    **{
      f'{seed}_{number}': dict(
        seed=seed,
        # A threshold that is taken from a run of the same seed.
        clipping_norm=0.5 + 0.01 * seed,
        described=run_folders.FROM_A_RUN,
        **settings,
      )
      for seed in (0, 1)
      for number, settings in enumerate(
        (run_folders.PRIVATE, dict(algorithm='ce_fed_avg'))
      )
    }
  ).table
  assert names.labels(table).to_list() == ['DP-FedAvg', 'CE-FedAvg'] * 2
  assert names.run_names(table) == [
    'DP-FedAvg, seed 0',
    'CE-FedAvg, seed 0',
    'DP-FedAvg, seed 1',
    'CE-FedAvg, seed 1',
  ]


@pytest.mark.parametrize(
  ('setting', 'values'),
  [
    ('target_epsilon', (8.0, 1.0)),
    ('target_delta', (1e-6, 1e-2)),
    ('sampling', ('poisson', 'fixed_size')),
    ('clipping', ('fixed', 'adaptive')),
    # Nothing says that it was taken from a run of the seed.
    ('clipping_norm', (0.1, 5.0)),
    # Tested on other examples, or by another function of the same name.
    ('data', ({'num_test_examples': 10}, {'num_test_examples': 1000})),
    ('asked_metrics', (['a.py:accuracy'], ['b.py:accuracy'])),
  ],
)
def test_other_settings_are_no_other_seed(read_runs, setting, values):
  table = read_runs(
    **{
      f'{seed}': run_folders.PRIVATE | {'seed': seed, setting: value}
      for seed, value in enumerate(values)
    }
  ).table
  assert names.labels(table).nunique() == 2


def test_a_program_and_an_unfinished_run_say_what_they_are(read_runs, tmp_path):
  (tmp_path / 'mine').mkdir()
  (tmp_path / 'mine' / 'metrics.csv').write_text(
    'round_num,test_accuracy\n1,0.5\n'
  )
  found = dict(read_runs(run=dict(num_rounds=9)).table['files'])
  found['mine'] = runs.read_folder(tmp_path / 'mine')

  table = stats.collect(found).table
  assert names.labels(table).to_list() == ['FedAvg, 2 of 9 rounds', 'mine']
  assert [title for title, _ in names.by_setting(table)] == [
    'MLP on EMNIST, non-IID (label skew)',
    'programs of your own',
  ]


def test_settings_are_ordered_by_model_and_split_and_value(read_runs):
  # In the order of a shell, in which 10 comes before 9.
  table = read_runs(
    a=dict(model='mine.py:create_model'),
    b=dict(model='alexnet', partition='iid'),
    c=dict(client_learning_rate=10.0),
    d=dict(client_learning_rate=9.0, seed=10),
    e=dict(client_learning_rate=9.0, seed=2),
    f=dict(partition='iid'),
  ).table
  assert names.ordered(table).index.to_list() == list('fedcba')


def test_a_setting_that_only_some_have_is_told_of_these(read_runs):
  table = read_runs(
    a=dict(), b=dict(examples_per_client=60), c=dict(held_out_clients=5)
  ).table
  title = 'MLP on EMNIST, non-IID (label skew)'
  assert [each for each, _ in names.by_setting(table)] == [
    title,
    f'{title}, examples per client = 60',
    f'{title}, held out clients = 5',
  ]


def test_runs_of_a_setting_are_ordered_by_algorithm_and_value(read_runs):
  table = read_runs(
    a=run_folders.PRIVATE | dict(clipping_norm=0.5),
    b=run_folders.PRIVATE | dict(clipping_norm=0.1),
    c=run_folders.PRIVATE
    | dict(privacy=run_folders.PRIVACY | dict(epsilon=8.0, actual_epsilon=8.0)),
    d=dict(algorithm='ce_fed_avg', clipping_norm=10.0),
    e=dict(algorithm='ce_fed_avg', clipping_norm=9.0),
    f=dict(aggregator='mine.py:half'),
    g=dict(),
  ).table
  assert names.ordered(table).index.to_list() == list('gfedcba')


@pytest.mark.parametrize(
  'changes', [dict(noise_clients_per_round=80), dict(sampling='paper')]
)
def test_a_name_claims_no_epsilon_that_does_not_hold(read_runs, changes):
  simulated = dict(algorithm='dp_fed_avg') | changes
  table = read_runs(
    low=simulated | dict(target_epsilon=1.5),
    high=simulated | dict(target_epsilon=5.0),
  ).table
  told = names.run_names(table)
  assert len(set(told)) == 2
  assert not any(', ε' in each for each in told), told
