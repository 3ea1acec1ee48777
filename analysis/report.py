"""Writes one report over training runs: Markdown with PNGs, and one HTML file.

Command: `python -m analysis.report RUN... --output=DIR`. A run is a folder of
`tasks.train`, `own_run.train`, or a program of one's own with metrics.csv. The
text is in analysis/templates/report.md; a section without runs to show is
left out.
"""

import collections
import datetime
import functools
import os
import pathlib
import re
import shlex
import sys
import textwrap
from collections.abc import Sequence

import pandas as pd
from absl import app, flags

from tff_clipping.privacy.ledger import spending

try:
  from analysis.figures import accuracy, drawings, style
  from analysis.paper import rows, tables
  from analysis.runs import (
    frame,
    markdown,
    page_html,
    run_tables,
    titles,
  )
except ModuleNotFoundError as _error:
  if __name__ != '__main__':
    raise
  sys.exit(
    f'error: a report needs {_error.name}, which is not installed: `make '
    "setup` in a checkout, or uv pip install '.[tff,plot]'."
  )

_OUTPUT = flags.DEFINE_string(
  'output', None, 'Folder for report.md, report.html and the figures.'
)

_TEMPLATE = pathlib.Path(__file__).parent / 'templates' / 'report.md'
# A figure in `report.md`, by the name of its file.
_FIGURE = re.compile(r'\]\(([\w.-]+\.png)\)')
_HEADING = '# Clipping in federated learning: report\n'
# Dots an inch of figures: a phone has two or three in the place of one.
_DPI = 160

# What a section needs, where it cannot be shown.
_NEEDS = {
  'epsilon': (
    'By ε: it needs finished private runs of one setting at two or more values '
    'of ε.'
  ),
  'audits': 'Audits: it needs a run with `--audit_canaries`.',
}

_MARGIN_NOTE = (
  'Figures are means over {} seeds; ± is half of the 95 % interval of the mean '
  'over seeds by Student’s t, from three seeds on.'
)
_DROP_NOTE = (
  'Each run is compared with the FedAvg run of the same setting and seed, and '
  'with no other.'
)
_EPSILON_NOTE = (
  'ε is that of the rounds that were run, by the plan’s accounting, for one '
  'run alone.'
)
_SAMPLER_NOTE = (
  'Where the sampler really gives another ε, that of all planned rounds stands '
  'in brackets, and it is the one that holds.'
)
_WIDTH = 100


def write_report(
  frames: frame.Frames,
  output_dir: str | os.PathLike[str],
  *,
  made_by: str = '',
) -> pathlib.Path:
  """Writes `report.md`, `report.html` and the figures.

  The same runs give the same bytes. Folders that are no runs are named in the
  report and left out.

  Args:
    frames: The runs.
    output_dir: Where to write; made if it is not there.
    made_by: By what and when, in a sentence for the foot; empty for nothing.

  Returns:
    The path of `report.md`.

  Raises:
    ValueError: There is no run.
  """
  if frames.runs.empty:
    reasons = '; '.join(f'{name}: {reason}' for name, reason in frames.left_out)
    raise ValueError(
      f'`frames` must hold at least one run, found none ({reasons or "empty"}).'
    )
  output = pathlib.Path(output_dir)
  output.mkdir(parents=True, exist_ok=True)
  report = output / 'report.md'
  earlier = _figures_of(report)
  values, drawn = _values(frames)
  values['made'] = ' '.join(filter(None, [made_by, _versions(frames.runs)]))
  for drawing in drawn:
    style.save(drawing.draw(), output / drawing.name, dpi=_DPI)
  template = _TEMPLATE.read_text(encoding='utf-8')
  text = markdown.render(template, values.__getitem__)
  report.write_text(text, encoding='utf-8')
  # Those of other runs would lie beside it, with exact figures of clients.
  for name in earlier - _figures_of(report):
    (output / name).unlink(missing_ok=True)
  report.with_suffix('.html').write_text(
    page_html.to_html(text, output), encoding='utf-8'
  )
  return report


def summary(frames: frame.Frames) -> str:
  """What the runs came to, as text for a terminal.

  Returns:
    The sentence and the table of results, what private runs spent together,
    and a line for each folder that was left out and each thing that is missing.
  """
  parts = []
  for found in _by_metric(frames.runs):
    table = run_tables.result_table(found)
    parts += [
      textwrap.fill(run_tables.result_sentence(found), _WIDTH),
      markdown.text_table(table),
    ]
  parts += [textwrap.fill(text, _WIDTH) for text in _together(frames.runs)]
  return '\n\n'.join([*parts, *_notes(frames)])


