"""What a report says and shows, in its order."""

import functools
import io
import re

import pytest
from matplotlib import figure

from analysis import figures, names, report, stats
from analysis.runs import CLIENT_METRICS
from tests.analysis import run_folders
from tests.privacy.ledgers import PLAN
from tff_clipping.privacy import PrivacyLedger

UPDATES = {
  0: [('a', 2.0, '', 0.5), ('b', 4.0, '', 0.25)],
  16: [('a', 1.0, 60.0, 1.0), ('b', 3.0, 90.0, 0.3)],
}
PRIVACY = run_folders.PRIVACY
PRIVATE = dict(algorithm='dp_fed_avg', privacy=PRIVACY)
THREE = dict(
  fed_avg=dict(updates=UPDATES),
  ce_fed_avg=dict(algorithm='ce_fed_avg', updates=UPDATES),
  dp_fed_avg=PRIVATE,
)


@functools.cache
def _blank():
  file = io.BytesIO()
  figure.Figure((1, 1)).savefig(file)
  return file.getvalue()


@pytest.fixture
def blank_figures(monkeypatch):
  """Figures are made, and their files show nothing: pixels take long."""
  monkeypatch.setattr(
    figures, 'save', lambda drawing, path, dpi: path.write_bytes(_blank())
  )


@pytest.fixture
def write(read_runs, tmp_path, blank_figures):
  """As `read_runs`, for the text of the report on the runs."""

  def write(**runs):
    path = report.write_report(read_runs(**runs), tmp_path / 'out')
    return path.read_text()

  return write


@pytest.fixture(scope='module')
def of_three(tmp_path_factory):
  """The path of a report on `THREE`, with its figures."""
  root = tmp_path_factory.mktemp('three')
  found = stats.read_folders(
    [
      run_folders.write_run(root / name, **settings)
      for name, settings in THREE.items()
    ]
  )
  return report.write_report(found, root / 'out')


def test_report_refers_to_figures_that_are_there(of_three):
  path = of_three
  assert (path.parent.name, path.name) == ('out', 'report.md')
  pictures = re.findall(r'!\[[^\]]*\]\(([^)]*)\)', path.read_text())
  assert pictures == [
    'test_accuracy_by_round_mlp_on_emnist_non_iid_label_skew.png',
    'updates_mlp_on_emnist_t_16.png',
  ]
  assert '<!--' not in path.read_text()
  for picture in pictures:
    assert (path.parent / picture).read_bytes().startswith(b'\x89PNG')


@pytest.mark.usefixtures('blank_figures')
def test_figures_of_an_earlier_report_do_not_stay(read_runs, tmp_path):
  found, output = read_runs(**THREE), tmp_path / 'out'
  report.write_report(found, output)
  (output / 'mine.png').write_bytes(b'mine')
  other = tmp_path / 'other'
  other.mkdir()
  (other / 'report.md').write_text('# Mine\n![a](updates_a.png)\n')
  (other / 'updates_a.png').write_bytes(b'mine')
  report.write_report(found, other)
  assert (other / 'updates_a.png').exists()
  path = report.write_report(read_runs(dp=PRIVATE), output)
  pictures = re.findall(r'\]\(([^)]*)\)', path.read_text())
  left = {each.name for each in output.glob('*.png')}
  assert left == {*pictures, 'mine.png'}
  assert not any(name.startswith('updates') for name in left)


def test_html_refers_to_nothing_outside_itself(of_three):
  text = of_three.with_suffix('.html').read_text()
  sources = re.findall(r'(?:src|href)="([^"]*)"', text)
  assert len(sources) == 2
  assert all(s.startswith('data:image/png;base64,') for s in sources)
  assert '://' not in text


def test_same_runs_give_the_same_bytes(of_three, read_runs, tmp_path):
  again = report.write_report(read_runs(**THREE), tmp_path / 'again').parent
  files = sorted(path.name for path in of_three.parent.iterdir())
  assert len(files) == 4
  for file in files:
    first = (of_three.parent / file).read_bytes()
    assert first == (again / file).read_bytes()


@pytest.mark.usefixtures('blank_figures')
def test_what_is_missing_is_named(read_runs, tmp_path):
  read_runs(**THREE, plain=dict(seed=1))
  path = tmp_path / 'ce_fed_avg' / 'metrics.csv'
  path.write_text(path.read_text()[:-5])
  names = (*THREE, 'plain', 'absent')
  found = stats.read_folders([tmp_path / name for name in names])
  text = report.write_report(found, tmp_path / 'out').read_text()
  partial = 'CE-FedAvg, 1 of 2 rounds, seed 0'
  assert f'{partial}: metrics.csv is cut off' in text
  assert f'{partial}: 1 of 2 rounds; it is shown, but not compared' in text
  assert f'{tmp_path / "absent"}: left out: no such folder' in text
  assert 'Updates are not recorded: DP-FedAvg, seed 0; FedAvg, seed 1.' in text


