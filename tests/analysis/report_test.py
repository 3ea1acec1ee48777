import json
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
PRIVACY = {
  'noise_multiplier': 1.53,
  'target_delta': 1e-5,
  'sampling': 'poisson',
  'accountant': 'rdp',
  'epsilon': 1.5,
  'actual_epsilon': 1.5,
}


def _write_runs(root):
  return [
    run_folders.write_run(root / 'fed_avg', updates=UPDATES),
    run_folders.write_run(
      root / 'ce_fed_avg', algorithm='ce_fed_avg', updates=UPDATES
    ),
    run_folders.write_run(
      root / 'dp_fed_avg', algorithm='dp_fed_avg', privacy=PRIVACY
    ),
  ]


def _write(folders, output):
  return report.write_report(frame.read_frames(folders), output)


def test_report_refers_to_figures_that_are_there(tmp_path):
  path = _write(_write_runs(tmp_path), tmp_path / 'out')
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


def test_figures_of_an_earlier_report_do_not_stay(tmp_path):
  folders, output = _write_runs(tmp_path), tmp_path / 'out'
  _write(folders, output)
  (output / 'mine.png').write_bytes(b'mine')
  other = tmp_path / 'other'
  other.mkdir()
  (other / 'report.md').write_text('# Mine\n![a](updates_a.png)\n')
  (other / 'updates_a.png').write_bytes(b'mine')
  _write(folders, other)
  assert (other / 'updates_a.png').exists()
  path = _write(folders[2:], output)
  pictures = re.findall(r'\]\(([^)]*)\)', path.read_text())
  left = {each.name for each in output.glob('*.png')}
  assert left == {*pictures, 'mine.png'}
  assert not any(name.startswith('updates') for name in left)


def test_html_refers_to_nothing_outside_itself(tmp_path):
  path = _write(_write_runs(tmp_path), tmp_path / 'out')
  text = path.with_suffix('.html').read_text()
  sources = re.findall(r'(?:src|href)="([^"]*)"', text)
  assert len(sources) == 3
  assert all(s.startswith('data:image/png;base64,') for s in sources)
  assert '://' not in text


def test_same_runs_give_the_same_bytes(tmp_path):
  folders = _write_runs(tmp_path)
  for name in ('one', 'two'):
    _write(folders, tmp_path / name)
  files = sorted(path.name for path in (tmp_path / 'one').iterdir())
  assert len(files) == 5
  for file in files:
    first = (tmp_path / 'one' / file).read_bytes()
    assert first == (tmp_path / 'two' / file).read_bytes()


def test_what_is_missing_is_named(tmp_path):
  folders = _write_runs(tmp_path)
  path = folders[1] / 'metrics.csv'
  path.write_text(path.read_text()[:-5])
  text = _write([*folders, tmp_path / 'absent'], tmp_path / 'out').read_text()
  assert 'ce_fed_avg: metrics.csv is cut off' in text
  assert 'ce_fed_avg: 1 of 2 rounds' in text
  assert f'{tmp_path / "absent"}: left out: no such folder' in text
  assert 'Not recorded for: dp_fed_avg.' in text


def test_sections_without_runs_are_named_and_left_out(tmp_path):
  run_folders.write_row(
    tmp_path / 'runs',
    {'fed_avg': 0.94, 'ce_fed_avg': 0.92},
    task='mnist',
    examples_per_client=125,
  )
  folders = sorted((tmp_path / 'runs').iterdir())
  text = _write(folders, tmp_path / 'out').read_text()
  headings = re.findall(r'^##+ (.*)', text, flags=re.MULTILINE)
  assert 'Table 3' in headings
  assert not {'Table 2', 'Table 4', 'Accuracy by ε'} & set(headings)
  last = text[text.index('## Not shown') :]
  assert '- Accuracy by ε: it needs finished private runs' in last
  assert '- Concentration of norms and the drop by clipping: it needs' in last


