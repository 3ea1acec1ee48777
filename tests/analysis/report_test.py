import functools
import io
import re

import pytest
from matplotlib import figure

from analysis import report
from analysis.figures import accuracy, drawings, style
from analysis.runs import files, frame
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
    style, 'save', lambda drawing, path, *, dpi: path.write_bytes(_blank())
  )


@pytest.fixture
def write(read_runs, tmp_path, blank_figures):
  """As `read_runs`, for the report on the runs: the path of report.md."""

  def write(**runs):
    return report.write_report(read_runs(**runs), tmp_path / 'out')

  return write


@pytest.fixture(scope='module')
def of_three(tmp_path_factory):
  """The path of a report on `THREE`, with its figures."""
  root = tmp_path_factory.mktemp('three')
  frames = frame.read_frames(
    [
      run_folders.write_run(root / name, **settings)
      for name, settings in THREE.items()
    ]
  )
  return report.write_report(frames, root / 'out')


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
  frames, output = read_runs(**THREE), tmp_path / 'out'
  report.write_report(frames, output)
  (output / 'mine.png').write_bytes(b'mine')
  other = tmp_path / 'other'
  other.mkdir()
  (other / 'report.md').write_text('# Mine\n![a](updates_a.png)\n')
  (other / 'updates_a.png').write_bytes(b'mine')
  report.write_report(frames, other)
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
  frames = frame.read_frames([tmp_path / name for name in names])
  text = report.write_report(frames, tmp_path / 'out').read_text()
  assert 'ce_fed_avg: metrics.csv is cut off' in text
  assert 'ce_fed_avg: 1 of 2 rounds' in text
  assert f'{tmp_path / "absent"}: left out: no such folder' in text
  assert 'Updates are not recorded: plain.' in text
  assert 'Updates of private runs are not recorded: dp_fed_avg.' in text


def test_sections_without_runs_are_named_and_left_out(write):
  row = dict(task='mnist', examples_per_client=125)
  text = write(
    fed_avg=row, ce_fed_avg=dict(row, algorithm='ce_fed_avg')
  ).read_text()
  headings = re.findall(r'^##+ (.*)', text, flags=re.MULTILINE)
  assert 'Table 3' in headings
  assert not {'Table 2', 'Table 4', 'By ε', 'Privacy'} & set(headings)
  last = text[text.index('## What is missing') :]
  assert '- By ε: it needs finished private runs' in last
  assert text.count('By ε') == 1


def test_data_that_stand_in_for_the_papers_have_no_row_there(write):
  runs = {
    name: dict(task='embedded_digits', examples_per_client=8, algorithm=name)
    for name in ('fed_avg', 'ce_fed_avg')
  }
  assert '### Table' not in write(**runs).read_text()


def test_the_answer_comes_first_and_is_over_seeds(write):
  seeds = {
    f'{algorithm}_{seed}': dict(
      algorithm=algorithm,
      accuracies=(0.1, 0.9 - 0.1 * lost - 0.01 * seed),
      seed=seed,
    )
    for seed in (0, 1, 2)
    for lost, algorithm in enumerate(('fed_avg', 'ce_fed_avg'))
  }
  text = write(
    **seeds, other=dict(num_rounds=1, seed=7, local_steps=1)
  ).read_text()
  sentence, head, _, *rows = text.splitlines()[2:9:1][:1] + [
    line for line in text.splitlines() if line.startswith('|')
  ]
  # Student's t of two degrees is 4.303, and the mean's error 1 / sqrt(3).
  assert sentence == (
    '**Q = 1, batch = 64: FedAvg has a test accuracy of 90.00 %. Q = 32, '
    'batch = 64: FedAvg has a test accuracy of 89.00 ± 2.48 %; CE-FedAvg '
    '79.00 ± 2.48 %, 10.00 ± 0.00 points below FedAvg.**'
  )
  assert head == (
    '| algorithm | seeds | Test accuracy (%) | below FedAvg (points) |'
  )
  assert rows[:3] == [
    '| FedAvg, Q = 1, batch = 64 | 1 | 90.00 | – |',
    '| FedAvg, Q = 32, batch = 64 | 3 | 89.00 ± 2.48 | – |',
    '| CE-FedAvg, Q = 32, batch = 64 | 3 | 79.00 ± 2.48 | 10.00 ± 0.00 |',
  ]
  assert 'Figures are means over 1 or 3 seeds' in text