def test_sections_without_runs_are_left_out(write):
  text = write(fed_avg={}, ce_fed_avg=dict(algorithm='ce_fed_avg'))
  headings = re.findall(r'^##+ (.*)', text, flags=re.MULTILINE)
  assert headings == ['By round', 'Run by run', 'What is missing']


def test_the_answer_comes_first_and_is_over_seeds(write):
  seeds = {
    f'{algorithm}_{seed}': dict(
      algorithm=algorithm,
      accuracies=(0.1, 0.5, 0.9 - 0.1 * lost - 0.01 * seed),
      seed=seed,
    )
    for seed in (0, 1, 2)
    for lost, algorithm in enumerate(('fed_avg', 'ce_fed_avg'))
  }
  text = write(**seeds, other=dict(seed=7, local_steps=1))
  sentence = text.splitlines()[2]
  head, _, *rows = [line for line in text.splitlines() if line.startswith('|')]
  # Student's t of two degrees is 4.303, and the mean's error 1 / sqrt(3).
  assert sentence == (
    '**FedAvg, Q = 1 has a test accuracy of 90.00 %; FedAvg, Q = 32: 89.00 ± '
    '2.48 %; CE-FedAvg, Q = 32: 79.00 ± 2.48 %, 10.00 ± 0.00 points below '
    'FedAvg.**'
  )
  assert head == (
    '| algorithm | seeds | Test accuracy (%) | below FedAvg (points) |'
  )
  assert rows[:3] == [
    '| FedAvg, Q = 1 | 1 | 90.00 | – |',
    '| FedAvg, Q = 32 | 3 | 89.00 ± 2.48 | – |',
    '| CE-FedAvg, Q = 32 | 3 | 79.00 ± 2.48 | 10.00 ± 0.00 |',
  ]
  assert 'Figures are means over 1 or 3 seeds' in text


def test_many_results_are_told_by_the_best(write):
  text = write(
    **{
      f'rate_{rate}': dict(client_learning_rate=rate, accuracies=(0.1, rate))
      for rate in (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7)
    }
  )
  assert (
    '**Of 7 algorithms and settings, FedAvg, η_l = 0.7 has the best test '
    'accuracy, 70.00 %; chosen on the test data, that is an optimistic '
    'figure.**'
  ) in text
  # They share a panel, by what they differ in.
  assert text.count('.png)') == 1


def test_a_metric_of_which_less_is_better(write, tmp_path):
  runs = {
    name: run_folders.write_run(
      tmp_path / name,
      algorithm=name,
      metric=('mean_absolute_error', 'min'),
      accuracies=(8.0, last, last + 1),
    )
    for name, last in (('fed_avg', 1.5), ('ce_fed_avg', 2.0))
  }
  found = stats.read_folders([*runs.values()])
  text = report.write_report(found, tmp_path / 'out').read_text()
  assert '| Test mean absolute error | worse than FedAvg by |' in text
  assert '| CE-FedAvg | 3.000 | 0.500 |' in text
  assert 'CE-FedAvg: 3.000, 0.500 worse than FedAvg' in text
  assert 'test_mean_absolute_error_by_round_mlp' in text
  assert 'ccuracy' not in text
  assert '%' not in text


def test_other_metrics_stand_beside_the_one_that_decides(write):
  text = write(
    a=dict(metrics={'test_recall': 0.25, 'test_top_5_accuracy': 0.75}),
    b=dict(model='alexnet'),
  )
  heads = '| Test recall | Test top 5 accuracy (%) |'
  assert heads in text
  runs = text[text.index('## Run by run') : text.index('## What is missing')]
  assert ' | 0.2500 | 75.00 | ' in runs
  assert ' | – | – | ' in runs
  assert 'nan' not in runs


def test_a_seed_without_a_finite_figure_is_no_part_of_the_mean(write):
  metric = ('loss', 'min')
  text = write(
    a=dict(accuracies=(9.0, 2.0), metric=metric),
    b=dict(accuracies=(9.0, float('inf')), metric=metric, seed=1),
    c=dict(algorithm='ce_fed_avg', accuracies=(9.0, 4.0), metric=metric),
    d=dict(
      algorithm='ce_fed_avg', accuracies=(9.0, 5.0), metric=metric, seed=1
    ),
  )
  assert '| FedAvg | 1 | 2.000 | – |' in text
  assert '| CE-FedAvg | 2 | 4.500 | 2.000 |' in text


