"""What runs came to: means with margins, settings, drops, and the privacy."""

import math
import re

import pytest

from analysis import stats
from tests.analysis import run_folders
from tests.privacy.ledgers import PLAN
from tff_clipping.privacy import PrivacyLedger


@pytest.fixture
def read_run(read_runs):
  """As `read_runs`, for the row of one run."""
  return lambda **settings: read_runs(run=settings).table.loc['run']


def test_margin_is_half_of_students_interval_from_three_seeds_on():
  # 4.303 / √3.
  assert str(stats.estimate([1.0, 2.0, 3.0])) == '2.00 ± 2.48'
  assert str(stats.estimate([1.0, 3.0])) == '2.00'
  assert stats.estimate([math.nan, math.inf, 1.0]).num_seeds == 1
  assert not stats.estimate([math.nan])
  assert str(stats.estimate([])) == 'not run'


def test_difference_of_two_rows_has_welchs_interval():
  one = stats.estimate([1.0, 2.0, 3.0])
  other = stats.estimate([10.0, 20.0, 30.0])
  # (1/3 + 100/3)² / ((1/3)² / 2 + (100/3)² / 2) = 2.04 degrees: 4.224 · 5.802.
  assert stats.difference_margin(other, one) == pytest.approx(24.5, abs=0.1)
  assert math.isnan(stats.difference_margin(one, stats.estimate([9.0, 9.1])))


def test_a_cost_is_rounded_up_and_a_lower_bound_down():
  assert (stats.at_most(15.7035), stats.at_least(15.7035)) == ('15.71', '15.7')
  assert stats.at_most(math.nan) == stats.at_least(None) == '–'


def test_every_column_of_published_runs_is_one_that_is_described(published):
  described = {
    *(name for run in published['files'] for name in run.settings),
    *re.findall(r'`(\w+)`', stats.Runs.__doc__),
    *stats.SETTING_KEYS,
  }
  assert set(published) <= described


def test_final_score_is_the_last_evaluated(read_run):
  run = read_run(accuracies=(0.1, 0.9, 0.8, ''))
  assert run['final_score'] == 80.0
  assert run['rounds_done'] == 3
  assert run['is_complete']


@pytest.mark.parametrize(
  ('experiment', 'is_iid'),
  [
    ({'partition': 'iid'}, True),
    ({'partition': 'label_skew'}, False),
    ({'partition': 'class_balanced', 'examples_per_client': 500}, True),
    ({'partition': 'class_balanced', 'examples_per_client': 50}, False),
  ],
)
def test_iid_is_what_the_paper_calls_so(read_run, experiment, is_iid):
  assert read_run(**experiment)['is_iid'] == is_iid


@pytest.mark.parametrize(
  ('setting', 'is_same'),
  [
    ({'task': 'cifar10'}, False),
    ({'num_rounds': 9}, False),
    ({'client_learning_rate': 0.2}, False),
    ({'compute_dtype': 'bfloat16'}, False),
    ({'metric': ('loss', 'min'), 'accuracies': (2.0, 1.0, 0.5)}, False),
    # Other test examples, another function of the same name, other data.
    ({'data': {'num_test_examples': 10}}, False),
    ({'asked_metrics': ['other.py:accuracy']}, False),
    ({'data': {'digest': 'other'}}, False),
    # What an older run does not say is the default.
    ({'compute_dtype': 'float32', 'local_step': 'sgd'}, True),
    # Of a partition that the run has not.
    ({'dirichlet_alpha': 0.5}, True),
    ({'sampling_seed': 7, 'rounds_per_evaluation': 5}, True),
  ],
)
def test_runs_are_compared_within_one_setting(read_runs, setting, is_same):
  found = read_runs(
    a=dict(data={'digest': 'one'}), b=dict(algorithm='ce_fed_avg', **setting)
  )
  run = found.table.loc['b']
  assert (run['no_drop'] == '') == is_same
  assert math.isfinite(run['drop']) == is_same


def test_epsilon_is_that_of_the_rounds_that_were_run(read_run):
  run = read_run(metrics={'epsilon': 0.7}, **run_folders.PRIVATE)
  assert run['epsilon'] == 0.7
  assert math.isnan(run['paper_epsilon'])