def test_many_results_are_told_by_the_best(write):
  text = write(
    **{
      f'rate_{rate}': dict(client_learning_rate=rate, accuracies=(0.1, rate))
      for rate in (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7)
    }
  ).read_text()
  assert (
    '**Of 7 algorithms and settings, FedAvg, η_l = 0.7 has the best test '
    'accuracy, 70.00 %; chosen on the test data, that is an optimistic '
    'figure.**'
  ) in text
  # They share a panel, by what they differ in.
  assert text.count('test_accuracy_by_round') == 1


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
  frames = frame.read_frames([*runs.values()])
  assert frames.runs['best_score'].to_list() == [1.5, 2.0]
  text = report.write_report(frames, tmp_path / 'out').read_text()
  assert '| Test mean absolute error | worse than FedAvg by |' in text
  assert '| CE-FedAvg | 3.000 | 0.500 |' in text
  assert 'CE-FedAvg 3.000, 0.500 worse than FedAvg' in text
  assert 'test_mean_absolute_error_by_round_mlp' in text
  assert 'ccuracy' not in text
  assert '%' not in text


def test_other_metrics_stand_beside_the_one_that_decides(write):
  text = write(
    a=dict(metrics={'test_recall': 0.25, 'test_top_5_accuracy': 0.75}),
    b=dict(model='alexnet'),
  ).read_text()
  heads = '| Test recall | Test top 5 accuracy (%) |'
  assert heads in text
  runs = text[text.index('## Run by run') : text.index('## What is missing')]
  cells = re.findall(r'^[|] (a|b) .*', runs, flags=re.MULTILINE)
  assert cells == ['a', 'b']
  assert ' | 0.2500 | 75.00 | ' in runs
  assert ' | – | – | ' in runs
  assert 'nan' not in runs


def test_runs_of_each_metric_have_a_table_of_their_own(write):
  text = write(
    a=dict(accuracies=(9.0, 2.0), metric=('loss', 'min')),
    b=dict(accuracies=(0.1, 0.9), model='alexnet'),
  ).read_text()
  runs = text[text.index('## Run by run') : text.index('## What is missing')]
  assert re.findall(r'^[|] run .*', runs, flags=re.MULTILINE) == [
    '| run | rounds | Test loss | best | s/round | folder |',
    '| run | rounds | Test accuracy (%) | best | s/round | folder |',
  ]
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
  ).read_text()
  assert '| FedAvg | 1 | 2.000 | – |' in text
  assert '| CE-FedAvg | 2 | 4.500 | 2.000 |' in text


def test_a_run_that_was_never_evaluated_is_no_result(write):
  text = write(a=dict(accuracies=('', ''))).read_text()
  assert '**No run has a finite test accuracy yet.**' in text


@pytest.mark.usefixtures('blank_figures')
def test_a_program_of_ones_own_is_shown_by_its_files(tmp_path):
  for name, column, last in (
    ('a', 'test_accuracy', 0.5),
    ('b', 'test_loss', 3),
  ):
    (tmp_path / name).mkdir()
    (tmp_path / name / 'metrics.csv').write_text(
      f'round_num,{column},epsilon\n0,0.1,\n1,{last},0.25\n'
    )
  with PrivacyLedger(tmp_path / 'a' / 'ledger.jsonl', PLAN):
    pass
  frames = frame.read_frames(
    [tmp_path / 'a', tmp_path / 'b'], named_by_settings=True
  )
  assert frames.runs['metric'].map(lambda each: each.name).to_list() == [
    'accuracy',
    'loss',
  ]
  text = report.write_report(frames, tmp_path / 'out').read_text()
  assert '**a has a test accuracy of 50.00 % (ε = 0.25' in text
  assert '**b has a test loss of 3.000.**' in text
  assert 'no FedAvg run' not in text