def test_seeds_of_a_setting_share_a_table_and_others_have_the_reason(tmp_path):
  folders = [
    run_folders.write_run(
      tmp_path / f'{algorithm}_{seed}',
      algorithm=algorithm,
      accuracies=(0.1, 0.9 - 0.1 * lost - 0.01 * seed),
      seed=seed,
    )
    for seed in (0, 7)
    for lost, algorithm in enumerate(('fed_avg', 'ce_fed_avg'))
  ]
  folders.append(
    run_folders.write_run(tmp_path / 'other', num_rounds=1, seed=7)
  )
  folders.append(run_folders.write_run(tmp_path / 'long', num_rounds=2))
  text = _write(folders, tmp_path / 'out').read_text()
  assert '- long and fed_avg_0: num_rounds: 2 against 1\n' in text
  runs = text[text.index('## Runs') : text.index('## Accuracy by round')]
  assert runs.count('### MLP on EMNIST') == 2
  assert 'T = 1, η_l = 0.1, η_g = 1, seed = 0, 7, d = 159,010' in runs
  # Compared with FedAvg of its own seed.
  assert (
    '| ce_fed_avg_7 | 7 | CE-FedAvg | MLP | 1 | 73.00 | 73.00 | – |' in runs
  )


def test_each_seed_has_its_own_deviations(tmp_path):
  # Their thresholds are those of their seeds.
  folders = [
    run_folders.write_run(
      tmp_path / f'{algorithm}_{seed}',
      algorithm=algorithm,
      seed=seed,
      clipping_norm=1.0 + seed if algorithm == 'ce_fed_avg' else None,
      updates=UPDATES,
    )
    for seed in (0, 1)
    for algorithm in ('fed_avg', 'ce_fed_avg')
  ]
  text = _write(folders, tmp_path / 'out').read_text()
  pictures = re.findall(r'\((deviation_[^)]*)\)', text)
  title = 'deviation_mlp_on_emnist_non_iid_label_skew_seed'
  assert pictures == [f'{title}_0.png', f'{title}_1.png']


def test_a_split_that_differs_by_seed_is_said_to_be_of_a_run(tmp_path):
  folders = []
  for seed in (0, 1):
    folder = run_folders.write_run(tmp_path / f'seed{seed}', seed=seed)
    path = folder / 'config.json'
    config = json.loads(path.read_text())
    config['task']['partition'] = f'{100 + seed} examples used'
    path.write_text(json.dumps(config))
    folders.append(folder)
  sentence = 'Partition of seed0: 100 examples used.'
  assert sentence in _write(folders, tmp_path / 'a').read_text()
  sentence = 'Partition: 100 examples used.'
  assert sentence in _write(folders[:1], tmp_path / 'b').read_text()


def test_panels_of_a_report_have_one_scale(tmp_path, monkeypatch):
  drawn = []
  draw = accuracy.draw_accuracy
  monkeypatch.setattr(
    accuracy,
    'draw_accuracy',
    lambda *args, **kwargs: drawn.append(draw(*args, **kwargs)) or drawn[-1],
  )
  _write(
    [
      run_folders.write_run(tmp_path / 'a', accuracies=(0.1, 0.5, 0.9)),
      run_folders.write_run(
        tmp_path / 'b', accuracies=(0.1, 0.2, 0.3), local_steps=1
      ),
    ],
    tmp_path / 'out',
  )
  (drawing,) = drawn
  assert len({ax.get_ylim() for ax in drawing.axes}) == 1


def test_report_of_no_run_is_refused(tmp_path):
  with pytest.raises(ValueError, match='found none .*: no such folder'):
    _write([tmp_path / 'absent'], tmp_path / 'out')
  assert not (tmp_path / 'out').exists()


def test_summary_table_has_a_line_for_each_run(tmp_path):
  text = report.summary(frame.read_frames(_write_runs(tmp_path)))
  lines = text.splitlines()
  assert lines[0] == 'MLP on EMNIST, non-IID (label skew)'
  assert [line.split()[0] for line in lines[3:6]] == [
    'FedAvg',
    'CE-FedAvg',
    'DP-FedAvg',
  ]
  assert max(map(len, lines)) <= 120


