"""What a report says and shows, in its order."""

import functools
import html
import io
import re

import pytest
from matplotlib import figure

from analysis import figures, report, stats
from analysis.runs import CLIENT_METRICS
from tests.analysis import run_folders
from tests.privacy.ledgers import PLAN
from tff_clipping.privacy import PrivacyLedger

UPDATES = {
  0: [('a', 2.0, '', 0.5), ('b', 4.0, '', 0.25)],
  16: [('a', 1.0, 60.0, 1.0), ('b', 3.0, 90.0, 0.3)],
}
PRIVACY = run_folders.PRIVACY
PRIVATE = run_folders.PRIVATE
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


def test_report_refers_to_figures_that_are_there_and_to_nothing_else(of_three):
  text = of_three.read_text()
  pictures = re.findall(r'!\[[^\]]*\]\(([^)]*)\)', text)
  assert pictures == [
    'test_accuracy_by_round_mlp_on_emnist_non_iid_label_skew.png',
    'updates_mlp_on_emnist_t_16.png',
  ]
  assert '<!--' not in text
  for picture in pictures:
    assert (of_three.parent / picture).read_bytes().startswith(b'\x89PNG')
  html = of_three.with_suffix('.html').read_text()
  sources = re.findall(r'(?:src|href)="([^"]*)"', html)
  assert len(sources) == 2
  assert all(s.startswith('data:image/png;base64,') for s in sources)
  assert '://' not in html


@pytest.mark.usefixtures('blank_figures')
def test_figures_of_an_earlier_report_do_not_stay(read_runs, tmp_path):
  found, output = read_runs(**THREE), tmp_path / 'out'
  report.write_report(found, output)
  (output / 'mine.png').write_bytes(b'mine')
  path = report.write_report(read_runs(dp=PRIVATE), output)
  pictures = re.findall(r'\]\(([^)]*)\)', path.read_text())
  left = {each.name for each in output.glob('*.png')}
  assert left == {*pictures, 'mine.png'}
  assert not any(name.startswith('updates') for name in left)


@pytest.mark.usefixtures('blank_figures')
def test_names_are_no_markup_and_no_figures(read_runs, tmp_path):
  name = '*x*](mine.png)<b>_'
  found = read_runs(
    a=dict(task=f'{name}.npz'),
    **{name: dict(algorithm='ce_fed_avg', task=f'{name}.npz')},
  )
  output = tmp_path / 'out'
  output.mkdir()
  (output / 'mine.png').write_bytes(b'mine')
  path = report.write_report(found, output, made_by=f'Made by "{name}".')
  assert r'\*x\*\](mine.png)\<b>\_' in path.read_text()
  page = path.with_suffix('.html').read_text()
  assert not re.search('<em>x|<b>|src="[^d]', page)
  # The caption, the settings, the folder and the command.
  shown = html.unescape(re.sub('<[^>]*>', '', page))
  assert shown.count(name) == 4
  # It is no figure of the earlier report.
  report.write_report(read_runs(dp=PRIVATE), output)
  assert (output / 'mine.png').read_bytes() == b'mine'


@pytest.mark.parametrize('name', ['report.md', 'report.html'])
def test_a_report_of_somebody_else_is_not_overwritten(
  read_runs, tmp_path, name
):
  (tmp_path / name).write_text('# Mine\n')
  with pytest.raises(ValueError, match='`output` must be .* none of ours'):
    report.write_report(read_runs(**THREE), tmp_path)
  assert (tmp_path / name).read_text() == '# Mine\n'


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
  assert 'Updates are not recorded: FedAvg, seed 1; DP-FedAvg, seed 0.' in text


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
  assert 'means over seeds (1 or 3 a row)' in text


def _private(**privacy):
  return dict(PRIVATE, privacy=PRIVACY | privacy)


_LOSS = dict(metric=('loss', 'min'))
_ERROR = dict(metric=('mean_absolute_error', 'min'))
_ADAPTIVE = 'The noise multiplier is that of both together.'
_COST = 'The clipping norm comes from a: epsilon 1.5 of it is spent too.'
_SIMULATED = dict(algorithm='dp_fed_avg', noise_clients_per_round=80)
_WARNING = 'Do not publish this report as a whole.'
_SPLIT = '4 clients, 20 to 777 examples'