def test_runs_are_called_by_what_they_differ_in(tmp_path):
  folders = [
    run_folders.write_run(tmp_path / f'flagfile={name}_seed={seed}', **settings)
    for seed in (0, 1)
    for name, settings in (
      ('a', dict(seed=seed)),
      ('b', dict(seed=seed, server_optimizer='adam')),
    )
  ]
  frames = frame.read_frames(folders, named_by_settings=True)
  assert frames.runs.index.to_list() == [
    'FedAvg, SGD, seed 0',
    'FedAvg, Adam, seed 0',
    'FedAvg, SGD, seed 1',
    'FedAvg, Adam, seed 1',
  ]
  assert set(frames.rounds['run']) == set(frames.runs.index)
  assert frames.runs['folder'].to_list() == [each.name for each in folders]


def test_runs_that_nothing_tells_apart_are_called_by_their_folders(tmp_path):
  folders = [run_folders.write_run(tmp_path / name) for name in 'ab']
  frames = frame.read_frames(folders, named_by_settings=True)
  assert frames.runs.index.to_list() == ['FedAvg (a)', 'FedAvg (b)']


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
  frames = frame.read_frames(folders)
  text = report.write_report(frames, tmp_path / 'out').read_text()
  told = 'All private runs on EMNIST: Together, the 2 releases of 2 runs'
  assert text.count(told) == 1
  assert text.count('A promise.') == 1
  assert ' '.join(report.summary(frames).split()).count(told) == 1


def test_the_foot_says_how_the_report_was_made(read_runs, tmp_path):
  frames = read_runs(
    a=dict(versions={'numpy': '1.25.2'}),
    b=dict(versions={'numpy': '1.26.0'}, seed=1),
  )
  path = report.write_report(frames, tmp_path / 'out', made_by='By me today.')
  last = path.read_text().splitlines()[-1]
  assert last == 'By me today. The runs: numpy 1.25.2 and 1.26.0.'


def test_the_scatter_is_of_one_seed_in_three_rounds(read_runs):
  updates = {t: UPDATES[16] for t in (0, 2, 8, 16, 32, 59)}
  frames = read_runs(
    **{
      f'{algorithm}_{seed}': dict(
        algorithm=algorithm, seed=seed, updates=updates
      )
      for seed in (0, 1)
      for algorithm in ('fed_avg', 'ce_fed_avg')
    }
  )
  drawn = drawings.columns(frames, frames.runs)
  assert [each.name for each in drawn] == [
    f'updates_mlp_on_emnist_t_{t}.png' for t in (2, 16, 59)
  ]
  # Both algorithms of one seed, below each other.
  assert [len(each.draw().axes) for each in drawn[:1]] == [2]


def test_a_split_that_differs_by_seed_is_said_to_be_of_a_run(write):
  seeds = {
    f'seed{seed}': dict(
      seed=seed, partition_summary=f'{100 + seed} examples used'
    )
    for seed in (0, 1)
  }
  sentence = 'Partition of seed0: 100 examples used.'
  assert sentence in write(**seeds).read_text()
  sentence = 'Partition: 100 examples used.'
  assert sentence in write(alone=seeds['seed0']).read_text()


def test_panels_of_a_report_have_one_scale(write, monkeypatch):
  drawn = []
  draw = accuracy.draw_accuracy
  monkeypatch.setattr(
    accuracy,
    'draw_accuracy',
    lambda *args, **kwargs: drawn.append(draw(*args, **kwargs)) or drawn[-1],
  )
  write(
    a=dict(accuracies=(0.1, 0.5, 0.9)),
    b=dict(accuracies=(0.1, 0.2, 0.3), partition='iid'),
  )
  assert len(drawn) == 2
  assert len({ax.get_ylim() for each in drawn for ax in each.axes}) == 1


def test_report_of_no_run_is_refused(tmp_path):
  with pytest.raises(ValueError, match='found none .*: no such folder'):
    report.write_report(
      frame.read_frames([tmp_path / 'absent']), tmp_path / 'out'
    )
  assert not (tmp_path / 'out').exists()


def test_summary_table_has_a_line_for_each_run(read_runs):
  text = report.summary(read_runs(**THREE))
  lines = text.splitlines()
  assert lines[0].startswith('FedAvg has a test accuracy of 90.00 %;')
  (head,) = [n for n, line in enumerate(lines) if line.startswith('algorithm')]
  assert [line.split()[0] for line in lines[head + 2 : head + 5]] == [
    'FedAvg',
    'CE-FedAvg',
    'DP-FedAvg',
  ]
  assert max(map(len, lines)) <= 120