@pytest.mark.parametrize('own', [{}, {'aggregator': 'mine.py:half'}])
def test_several_pairs_give_the_rank_correlation(tmp_path, own):
  folders = []
  for index, model in enumerate(('mlp', 'alexnet', 'resnet18')):
    for algorithm in ('fed_avg', 'ce_fed_avg'):
      lost = 0.01 * (index + 1) if algorithm == 'ce_fed_avg' else 0.0
      folders.append(
        run_folders.write_run(
          tmp_path / f'{model}_{algorithm}',
          algorithm=algorithm,
          model=model,
          accuracies=(0.1, 0.9 - lost),
          metrics={'update_norm_std': 0.1 * (index + 1)},
          **(own if algorithm == 'ce_fed_avg' else {}),
        )
      )
  text = _write(folders, tmp_path / 'out').read_text()
  # What another aggregator loses is not lost by clipping.
  assert ('Spearman ρ = 1.00' in text) == (not own)


def test_several_budgets_give_accuracy_by_epsilon(tmp_path):
  folders = _write_runs(tmp_path)
  folders.append(
    run_folders.write_run(
      tmp_path / 'dp5',
      algorithm='dp_fed_avg',
      privacy=PRIVACY | {'epsilon': 5.0, 'actual_epsilon': 5.0},
    )
  )
  text = _write(folders, tmp_path / 'out').read_text()
  assert '(epsilon_mlp_on_emnist_non_iid_label_skew.png)' in text


def test_exact_figures_of_a_private_run_are_labelled(tmp_path):
  folders = [
    run_folders.write_run(
      tmp_path / 'ce_fed_avg', algorithm='ce_fed_avg', updates=UPDATES
    ),
    run_folders.write_run(
      tmp_path / 'dp_fed_avg',
      algorithm='dp_fed_avg',
      privacy=PRIVACY,
      updates=UPDATES,
      metrics={'clipped_fraction': 0.75},
    ),
  ]
  text = _write(folders, tmp_path / 'out').read_text()
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


def test_a_private_run_without_diagnostics_needs_no_label(tmp_path):
  folder = run_folders.write_run(
    tmp_path / 'dp_fed_avg',
    algorithm='dp_fed_avg',
    privacy=PRIVACY,
    metrics={
      'update_norm_mean': '',
      'update_norm_std': '',
      'update_norm_max': '',
    },
  )
  text = _write([folder], tmp_path / 'out').read_text()
  assert 'simulation' not in text


def test_model_clipping_stands_beside_difference_clipping(tmp_path):
  folders = _write_runs(tmp_path)
  folders.append(
    run_folders.write_run(
      tmp_path / 'model',
      algorithm='model_clipping_fed_avg',
      clipping_norm=7.5,
      updates=UPDATES,
    )
  )
  text = _write(folders, tmp_path / 'out').read_text()
  assert '| Model clipping |' in text
  assert '| 7.5 |' in text
  assert 'c is a threshold on the norm of whole models' in text


def test_terms_of_the_bound_are_drawn_with_the_constants(tmp_path):
  folders = _write_runs(tmp_path)
  (folders[1] / 'constants.json').write_text(
    '{"smoothness": 2.0, "gradient_bound": 3.0, "local_stddev": 0.5,'
    ' "global_stddev": 0.25, "initial_gap": 1.5}'
  )
  text = _write(folders, tmp_path / 'out').read_text()
  assert '(bound_mlp_on_emnist_non_iid_label_skew.png)' in text
  assert '- ce_fed_avg: η_g η_l <= ' in text


def test_epsilon_of_the_sampler_stands_beside_the_papers(tmp_path):
  folder = run_folders.write_run(
    tmp_path / 'dp',
    algorithm='dp_fed_avg',
    privacy=PRIVACY | {'sampling': 'paper', 'actual_epsilon': 6.5},
  )
  text = _write([folder], tmp_path / 'out').read_text()
  assert '| 1.5 (sampler: 6.5) |' in text


def test_unfinished_run_says_how_far_it_is_and_has_no_drop(tmp_path):
  folders = [
    run_folders.write_run(tmp_path / name, algorithm=name, num_rounds=5)
    for name in ('fed_avg', 'ce_fed_avg')
  ]
  text = _write(folders, tmp_path / 'out').read_text()
  assert '| CE-FedAvg | MLP | 2 of 5 | 90.00 | 90.00 | – |' in text
  assert (
    'Not compared with FedAvg: ce_fed_avg (fed_avg is not finished).' in text
  )