@pytest.mark.parametrize(
  'privacy',
  [
    {'epsilon': 6.5, 'actual_epsilon': 6.5, 'paper_epsilon': 1.5},
    # As 0.2 wrote it.
    {'epsilon': 1.5, 'actual_epsilon': 6.5},
  ],
)
def test_the_papers_epsilon_stands_beside_the_one_that_holds(read_run, privacy):
  run = read_run(algorithm='dp_fed_avg', privacy=run_folders.PRIVACY | privacy)
  assert (run['epsilon'], run['paper_epsilon']) == (6.5, 1.5)


def test_a_round_that_was_charged_and_not_recorded_counts(tmp_path):
  # As of a run that has diverged: its ledger has one release more.
  folder = run_folders.write_run(
    tmp_path / 'run',
    **run_folders.PRIVATE,
    metrics={'epsilon': PLAN.epsilon_after(2)},
  )
  with PrivacyLedger(folder / 'ledger.jsonl', PLAN) as ledger:
    for round_num in (1, 2, 3):
      ledger.charge(round_num, f'{round_num}')
  found = stats.read_folders([folder])
  assert found.table['epsilon'].iloc[0] == PLAN.epsilon_after(3)
  # A reader who knows that it ended early has seen its releases.
  (folder / 'result.json').write_text('{"reason": "diverged"}')
  found = stats.read_folders([folder])
  assert found.table['epsilon'].iloc[0] == PLAN.epsilon


def test_cosine_is_that_of_vectors_with_these_norms_and_this_mean(read_run):
  # (2, 0), (0, 1) and (1, 1): the mean is (1, 2 / 3).
  clients = {'a': 2.0, 'b': 1.0, 'c': 2.0**0.5}
  run = read_run(
    accuracies=(0.1,) * 18,
    updates={
      stats.FIGURE_ROUND: [
        *((name, norm, 60.0, 1.0) for name, norm in clients.items()),
        ('mean', 13.0**0.5 / 3, 60.0, ''),
      ]
    },
  )
  # Inner products 0, 2 and 1, over products of norms 2, 2 √2 and √2.
  assert run['cosine_at'] == pytest.approx(3 / (2 + 3 * 2.0**0.5))
  assert (run['spread_at'], run['std_at']) == (0.25, 0.5)
  assert run['relative_spread'] == 0.25


def test_path_adds_up_the_steps_with_those_between_filled_in(read_runs):
  slow = dict(
    accuracies=(0.1, 0.5, 0.7, 0.8, 0.9),
    server_learning_rate=2.0,
    updates={
      t: [('a', 9.0, 60, 1), ('mean', norm, 60, '')]
      for t, norm in ((0, 4.0), (2, 1.0))
    },
  )
  # Steps of 2 · (4, 2, 1, 1).
  paths = read_runs(run=slow, bare=dict()).table['path']
  assert paths['run'] == pytest.approx((0, 8, 12, 14, 16))
  assert paths['bare'] == ()


def test_equal_path_is_where_fed_avg_has_moved_as_far(read_runs):
  def moved(norm, accuracies):
    updates = {0: [('a', 9.0, 60.0, 1.0), ('mean', norm, 60.0, '')]}
    return dict(accuracies=accuracies, updates=updates)

  run = read_runs(
    fed_avg=moved(1.0, (0.1, 0.5, 0.7, 0.8, 0.9)),
    ce=moved(0.5, (0.1, 0.2, 0.3, 0.4, 0.75)) | {'algorithm': 'ce_fed_avg'},
  ).table.loc['ce']
  # Four steps of a half are two of one.
  assert run['equal_path_accuracy'] == pytest.approx(70.0)
  assert run['equal_path_lead'] == pytest.approx(5.0)


def _by_algorithm(root):
  return run_folders.read(root).table.reset_index().set_index('algorithm')