def test_several_budgets_give_accuracy_by_epsilon(write):
  privacy = PRIVACY | {'epsilon': 5.0, 'actual_epsilon': 5.0}
  text = write(**THREE, dp5=dict(PRIVATE, privacy=privacy)).read_text()
  assert '(epsilon_mlp_on_emnist_non_iid_label_skew.png)' in text


def test_exact_figures_of_a_private_run_are_labelled(write):
  private = dict(PRIVATE, updates=UPDATES, metrics={'clipped_fraction': 0.75})
  text = write(ce_fed_avg=THREE['ce_fed_avg'], dp_fed_avg=private).read_text()
  note = 'for simulation only: no part of the private release'
  assert '| 75† |' in text
  # Once, where the privacy is; the figures that show them are marked.
  assert text.count(note) == 1
  assert f"† dp_fed_avg: exact figures of the clients' updates, {note}" in text
  captions = [
    line
    for line in text.splitlines()
    if line.startswith('*') and line.endswith('†*')
  ]
  # The scatter, where it stands beside others.
  assert len(captions) == 1


def test_a_private_run_without_diagnostics_needs_no_label(write):
  metrics = dict.fromkeys(files.CLIENT_METRICS, '')
  text = write(dp_fed_avg=dict(PRIVATE, metrics=metrics)).read_text()
  assert 'simulation' not in text


def test_model_clipping_stands_beside_difference_clipping(write):
  text = write(
    **THREE,
    model=dict(
      algorithm='model_clipping_fed_avg', clipping_norm=7.5, updates=UPDATES
    ),
  ).read_text()
  assert '| Model clipping, c = 7.5 |' in text
  assert '| model | 2 | 90.00 | 90.00 | 7.5 |' in text
  assert 'c is a threshold on the norm of whole models' in text


def test_epsilon_of_the_sampler_stands_beside_the_papers(write):
  privacy = PRIVACY | {'sampling': 'paper', 'actual_epsilon': 6.5}
  text = write(dp=dict(PRIVATE, privacy=privacy)).read_text()
  assert "| 1.5 (sampler: 6.5) | the sampler's |" in text
  assert 'Where the sampler really gives another ε' in text


def test_unfinished_run_says_how_far_it_is_and_has_no_drop(write):
  text = write(
    fed_avg=dict(num_rounds=5),
    ce_fed_avg=dict(algorithm='ce_fed_avg', num_rounds=5),
  ).read_text()
  assert '| CE-FedAvg, 2 of 5 rounds | 90.00 |' in text
  assert (
    'Not compared with FedAvg: ce_fed_avg (fed_avg is not finished).' in text
  )


def test_an_audit_stands_beside_the_claim(write):
  text = write(
    **THREE,
    audited=dict(
      algorithm='dp_fed_avg',
      privacy=PRIVACY | {'sampling': 'paper', 'actual_epsilon': 6.5},
      audit=run_folders.AUDIT,
      audit_canaries=100,
    ),
  ).read_text()
  section = text[text.index('## Audits') :]
  row = next(line for line in section.splitlines() if '| audited |' in line)
  assert '| 98 + 102 | 1.5 | 6.5 | all releases | 0.25 | 0.75 | – |' in row
  assert row.endswith('| 3.1 (20.0) | 95% | no |')
  # Beside the run that was not audited, and not in its place.
  assert '| DP-FedAvg, poisson | 90.00 |' in text
  assert '| DP-FedAvg, audited, paper | 90.00 |' in text


def test_an_audit_that_cannot_be_used_is_named(write):
  audited = dict(PRIVATE, audit={'attacks': {}}, audit_canaries=100)
  text = write(audited=audited).read_text()
  assert 'audited: audit.json cannot be used' in text
  assert 'Audits: it needs a run with `--audit_canaries`.' in text


def test_an_epsilon_that_does_not_hold_is_said_with_the_reason(write):
  text = write(sound=PRIVATE).read_text()
  assert '| 1.5 | holds |' in text
  assert 'No guarantee' not in text
  privacy = PRIVACY | {'caveats': ['the noise is known']}
  text = write(broken=dict(PRIVATE, privacy=privacy)).read_text()
  assert '| 1.5 | no |' in text
  assert text.count('No guarantee as it was run: the noise is known.') == 1