def _values(
  frames: frame.Frames,
) -> tuple[dict[str, str | pd.DataFrame], list[drawings.Drawing]]:
  """What the marks of the template stand for, and the figures."""
  runs, groups = frame.by_setting(frames.runs), frames.groups()
  is_evaluated = runs['final_score'].notna()
  is_recorded = runs.index.isin(frames.updates['run'])
  drawn = {
    'curves': drawings.curves(frames, runs[is_evaluated]),
    'updates': drawings.columns(frames, runs[is_recorded]),
    'epsilon': _budget_drawings(groups),
  }
  texts = {
    'results': '\n\n'.join(map(_result_text, _by_metric(runs))),
    'privacy': '\n\n'.join(_privacy_texts(runs)),
    'runs': '\n\n'.join(_run_texts(groups)),
    'paper_tables': _paper_tables(frames),
    'audits': run_tables.attack_table(frames),
    **{
      name: markdown.pictures((each.name, each.caption) for each in own)
      for name, own in drawn.items()
    },
  }
  missing = [need for name, need in _NEEDS.items() if not len(texts[name])]
  is_private = runs['is_private'].astype(bool)
  for what, names in (
    ('Not evaluated yet', runs.index[~is_evaluated]),
    ('Updates are not recorded', runs.index[~is_recorded & ~is_private]),
    (
      'Updates of private runs are not recorded',
      runs.index[~is_recorded & is_private],
    ),
  ):
    if len(names):
      missing.append(f'{what}: {"; ".join(names)}.')
  texts['missing'] = markdown.bullets([*_notes(frames), *missing])
  return texts, [each for own in drawn.values() for each in own]


def _by_metric(runs: pd.DataFrame) -> list[pd.DataFrame]:
  """The results of runs, those of each metric for themselves."""
  return [
    run_tables.results(own) for _, own in runs.groupby('metric', sort=False)
  ]


def _result_text(found: pd.DataFrame) -> str:
  """The sentence and the table of the runs of one metric, with its reading."""
  seeds = sorted({each.num_seeds for each in found['score'] if each}) or [0]
  notes = {
    _MARGIN_NOTE.format(' or '.join(map(str, seeds))): seeds[-1] > 1,
    _DROP_NOTE: found['drop'].notna().any(),
    _EPSILON_NOTE: found['epsilon'].notna().any(),
    _SAMPLER_NOTE: found['sampler_epsilon'].notna().any(),
  }
  return '\n\n'.join(
    [
      f'**{run_tables.result_sentence(found)}**',
      markdown.markdown_table(run_tables.result_table(found)),
      ' '.join(note for note, is_needed in notes.items() if is_needed),
    ]
  )


def _privacy_texts(runs: pd.DataFrame) -> list[str]:
  """What private runs promise, together and each, once for equal ones."""
  texts = _together(runs)
  described = runs[runs['privacy_description'].notna()]
  for text, own in described.groupby('privacy_description', sort=False):
    whole = len(own) == len(described)
    texts.append(text if whole else f'**{"; ".join(own.index)}**: {text}')
  if 'clipping' in runs:
    # Its noise is not that of the sentence alone.
    adaptive = runs[(runs['clipping'] == 'adaptive') & runs['is_private']]
    texts += [
      f'**{"; ".join(own.index)}**: {text}'
      for text, own in adaptive.groupby('privacy_aggregation', sort=False)
    ]
  texts += _exact_beside(runs)
  names = runs.index[runs['has_simulation_figures']]
  if len(names):
    texts.append(
      f'{run_tables.SIMULATION_MARK} {"; ".join(names)}: '
      f'{run_tables.SIMULATION_NOTE}'
    )
  return texts


def _exact_beside(runs: pd.DataFrame) -> list[str]:
  """What is said where runs without noise are on the clients of a guarantee."""
  held = runs[runs['is_private'] & ~runs['has_caveats']]
  exact = runs[~runs['is_private'] & runs['data'].isin(held['data'])]
  if exact.empty:
    return []
  return [
    f'{"; ".join(exact.index)}: exact figures of the same clients, which no ε '
    'covers. Do not publish this report as a whole.'
  ]


def _together(runs: pd.DataFrame) -> list[str]:
  """What the private runs on the same data have spent together."""
  told = {
    data: spending.describe_ledgers([path for path in own if path is not None])
    for data, own in runs.groupby('data', sort=False)['ledger']
  }
  return [
    f'All private runs on {data or "these clients"}: {text}'
    for data, text in told.items()
    if text
  ]


