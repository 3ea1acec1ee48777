import re

import pytest

from analysis import report
from analysis.figures import accuracy
from analysis.runs import files, frame, run_tables
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


@pytest.fixture
def write(read_runs, tmp_path):
  """As `read_runs`, for the report on the runs: the path of report.md."""

  def write(**runs):
    return report.write_report(read_runs(**runs), tmp_path / 'out')

  return write


def test_report_refers_to_figures_that_are_there(write, tmp_path):
  path = write(**THREE)
  assert path == tmp_path / 'out' / 'report.md'
  pictures = re.findall(r'!\[[^\]]*\]\(([^)]*)\)', path.read_text())
  assert pictures == [
    'accuracy_emnist.png',
    'updates_mlp_on_emnist.png',
    'deviation_mlp_on_emnist_non_iid_label_skew.png',
  ]
  assert '<!--' not in path.read_text()
  for picture in pictures:
    assert (path.parent / picture).read_bytes().startswith(b'\x89PNG')


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


def test_html_refers_to_nothing_outside_itself(write):
  text = write(**THREE).with_suffix('.html').read_text()
  sources = re.findall(r'(?:src|href)="([^"]*)"', text)
  assert len(sources) == 3
  assert all(s.startswith('data:image/png;base64,') for s in sources)
  assert '://' not in text


def test_same_runs_give_the_same_bytes(read_runs, tmp_path):
  frames = read_runs(**THREE)
  for name in ('one', 'two'):
    report.write_report(frames, tmp_path / name)
  files = sorted(path.name for path in (tmp_path / 'one').iterdir())
  assert len(files) == 5
  for file in files:
    first = (tmp_path / 'one' / file).read_bytes()
    assert first == (tmp_path / 'two' / file).read_bytes()


def test_what_is_missing_is_named(read_runs, tmp_path):
  read_runs(**THREE)
  path = tmp_path / 'ce_fed_avg' / 'metrics.csv'
  path.write_text(path.read_text()[:-5])
  frames = frame.read_frames([tmp_path / name for name in (*THREE, 'absent')])
  text = report.write_report(frames, tmp_path / 'out').read_text()
  assert 'ce_fed_avg: metrics.csv is cut off' in text
  assert 'ce_fed_avg: 1 of 2 rounds' in text
  assert f'{tmp_path / "absent"}: left out: no such folder' in text
  assert 'Not recorded for: dp_fed_avg.' in text


def test_sections_without_runs_are_named_and_left_out(write):
  row = dict(task='mnist', examples_per_client=125)
  text = write(
    fed_avg=row, ce_fed_avg=dict(row, algorithm='ce_fed_avg')
  ).read_text()
  headings = re.findall(r'^##+ (.*)', text, flags=re.MULTILINE)
  assert 'Table 3' in headings
  assert not {'Table 2', 'Table 4', 'Accuracy by ε'} & set(headings)
  last = text[text.index('## Not shown') :]
  assert '- Accuracy by ε: it needs finished private runs' in last
  assert '- Concentration of norms and the drop by clipping: it needs' in last


def test_seeds_of_a_setting_share_a_table_and_others_have_the_reason(write):
  seeds = {
    f'{algorithm}_{seed}': dict(
      algorithm=algorithm,
      accuracies=(0.1, 0.9 - 0.1 * lost - 0.01 * seed),
      seed=seed,
    )
    for seed in (0, 7)
    for lost, algorithm in enumerate(('fed_avg', 'ce_fed_avg'))
  }
  text = write(
    **seeds, other=dict(num_rounds=1, seed=7), long=dict(num_rounds=2)
  ).read_text()
  assert '- long and fed_avg_0: num_rounds: 2 against 1\n' in text
  runs = text[text.index('## Runs') : text.index('## Accuracy by round')]
  assert runs.count('### MLP on EMNIST') == 2
  assert 'T = 1, η_l = 0.1, η_g = 1, seed = 0, 7, d = 159,010' in runs
  # Compared with FedAvg of its own seed.
  assert (
    '| ce_fed_avg_7 | 7 | CE-FedAvg | MLP | 1 | 73.00 | 73.00 | – |' in runs
  )


def test_each_seed_has_its_own_deviations(write):
  # Their thresholds are those of their seeds.
  text = write(
    **{
      f'{algorithm}_{seed}': dict(
        algorithm=algorithm,
        seed=seed,
        clipping_norm=1.0 + seed if algorithm == 'ce_fed_avg' else None,
        updates=UPDATES,
      )
      for seed in (0, 1)
      for algorithm in ('fed_avg', 'ce_fed_avg')
    }
  ).read_text()
  pictures = re.findall(r'\((deviation_[^)]*)\)', text)
  title = 'deviation_mlp_on_emnist_non_iid_label_skew_seed'
  assert pictures == [f'{title}_0.png', f'{title}_1.png']


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
    b=dict(accuracies=(0.1, 0.2, 0.3), local_steps=1),
  )
  (drawing,) = drawn
  assert len({ax.get_ylim() for ax in drawing.axes}) == 1