@pytest.mark.parametrize(
  ('runs', 'said', 'unsaid'),
  [
    # Many results are told by the best; sections without runs are left out.
    (
      {
        f'{rate}': dict(client_learning_rate=rate, accuracies=(0.1, rate))
        for rate in (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7)
      },
      [
        '**Of 7 algorithms and settings, FedAvg, η_l = 0.7 has the best test '
        'accuracy, 70.00 %; chosen on the test data, that is an optimistic '
        'figure.**'
      ],
      ['## Privacy', '## By ε', '## Norms', '## Audits'],
    ),
    (
      dict(a=dict(accuracies=('', ''))),
      [
        '**No run has a finite test accuracy yet.**',
        '- Not evaluated yet: FedAvg.',
      ],
      ['## By', 'nan'],
    ),
    # A metric of which less is better.
    (
      dict(
        a=dict(_ERROR, accuracies=(8.0, 1.5, 2.5)),
        b=dict(_ERROR, algorithm='ce_fed_avg', accuracies=(8.0, 2.0, 3.0)),
      ),
      [
        '| Test mean absolute error | worse than FedAvg by |',
        '| CE-FedAvg | 3.000 | 0.500 |',
        'CE-FedAvg: 3.000, 0.500 worse than FedAvg',
        'test_mean_absolute_error_by_round_mlp',
      ],
      ['ccuracy', '(%)', 'points'],
    ),
    # Metrics that do not decide.
    (
      dict(
        a=dict(metrics={'test_recall': 0.25, 'test_top_5_accuracy': 0.75}),
        b=dict(model='alexnet'),
      ),
      [
        '| Test recall | Test top 5 accuracy (%) |',
        ' | 0.2500 | 75.00 | ',
        ' | – | – | ',
      ],
      ['nan'],
    ),
    (
      dict(
        a=dict(
          metric=('perplexity', 'min'),
          accuracies=(8.0, 2.5),
          metrics={'test_accuracy': 0.75},
        )
      ),
      ['| Test perplexity | Test accuracy (%) |', '| 2.500 | 75.00 |'],
      [],
    ),
    # A seed without a finite figure is no part of the mean, and is named.
    (
      dict(
        a=dict(_LOSS, accuracies=(9.0, 2.0)),
        b=dict(_LOSS, accuracies=(9.0, float('inf')), seed=1),
        c=dict(_LOSS, accuracies=(9.0, 4.0), algorithm='ce_fed_avg'),
      ),
      [
        '| FedAvg | 2.000 | – |',
        '| CE-FedAvg | 4.000 | 2.000 |',
        'Not finite at the end, and in no mean: FedAvg, seed 1.',
      ],
      [],
    ),
    # The last evaluation counts, though an earlier one has a figure.
    (
      dict(a=dict(accuracies=(0.1, 0.95, ''), metrics={'test_loss': 1.0})),
      ['No run has a finite test accuracy yet.', 'Not finite at the end'],
      ['95.00', 'Not evaluated yet'],
    ),
    # A drop is of the seeds that both have; what lost a seed is not the best.
    (
      {
        **{
          f'a{seed}': dict(accuracies=(0.1, 0.9 + 0.01 * seed), seed=seed)
          for seed in (0, 1)
        },
        **{
          f'c{seed}': dict(
            algorithm='ce_fed_avg', accuracies=(0.1, 0.8), seed=seed
          )
          for seed in (0, 1, 2)
        },
        **{
          f'r{rate}': dict(
            client_learning_rate=rate,
            accuracies=(0.1, 0.85 if rate < 0.5 else 0.99),
          )
          for rate in (0.2, 0.3, 0.4, 0.5, 0.6)
        },
        'lost': dict(
          client_learning_rate=0.5, seed=1, accuracies=(0.1,), num_rounds=1
        ),
        'nan': dict(
          client_learning_rate=0.6,
          seed=1,
          accuracies=(0.1, ''),
          metrics={'test_loss': 1.0},
        ),
      },
      [
        '10.50 (2 of the seeds) |',
        '**Of 5 algorithms and settings, FedAvg, η_l = 0.1 has the best test '
        'accuracy, 90.50 %;',
      ],
      [],
    ),
    # A large figure beside a small one takes no digit from it.
    (
      dict(
        a=dict(_ERROR, accuracies=(8.0, 0.4139)),
        b=dict(_ERROR, accuracies=(8.0, 30657.0), client_learning_rate=3.0),
      ),
      ['| FedAvg, η_l = 0.1 | 0.4139 |', '| FedAvg, η_l = 3 | 30657 |'],
      [],
    ),
    # A name with "accuracy" need be no share, nor better when it is more.
    (
      dict(
        a=dict(metric=('miss_accuracy', 'min'), accuracies=(0.9, 0.38)),
        b=dict(
          algorithm='ce_fed_avg',
          metric=('miss_accuracy', 'min'),
          accuracies=(0.9, 0.5),
        ),
      ),
      ['CE-FedAvg: 0.5000, 0.1200 worse than FedAvg'],
      ['points below'],
    ),
    (
      dict(a=dict(metric=('accuracy_mm', 'min'), accuracies=(9.0, 2.445))),
      ['FedAvg has a test accuracy mm of 2.445'],
      ['left out'],
    ),
    # A part of the data has the same people.
    (
      dict(
        exact=dict(task='mnist', partition='natural'),
        private=dict(PRIVATE, task='mnist_even', partition='natural'),
      ),
      [_WARNING],
      [],
    ),
    # And so has one file by two paths.
    (
      dict(
        exact=dict(task='mine.npz', partition='natural'),
        private=dict(PRIVATE, task='/home/me/mine.npz', partition='natural'),
      ),
      [_WARNING],
      [],
    ),
    # Names are no mathematics, and their files differ.
    (
      {
        'one': dict(task='a$x_{$b-1.npz'),
        'two': dict(task='a$x_{$b_1.npz', seed=1),
      },
      [
        '_b_1_npz_non_iid_label_skew.png)',
        '_b_1_npz_non_iid_label_skew_2.png)',
      ],
      [],
    ),
    (dict(a=dict(model_seed=0)), [], ['share their initial']),
    (
      {
        f'{seed}': dict(seed=seed, model_seed=model)
        for seed, model in enumerate((0, 0, 1))
      },
      ['The seeds of FedAvg share their initial model'],
      ['share their split'],
    ),
    (
      {f'{model}': dict(model_seed=model) for model in (0, 1, 2)},
      ['Runs of FedAvg share their split and their shuffling'],
      ['share their initial'],
    ),
    # The split is that of a run, and a period stands once.
    (
      {
        f'{seed}': dict(seed=seed, partition_summary=f'{100 + seed} examples.')
        for seed in (0, 1)
      },
      ['Partition of FedAvg, seed 0: 100 examples.\n', 'numpy 1.25.2.'],
      ['share their initial', '101'],
    ),
    # How many examples the clients have is no part of a private report.
    (
      dict(
        private=dict(
          PRIVATE,
          partition_summary=_SPLIT,
          metrics=dict.fromkeys(CLIENT_METRICS, ''),
        )
      ),
      ['| 1.5 | holds |'],
      ['777'],
    ),
    # Why a run is not compared, by names of the report.
    (
      {
        'one/run': dict(algorithm='ce_fed_avg', num_rounds=5),
        'two/run': dict(num_rounds=5),
      },
      ['(FedAvg, 2 of 5 rounds is not finished)'],
      [],
    ),
    # An ε, with what it holds for.
    (
      dict(a=PRIVATE),
      ['| 1.5 | holds |', '(ε = 1.5, and the guarantee holds)'],
      ['No guarantee', _WARNING],
    ),
    (
      dict(a=_private(caveats=['the noise is known'])),
      [
        '| 1.5 | no |',
        '(ε = 1.5 by the plan, no guarantee as it was run)',
        'No guarantee as it was run: the noise is known.',
      ],
      [],
    ),
    (
      dict(a=_private(sampling='paper', actual_epsilon=6.5)),
      ['| 6.5 (the paper’s: 1.5) | holds |'],
      ['No guarantee'],
    ),
    (
      dict(a=dict(algorithm='dp_fed_avg')),
      ['| not known |', '(nothing is known of its guarantee)'],
      ['by the plan'],
    ),
    # A promise names its run where another one promises nothing.
    *(
      (
        dict(a=_private(description='A promise.'), b=dict(other, seed=1)),
        ['**DP-FedAvg, seed 0**: A promise.'],
        [],
      )
      for other in (dict(algorithm='dp_fed_avg'), _SIMULATED)
    ),
    # Not as one for clients.
    (
      dict(a=_private(unit='example')),
      [
        '| 1.5 for examples | holds |',
        '(ε = 1.5 for examples, and the guarantee holds)',
      ],
      ['No guarantee'],
    ),
    # An adaptive threshold, and its noise.
    (
      dict(
        fixed=_private(description='A promise.', aggregation=_ADAPTIVE),
        moving=dict(
          _private(description='A promise.', aggregation=_ADAPTIVE),
          clipping='adaptive',
        ),
      ),
      [
        'A promise.',
        f'**DP-FedAvg, clipping = adaptive**: {_ADAPTIVE}',
        '| 1 at first |',
        '| 1 |',
      ],
      [],
    ),
    # Exact runs beside a guarantee are not to be published; a broken guarantee
    # has nothing to lose.
    (dict(exact=THREE['fed_avg'], private=PRIVATE), [_WARNING], []),
    (
      dict(
        exact=THREE['fed_avg'],
        private=_private(caveats=['the noise is known']),
      ),
      [],
      [_WARNING],
    ),
    (
      dict(private=PRIVATE, simulated=_SIMULATED),
      [
        _WARNING,
        '| simulated |',
        '(a simulation of the noise of other cohorts: no guarantee)',
      ],
      ['privacy.json is missing'],
    ),
    # What a threshold has cost.
    (dict(paid=_private(with_clipping_norm=_COST)), [_COST], []),
    # Several δ stand in a column; no line is broken at their spaces.
    (
      dict(
        fed_avg=THREE['fed_avg'],
        a=PRIVATE,
        b=_private(target_delta=2.5e-4),
      ),
      [
        '| FedAvg | 90.00 | – | – | – | – |',
        '| 1.5 | 10⁻⁵ | holds |',
        '| 1.5 | 2.5\xa0·\xa010⁻⁴ | holds |',
      ],
      [],
    ),
  ],
)
def test_a_report_says_what_holds_and_promises_once(write, runs, said, unsaid):
  text = write(**runs)
  for words in said:
    assert words in text
  for words in (_WARNING, _COST, _ADAPTIVE, 'A promise.'):
    assert text.count(words) <= 1
  for words in unsaid:
    assert words not in text