@pytest.mark.usefixtures('blank_figures')
def test_what_private_runs_spent_together_is_said_once(tmp_path):
  folders = [
    run_folders.write_run(
      tmp_path / f'run_{seed}',
      **PRIVATE | dict(privacy=PRIVACY | {'description': 'A promise.'}),
      seed=seed,
    )
    for seed in (0, 1)
  ]
  for folder in folders:
    with PrivacyLedger(folder / 'ledger.jsonl', PLAN) as ledger:
      ledger.charge(1, '0' * 64)
  found = stats.read_folders(folders)
  text = report.write_report(found, tmp_path / 'out').read_text()
  told = 'All private runs on EMNIST: Together, the 2 releases of 2 runs'
  assert text.count(told) == 1
  assert text.count('A promise.') == 1
  assert ' '.join(report.summary(found).split()).count(told) == 1


def test_a_split_that_differs_by_seed_is_said_to_be_of_a_run(write):
  seeds = {
    f'seed{seed}': dict(
      seed=seed, partition_summary=f'{100 + seed} examples used'
    )
    for seed in (0, 1)
  }
  sentence = 'Partition of FedAvg, seed 0: 100 examples used.'
  assert sentence in write(**seeds)
  sentence = 'Partition: 100 examples used.'
  assert sentence in write(alone=seeds['seed0'])


def test_exact_figures_of_a_private_run_are_labelled(write):
  private = dict(PRIVATE, updates=UPDATES, metrics={'clipped_fraction': 0.75})
  text = write(ce_fed_avg=THREE['ce_fed_avg'], dp_fed_avg=private)
  note = 'for simulation only: no part of the private release'
  assert '| 75† |' in text
  # Once, where the privacy is; the figures that show them are marked.
  assert text.count(note) == 1
  assert f"† DP-FedAvg: exact figures of the clients' updates, {note}" in text
  captions = [
    line
    for line in text.splitlines()
    if line.startswith('*') and line.endswith('†*')
  ]
  # The scatter, where it stands beside others.
  assert len(captions) == 1


def test_an_audit_stands_beside_the_claim(write):
  text = write(
    **THREE,
    audited=dict(
      algorithm='dp_fed_avg',
      privacy=PRIVACY | {'sampling': 'paper', 'actual_epsilon': 6.5},
      audit=run_folders.AUDIT,
      audit_canaries=100,
    ),
  )
  section = text[text.index('## Audits') :]
  (row,) = [line for line in section.splitlines() if '98 + 102' in line]
  assert '| 98 + 102 | 1.5 | all releases | 0.25 | 0.75 | – |' in row
  assert row.endswith('| 3.1 (20.0) | 95% | no |')
  # Beside the run that was not audited, and not in its place.
  assert '| DP-FedAvg | 90.00 |' in text
  assert '| DP-FedAvg, audit canaries = 100 | 90.00 |' in text


@pytest.mark.parametrize(
  ('privacy', 'cells', 'sentence'),
  [
    ({}, '| 1.5 | holds |', '(ε = 1.5, and the guarantee holds)'),
    (
      {'caveats': ['the noise is known']},
      '| 1.5 | no |',
      'No guarantee as it was run: the noise is known.',
    ),
    (
      {'sampling': 'paper', 'actual_epsilon': 6.5},
      '| 6.5 (the paper’s: 1.5) | holds |',
      '',
    ),
    # Not as one for clients.
    (
      {'unit': 'example'},
      '| 1.5 for examples | holds |',
      '(ε = 1.5 for examples, and the guarantee holds)',
    ),
  ],
)
def test_an_epsilon_is_said_with_what_it_holds_for(
  write, privacy, cells, sentence
):
  text = write(run=dict(PRIVATE, privacy=PRIVACY | privacy))
  assert cells in text
  assert sentence in text
  assert ('No guarantee' in text) == ('caveats' in privacy)


def test_an_adaptive_threshold_and_its_noise_are_said_to_be_so(write):
  aggregation = 'The noise multiplier is that of both together.'
  privacy = PRIVACY | {'description': 'A promise.', 'aggregation': aggregation}
  text = write(
    fixed=dict(PRIVATE, privacy=privacy),
    moving=dict(PRIVATE, privacy=privacy, clipping='adaptive'),
  )
  assert text.count('A promise.') == 1
  assert text.count(aggregation) == 1
  assert f'**DP-FedAvg, clipping = adaptive**: {aggregation}' in text
  assert '| 1 at first |' in text
  assert '| 1 |' in text


def test_exact_runs_beside_a_guarantee_are_not_to_be_published(write):
  warning = 'Do not publish this report as a whole.'
  text = write(exact=THREE['fed_avg'], private=dict(PRIVATE))
  assert text.count(warning) == 1
  # One without a guarantee has none to lose, and one alone is covered.
  broken = dict(PRIVATE, privacy=PRIVACY | {'caveats': ['the noise is known']})
  text = write(other=THREE['fed_avg'], broken=broken)
  assert warning not in text
  assert warning not in write(alone=dict(PRIVATE))