def test_an_adaptive_threshold_and_its_noise_are_said_to_be_so(write):
  aggregation = 'The noise multiplier is that of both together.'
  privacy = PRIVACY | {'description': 'A promise.', 'aggregation': aggregation}
  text = write(
    fixed=dict(PRIVATE, privacy=privacy),
    moving=dict(PRIVATE, privacy=privacy, clipping='adaptive'),
  ).read_text()
  assert text.count('A promise.') == 1
  assert text.count(aggregation) == 1
  assert f'**moving**: {aggregation}' in text
  assert '| 1 at first |' in text
  assert '| 1 |' in text


@pytest.mark.usefixtures('blank_figures')
def test_a_caveat_of_the_ledger_alone_is_said(tmp_path):
  # That of a run that was killed before it wrote privacy.json again.
  privacy = PRIVACY | {'description': 'A promise.'}
  run = run_folders.write_run(
    tmp_path / 'run', **PRIVATE | dict(privacy=privacy)
  )
  with PrivacyLedger(run / 'ledger.jsonl', PLAN) as ledger:
    ledger.add_caveats(['the data changed'])
  path = report.write_report(frame.read_frames([run]), tmp_path / 'out')
  text = path.read_text()
  assert '| 1.5 | no |' in text
  assert 'No guarantee as it was run: the data changed. The plan: A p' in text


def test_exact_runs_beside_a_guarantee_are_not_to_be_published(write):
  warning = 'Do not publish this report as a whole.'
  text = write(exact=THREE['fed_avg'], private=dict(PRIVATE)).read_text()
  assert text.count(warning) == 1
  # One without a guarantee has none to lose, and one alone is covered.
  broken = dict(PRIVATE, privacy=PRIVACY | {'caveats': ['the noise is known']})
  text = write(other=THREE['fed_avg'], broken=broken).read_text()
  assert warning not in text
  assert warning not in write(alone=dict(PRIVATE)).read_text()


def test_several_deltas_stand_in_a_column(write):
  text = write(
    fed_avg=THREE['fed_avg'],
    **{
      name: dict(PRIVATE, privacy=PRIVACY | {'target_delta': delta})
      for name, delta in (('a', 1e-5), ('b', 2.5e-4))
    },
  ).read_text()
  assert '| FedAvg | 90.00 | – | – | – | – |' in text
  assert '| 1.5 | 10⁻⁵ | holds |' in text
  # Spaces at which no cell ends a line.
  assert '| 1.5 | 2.5\xa0·\xa010⁻⁴ | holds |' in text


def test_an_epsilon_for_examples_is_not_shown_as_one_for_clients(write):
  text = write(
    clients=dict(PRIVATE),
    examples=dict(PRIVATE, privacy=PRIVACY | {'unit': 'example'}),
  ).read_text()
  assert '| 1.5 | holds |' in text
  assert '| 1.5 for examples | holds |' in text
  assert '(ε = 1.5 for examples, and the guarantee holds)' in text


def test_a_run_of_which_no_privacy_is_known_promises_nothing(write):
  text = write(dp=dict(algorithm='dp_fed_avg')).read_text()
  assert '| not known |' in text


def test_how_many_examples_the_clients_have_is_not_of_a_private_report(write):
  summary = '4 clients, 20 to 777 examples'
  text = write(open=dict(partition_summary=summary)).read_text()
  assert '777' in text
  text = write(
    private=dict(
      PRIVATE,
      partition_summary=summary,
      metrics=dict.fromkeys(files.CLIENT_METRICS, ''),
    )
  ).read_text()
  assert '777' not in text


def test_runs_in_another_dtype_are_not_compared(read_runs):
  # An older run, which does not say it, is like the first.
  frames = read_runs(
    float32=dict(compute_dtype='float32'),
    bfloat16=dict(compute_dtype='bfloat16'),
    old=dict(algorithm='ce_fed_avg'),
  )
  assert frames.runs['algorithm_name'].to_list() == [
    'FedAvg',
    'FedAvg, bfloat16',
    'CE-FedAvg',
  ]
  assert frames.runs.at['old', 'fed_avg_run'] == 'float32'