def test_an_audit_stands_beside_the_claim(tmp_path):
  folders = _write_runs(tmp_path)
  folders.append(
    run_folders.write_run(
      tmp_path / 'audited',
      algorithm='dp_fed_avg',
      privacy=PRIVACY | {'sampling': 'paper', 'actual_epsilon': 6.5},
      audit=run_folders.AUDIT,
      audit_canaries=100,
    )
  )
  text = _write(folders, tmp_path / 'out').read_text()
  section = text[text.index('## Audits') :]
  row = next(line for line in section.splitlines() if '| audited |' in line)
  assert '| 98 + 102 | 1.5 | 6.5 | all releases | 0.25 | 0.75 | – |' in row
  assert row.endswith('| 3.1 (20.0) | 95% | no |')
  # Beside the run that was not audited, and not in its place.
  assert '| DP-FedAvg | MLP |' in text
  assert '| DP-FedAvg, audited | MLP |' in text


def test_an_audit_that_cannot_be_used_is_named(tmp_path):
  folder = run_folders.write_run(
    tmp_path / 'audited',
    algorithm='dp_fed_avg',
    privacy=PRIVACY,
    audit={'attacks': {}},
    audit_canaries=100,
  )
  text = _write([folder], tmp_path / 'out').read_text()
  assert 'audited: audit.json cannot be used' in text
  assert 'Audits: it needs a run with `--audit_canaries`.' in text


def test_an_epsilon_that_does_not_hold_is_marked(tmp_path):
  private = dict(algorithm='dp_fed_avg', privacy=PRIVACY)
  sound = run_folders.write_run(tmp_path / 'sound', **private)
  assert (
    run_tables.CAVEAT_MARK not in _write([sound], tmp_path / 'a').read_text()
  )
  private['privacy'] = PRIVACY | {'caveats': ['the noise is known']}
  broken = run_folders.write_run(tmp_path / 'broken', **private)
  text = _write([broken], tmp_path / 'b').read_text()
  assert text.count(run_tables.CAVEAT_MARK) == 2
  assert f'{run_tables.CAVEAT_MARK} {run_tables.CAVEAT_NOTE}' in text


def test_a_caveat_of_the_ledger_alone_is_marked(tmp_path):
  # That of a run that was killed before it wrote privacy.json again.
  run = run_folders.write_run(
    tmp_path / 'run', algorithm='dp_fed_avg', privacy=PRIVACY
  )
  with PrivacyLedger(run / 'ledger.jsonl', PLAN) as ledger:
    ledger.add_caveats(['the data changed'])
  assert run_tables.CAVEAT_MARK in _write([run], tmp_path / 'a').read_text()


def test_how_many_examples_the_clients_have_is_not_of_a_private_report(
  tmp_path,
):
  texts = []
  for name, private in (
    ('open', {}),
    (
      'private',
      dict(
        algorithm='dp_fed_avg',
        privacy=PRIVACY,
        metrics={name: float('nan') for name in files.CLIENT_METRICS},
      ),
    ),
  ):
    folder = run_folders.write_run(tmp_path / name, **private)
    path = folder / 'config.json'
    config = json.loads(path.read_text())
    config['task']['partition'] = '4 clients, 20 to 777 examples'
    path.write_text(json.dumps(config))
    texts.append(_write([folder], tmp_path / f'{name} report').read_text())
  assert ['777' in text for text in texts] == [True, False]


def test_runs_in_another_dtype_are_not_compared(tmp_path):
  folders = [
    run_folders.write_run(tmp_path / dtype, compute_dtype=dtype)
    for dtype in ('float32', 'bfloat16')
  ]
  # An older run, which does not say it, is like the first.
  folders.append(
    run_folders.write_run(tmp_path / 'old', algorithm='ce_fed_avg')
  )
  frames = frame.read_frames(folders)
  assert frames.runs['algorithm_name'].to_list() == [
    'FedAvg',
    'FedAvg, bfloat16',
    'CE-FedAvg',
  ]
  assert frames.runs.at['old', 'fed_avg_run'] == 'float32'