def test_several_deltas_stand_in_a_column(write):
  text = write(
    fed_avg=THREE['fed_avg'],
    **{
      name: dict(PRIVATE, privacy=PRIVACY | {'target_delta': delta})
      for name, delta in (('a', 1e-5), ('b', 2.5e-4))
    },
  )
  assert '| FedAvg | 90.00 | – | – | – | – |' in text
  assert '| 1.5 | 10⁻⁵ | holds |' in text
  # Spaces at which no cell ends a line.
  assert '| 1.5 | 2.5\xa0·\xa010⁻⁴ | holds |' in text


def test_how_many_examples_the_clients_have_is_not_of_a_private_report(write):
  summary = '4 clients, 20 to 777 examples'
  text = write(open=dict(partition_summary=summary))
  assert '777' in text
  text = write(
    private=dict(
      PRIVATE,
      partition_summary=summary,
      metrics=dict.fromkeys(CLIENT_METRICS, ''),
    )
  )
  assert '777' not in text


@pytest.mark.usefixtures('blank_figures')
def test_runs_of_the_trainer_and_of_a_program_stand_together(
  read_runs, tmp_path
):
  read_runs(**THREE)
  program = tmp_path / 'mine'
  program.mkdir()
  (program / 'metrics.csv').write_text(
    'round_num,test_accuracy,epsilon\n0,0.1,\n1,0.5,0.25\n'
  )
  with PrivacyLedger(program / 'ledger.jsonl', PLAN):
    pass
  (tmp_path / 'empty').mkdir()
  folders = [tmp_path / name for name in (*THREE, 'mine', 'empty')]
  path = report.write_report(stats.read_folders(folders), tmp_path / 'out')
  text = path.read_text()
  assert '| CE-FedAvg | 90.00 | 0.00 |' in text
  assert '| mine | 50.00 | – | 0.25 |' in text
  assert 'empty: left out: it has no config.json' in text
  assert 'no FedAvg run' not in text


def test_seeds_that_share_an_initial_model_are_said_to(write):
  note = 'The seeds of CE-FedAvg share their initial model'
  seeds = {
    f'{algorithm}_{seed}': dict(
      algorithm=algorithm,
      seed=seed,
      model_seed=0 if algorithm == 'ce_fed_avg' else seed,
    )
    for algorithm in ('fed_avg', 'ce_fed_avg')
    for seed in (0, 1, 2)
  }
  assert note in write(**seeds)
  alone = {'alone': dict(model_seed=0)}
  assert 'share their initial' not in write(**alone)


def test_report_of_no_run_is_refused(tmp_path):
  with pytest.raises(ValueError, match='found none .*: no such folder'):
    report.write_report(
      stats.read_folders([tmp_path / 'absent']), tmp_path / 'out'
    )
  assert not (tmp_path / 'out').exists()


def test_what_a_threshold_has_cost_and_a_simulated_noise_are_said(write):
  cost = 'The clipping norm comes from a: epsilon 1.5 of it is spent too.'
  text = write(
    paid=dict(PRIVATE, privacy=PRIVACY | {'with_clipping_norm': cost}),
    as_eighty=dict(
      algorithm='dp_fed_avg', noise_clients_per_round=80, mechanism='blt'
    ),
  )
  assert text.count(cost) == 1
  assert '| simulated |' in text
  assert 'privacy.json is missing' not in text


def test_a_round_that_was_charged_and_not_recorded_counts(tmp_path):
  # As of a run that has diverged: its ledger has one release more.
  plan = PRIVACY | {'epsilon': PLAN.epsilon, 'actual_epsilon': None}
  folder = run_folders.write_run(
    tmp_path / 'run',
    **PRIVATE | dict(privacy=plan),
    metrics={'epsilon': PLAN.epsilon_after(2)},
  )
  with PrivacyLedger(folder / 'ledger.jsonl', PLAN) as ledger:
    for round_num in (1, 2, 3):
      ledger.charge(round_num, f'{round_num}')
  found = stats.read_folders([folder])
  assert found.table['epsilon'].iloc[0] == PLAN.epsilon_after(3)


@pytest.mark.parametrize(
  'changes', [dict(noise_clients_per_round=80), dict(sampling='paper')]
)
def test_a_name_claims_no_epsilon_that_does_not_hold(read_runs, changes):
  simulated = dict(algorithm='dp_fed_avg') | changes
  found = read_runs(
    low=simulated | dict(target_epsilon=1.5),
    high=simulated | dict(target_epsilon=5.0),
  )
  told = names.run_names(found.table)
  assert len(set(told)) == 2
  assert not any(', ε' in each for each in told), told


def test_a_simulation_beside_a_private_run_is_no_private_release(write):
  text = write(
    private=PRIVATE,
    simulated=dict(algorithm='dp_fed_avg', noise_clients_per_round=80),
  )
  assert 'Do not publish this report as a whole.' in text