def test_drops_are_in_points_below_the_runs_of_the_same_seed(tmp_path):
  run_folders.write_three(tmp_path, (0.94, 0.92, 0.915), seed=0)
  run_folders.write_three(tmp_path, (0.96, 0.91, 0.90), seed=1)
  # Another threshold.
  run_folders.write_runs(tmp_path, {'ce_fed_avg': 0.5}, clipping_norm=0.1)
  table = _by_algorithm(tmp_path).sort_values('seed')
  table = table[table['clipping_norm'] != 0.1]
  assert table['drop'].dropna().round(6).to_list() == [2.0, 2.5, 5.0, 6.0]
  assert table['dp_drop'].dropna().round(6).to_list() == [0.5, 1.0]


@pytest.mark.parametrize(
  ('others', 'reason'),
  [
    (dict(), 'no FedAvg run of the same setting'),
    # They are not averaged.
    (
      dict(a={}, b={}),
      'more than one FedAvg run of the same setting: a, b',
    ),
    (dict(a=dict(accuracies=(0.1, 0.5))), 'a is not finished'),
  ],
)
def test_why_there_is_no_drop_is_said(read_runs, others, reason):
  table = read_runs(
    ce=dict(algorithm='ce_fed_avg', num_rounds=2),
    **{name: dict(num_rounds=2) | run for name, run in others.items()},
  ).table
  assert math.isnan(table.at['ce', 'drop'])
  assert table.at['ce', 'no_drop'] == reason


def test_runs_with_an_own_aggregator_are_compared_and_are_no_baseline(
  read_runs,
):
  own = dict(aggregator='mine.py:half', accuracies=(0.1, 0.9, 0.86))
  table = read_runs(
    fed_avg=dict(),
    ce=dict(algorithm='ce_fed_avg', accuracies=(0.1, 0.9, 0.88)),
    own=own,
    own_ce=own | dict(algorithm='ce_fed_avg', clipping_norm=7.0),
  ).table
  assert table['drop'].round(6).dropna().to_dict() == {
    'ce': 2.0,
    'own': 4.0,
    'own_ce': 4.0,
  }
  # A threshold of theirs is that of no other run.
  assert table['shown_norm'].fillna(0).to_dict() == {
    'fed_avg': 1.0,
    'ce': 1.0,
    'own': 0.0,
    'own_ce': 7.0,
  }


def test_a_threshold_is_not_guessed_where_there_are_several(read_runs):
  norms = read_runs(
    fed_avg=dict(),
    a=dict(algorithm='ce_fed_avg', clipping_norm=1.0),
    b=dict(algorithm='ce_fed_avg', clipping_norm=2.0),
    # Its own is no threshold on updates.
    models=dict(algorithm='model_clipping_fed_avg', clipping_norm=9.0),
    # It has this one in the first round alone.
    moving=dict(algorithm='ce_fed_avg', clipping='adaptive', clipping_norm=1.0),
  ).table['shown_norm']
  assert norms.fillna(0).to_list() == [0.0, 1.0, 2.0, 0.0, 0.0]


@pytest.mark.parametrize(
  ('variants', 'settings', 'dp_drop'),
  [
    # A threshold of its own, as one that is adaptive or paid for.
    (['threshold'], dict(clipping_norm=3.0), 2.0),
    (['half_norm'], dict(clipping_norm=0.5), 12.0),
    (['rate'], dict(client_learning_rate=0.5), math.nan),
  ],
)
def test_of_several_baselines_one_has_the_threshold_or_no_variant(
  tmp_path, variants, settings, dp_drop
):
  run_folders.write_three(tmp_path, (0.9, 0.8, 0.7))
  run_folders.write_runs(
    tmp_path, {'ce_fed_avg': 0.9}, variants=['half_norm'], clipping_norm=0.5
  )
  # It repeats the row, and measures more.
  run_folders.write_runs(tmp_path, {'ce_fed_avg': 0.6}, variants=['again'])
  run_folders.write_runs(
    tmp_path, {'dp_fed_avg': 0.78}, variants=variants, **settings
  )
  table = run_folders.read(tmp_path).table
  found = table[table['variants'].eq(variants[0]) & table['is_private']]
  assert found['dp_drop'].to_list() == [pytest.approx(dp_drop, nan_ok=True)]