@pytest.mark.usefixtures('blank_figures')
def test_what_private_runs_spent_together_is_said_once(tmp_path):
  folders = [
    run_folders.write_run(
      tmp_path / f'run_{seed}',
      **PRIVATE | dict(privacy=PRIVACY | {'description': 'A promise.'}),
      seed=seed,
    )
    for seed in (0, 1, 2)
  ]
  for folder in folders[:2]:
    with PrivacyLedger(folder / 'ledger.jsonl', PLAN) as ledger:
      ledger.charge(1, '0' * 64)
  found = stats.read_folders(folders[:2])
  text = report.write_report(found, tmp_path / 'out').read_text()
  told = 'All private runs on EMNIST: Together, the 2 releases of 2 runs'
  assert text.count(told) == 1
  assert text.count('Training for 20 rounds satisfies') == 1
  assert ' '.join(report.summary(found).split()).count(told) == 1
  # All rounds of a run count that has ended by what it released.
  (folders[0] / 'result.json').write_text('{"reason": "diverged"}')
  text = ' '.join(report.summary(stats.read_folders(folders[:2])).split())
  assert f'the {PLAN.num_rounds + 1} releases of 2 runs' in text
  # The sum says of which run it has nothing.
  text = report.summary(stats.read_folders(folders))
  lacking = 'What DP-FedAvg, seed 2 spent is not known: there is no ledger.'
  assert lacking in ' '.join(text.split())
  # Without one of the ledgers there is no sum.
  ledger = folders[1] / 'ledger.jsonl'
  ledger.write_bytes(ledger.read_bytes().replace(b'0' * 64, b'1' * 64))
  text = ' '.join(report.summary(stats.read_folders(folders[:2])).split())
  assert 'What they cost together is not known: Line 2 of' in text
  assert 'Together, the' not in text


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
    if line.startswith('*') and line.endswith(' †.*')
  ]
  # The scatter, where it stands beside others.
  assert len(captions) == 1


@pytest.mark.parametrize(
  ('confidence', 'told'), [(0.95, '95%'), (0.999, '99.9%')]
)
def test_an_audit_stands_beside_the_claim(write, confidence, told):
  text = write(
    **THREE,
    audited=dict(
      algorithm='dp_fed_avg',
      privacy=PRIVACY | {'sampling': 'paper', 'actual_epsilon': 6.5},
      audit=run_folders.AUDIT | {'confidence': confidence},
      audit_canaries=100,
    ),
  )
  section = text[text.index('## Audits') :]
  assert (
    ' | 98 | 102 | 1.5 | all_releases | 0.25 | 0.75 | – | 3.1% | 20.0% | '
    f'{told} | no |\n'
  ) in section
  # Beside the run that was not audited, and not in its place.
  assert '| DP-FedAvg | 90.00 |' in text
  assert '| DP-FedAvg, audit canaries = 100 | 90.00 |' in text


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


def test_report_of_no_run_is_refused(tmp_path):
  with pytest.raises(ValueError, match='found none .*: no such folder'):
    report.write_report(
      stats.read_folders([tmp_path / 'absent']), tmp_path / 'out'
    )
  assert not (tmp_path / 'out').exists()