def test_report_of_no_run_is_refused(tmp_path):
  with pytest.raises(ValueError, match='found none .*: no such folder'):
    report.write_report(
      frame.read_frames([tmp_path / 'absent']), tmp_path / 'out'
    )
  assert not (tmp_path / 'out').exists()


def test_summary_table_has_a_line_for_each_run(read_runs):
  text = report.summary(read_runs(**THREE))
  lines = text.splitlines()
  assert lines[0] == 'MLP on EMNIST, non-IID (label skew)'
  assert [line.split()[0] for line in lines[3:6]] == [
    'FedAvg',
    'CE-FedAvg',
    'DP-FedAvg',
  ]
  assert max(map(len, lines)) <= 120


@pytest.mark.parametrize('own', [{}, {'aggregator': 'mine.py:half'}])
def test_several_pairs_give_the_rank_correlation(write, own):
  runs = {}
  for index, model in enumerate(('mlp', 'alexnet', 'resnet18')):
    metrics = {'update_norm_std': 0.1 * (index + 1)}
    shared = dict(model=model, metrics=metrics)
    runs[model] = dict(shared, accuracies=(0.1, 0.9))
    runs[f'{model}_clipped'] = dict(
      shared,
      algorithm='ce_fed_avg',
      accuracies=(0.1, 0.89 - 0.01 * index),
      **own,
    )
  text = write(**runs).read_text()
  # What another aggregator loses is not lost by clipping.
  assert ('Spearman ρ = 1.00' in text) == (not own)


def test_several_budgets_give_accuracy_by_epsilon(write):
  privacy = PRIVACY | {'epsilon': 5.0, 'actual_epsilon': 5.0}
  text = write(**THREE, dp5=dict(PRIVATE, privacy=privacy)).read_text()
  assert '(epsilon_mlp_on_emnist_non_iid_label_skew.png)' in text


def test_exact_figures_of_a_private_run_are_labelled(write):
  private = dict(PRIVATE, updates=UPDATES, metrics={'clipped_fraction': 0.75})
  text = write(ce_fed_avg=THREE['ce_fed_avg'], dp_fed_avg=private).read_text()
  note = 'for simulation only: no part of the private release'
  assert '| 75† |' in text
  assert f"† exact figures of the clients' updates, {note}" in text
  captions = [
    line
    for line in text.splitlines()
    if line.startswith('*') and line.endswith('*')
  ]
  labelled = [line for line in captions if 'dp_fed_avg: exact' in line]
  assert all(note in line for line in labelled)
  # The scatter and the deviations, where it stands beside others.
  assert len(labelled) == 2


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
  assert '| Model clipping |' in text
  assert '| 7.5 |' in text
  assert 'c is a threshold on the norm of whole models' in text


def test_terms_of_the_bound_are_drawn_with_the_constants(write):
  clipped = dict(THREE['ce_fed_avg'], constants=run_folders.CONSTANTS)
  text = write(**THREE | dict(ce_fed_avg=clipped)).read_text()
  assert '(bound_mlp_on_emnist_non_iid_label_skew.png)' in text
  assert '- ce_fed_avg: η_g η_l <= ' in text


def test_epsilon_of_the_sampler_stands_beside_the_papers(write):
  privacy = PRIVACY | {'sampling': 'paper', 'actual_epsilon': 6.5}
  text = write(dp=dict(PRIVATE, privacy=privacy)).read_text()
  assert '| 1.5 (sampler: 6.5) |' in text


def test_unfinished_run_says_how_far_it_is_and_has_no_drop(write):
  text = write(
    fed_avg=dict(num_rounds=5),
    ce_fed_avg=dict(algorithm='ce_fed_avg', num_rounds=5),
  ).read_text()
  assert '| CE-FedAvg | MLP | 2 of 5 | 90.00 | 90.00 | – |' in text
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
  assert '| DP-FedAvg | MLP |' in text
  assert '| DP-FedAvg, audited | MLP |' in text


def test_an_audit_that_cannot_be_used_is_named(write):
  audited = dict(PRIVATE, audit={'attacks': {}}, audit_canaries=100)
  text = write(audited=audited).read_text()
  assert 'audited: audit.json cannot be used' in text
  assert 'Audits: it needs a run with `--audit_canaries`.' in text


def test_an_epsilon_that_does_not_hold_is_marked(write):
  assert run_tables.CAVEAT_MARK not in write(sound=PRIVATE).read_text()
  privacy = PRIVACY | {'caveats': ['the noise is known']}
  text = write(broken=dict(PRIVATE, privacy=privacy)).read_text()
  assert text.count(run_tables.CAVEAT_MARK) == 2
  assert f'{run_tables.CAVEAT_MARK} {run_tables.CAVEAT_NOTE}' in text


def test_a_caveat_of_the_ledger_alone_is_marked(tmp_path):
  # That of a run that was killed before it wrote privacy.json again.
  run = run_folders.write_run(tmp_path / 'run', **PRIVATE)
  with PrivacyLedger(run / 'ledger.jsonl', PLAN) as ledger:
    ledger.add_caveats(['the data changed'])
  path = report.write_report(frame.read_frames([run]), tmp_path / 'out')
  assert run_tables.CAVEAT_MARK in path.read_text()


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