def _run_texts(groups: list[pd.DataFrame]) -> list[str]:
  """The settings and the table of single runs, with what is not compared."""
  runs = pd.concat(groups)
  texts = [
    f'{title}: {run_tables.setting_sentence(group)}'
    for title, group in _titled(groups)
    if group['data'].iloc[0]
  ]
  texts += [
    markdown.markdown_table(run_tables.run_table(own))
    for _, own in runs.groupby('metric', sort=False)
  ]
  if (runs['clips'] == 'models').any():
    texts.append(run_tables.MODEL_CLIPPING_NOTE)
  by_reason = runs[runs['no_drop'] != ''].groupby('no_drop', sort=False)
  reasons = [f'{"; ".join(own.index)} ({why})' for why, own in by_reason]
  if reasons:
    texts.append(f'Not compared with FedAvg: {"; ".join(reasons)}.')
  return texts


def _versions(runs: pd.DataFrame) -> str:
  """With which versions the runs were made, in a sentence."""
  found = collections.defaultdict(dict)
  for versions in runs['versions']:
    for name, version in versions.items():
      found[name][version] = None
  told = [f'{name} {" and ".join(each)}' for name, each in found.items()]
  return f'The runs: {", ".join(told)}.' if told else ''


def _titled(groups: list[pd.DataFrame]) -> list[tuple[str, pd.DataFrame]]:
  names = titles.setting_titles([group.iloc[0] for group in groups])
  return list(zip(names, groups, strict=True))


def _figures_of(report: pathlib.Path) -> set[str]:
  """Returns the names of the figures of a report of ours.

  Args:
    report: Its `report.md`, which may not be there, or be something else.
  """
  try:
    text = report.read_text(encoding='utf-8')
  except (FileNotFoundError, UnicodeDecodeError):
    return set()
  return set(_FIGURE.findall(text)) if text.startswith(_HEADING) else set()


def _notes(frames: frame.Frames) -> list[str]:
  """What is missing, damaged or left out, a sentence each."""
  runs = frames.runs
  return [
    *(f'{name}: {note}' for name, own in runs['notes'].items() for note in own),
    *(
      f'{name}: {run["rounds_done"]} of {run["num_rounds"]} rounds; it is '
      'shown, but not compared'
      for name, run in runs[~runs['is_complete']].iterrows()
    ),
    *(f'{name}: left out: {reason}' for name, reason in frames.left_out),
  ]


def _paper_tables(frames: frame.Frames) -> str:
  """The paper's tables that runs stand for a row of."""
  lines = rows.paper_rows(frames)
  if len(lines):
    # These stand in for the paper's data, and have no row there.
    lines = lines[lines['data'] != titles.DATA_NAMES['embedded_digits']]
  if lines.empty:
    return ''
  return '\n\n'.join(
    f'### Table {number}\n\n'
    + markdown.markdown_table(tables.published_rows(own))
    for number, own in lines.groupby('paper_table')
  )


def _budget_drawings(groups: list[pd.DataFrame]) -> list[drawings.Drawing]:
  """The metric by ε, a figure of each setting that has several budgets."""
  drawn = []
  for title, group in _titled(groups):
    data = accuracy.epsilon_data(group)
    if data['epsilon'].nunique() > 1:
      metric = group['metric'].iloc[0].title
      drawn.append(
        drawings.Drawing(
          f'epsilon_{style.file_part(title)}.png',
          f'Final {metric} by privacy budget: {title}.',
          functools.partial(accuracy.draw_epsilon, data, title),
        )
      )
  return drawn


def main(argv: Sequence[str]) -> None:
  if len(argv) < 2:
    raise app.UsageError('Give at least one run folder.')
  if not _OUTPUT.value:
    raise app.UsageError('Give --output=DIR, the folder for the report.')
  # What the shell may have expanded is what the report is on.
  command = shlex.join(['python', '-m', 'analysis.report', *argv[1:]])
  made_by = (
    f'Made by `{command} --output={_OUTPUT.value}` on '
    f'{datetime.date.today():%Y-%m-%d}.'
  )
  try:
    # Read once: a run may be going on.
    frames = frame.read_frames(argv[1:], named_by_settings=True)
    if frames.runs.empty:
      found = '; '.join(f'{name} ({why})' for name, why in frames.left_out)
      raise ValueError(f'A report is on folders of runs, found {found}.')
    try:
      path = write_report(frames, _OUTPUT.value, made_by=made_by)
    except OSError as error:
      raise ValueError(
        f'--output must be a folder that can be written, found {error}.'
      ) from error
  except (ValueError, OSError) as error:
    print(f'error: {error}', file=sys.stderr)
    sys.exit(2)
  print(summary(frames))
  print(f'\nReport: {path}\n        {path.with_suffix(".html")}')


if __name__ == '__main__':
  app.run(main)
