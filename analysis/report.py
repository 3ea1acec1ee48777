"""Writes one report over training runs: Markdown with PNGs, and one HTML file.

Command: `python -m analysis.report RUN... --output=DIR`. The text is in
analysis/templates/report.md; a section without runs to show is left out.
"""

import functools
import os
import pathlib
import re
import sys
from collections.abc import Callable, Sequence

import pandas as pd
from absl import app, flags

try:
  from matplotlib import figure

  from analysis.figures import accuracy, drawings, style
  from analysis.figures import bound as bound_figures
  from analysis.paper import rows, tables
  from analysis.runs import (
    bound,
    frame,
    margins,
    markdown,
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
_NOTHING = 'none'

# What a section needs, where it cannot be shown.
_NEEDS = {
  'paper_tables': (
    "The paper's tables: it needs runs with the model, data and split of one "
    'of their rows.'
  ),
  'concentration': (
    'Concentration of norms and the drop by clipping: it needs at least '
    f'{margins.MIN_PAIRS} pairs of a FedAvg and a CE-FedAvg run that differ.'
  ),
  'epsilon': (
    'Accuracy by ε: it needs finished private runs of one setting at two or '
    'more values of ε.'
  ),
  'audits': 'Audits: it needs a run with `--audit_canaries`.',
  'deviations': (
    'What clipping and noise do by round: it needs runs with recorded updates '
    'and a threshold.'
  ),
  'terms': (
    "The bound's terms by round: it needs such runs with the constants of "
    '`tasks.estimate_constants`.'
  ),
}

# A terminal is narrower than a page.
_SHORT_HEADINGS = {
  'final accuracy (%)': 'accuracy %',
  'best (%)': 'best %',
  'below FedAvg (points)': 'below FedAvg',
  'clipped (%)': 'clipped %',
  'noise multiplier': 'noise mult.',
}


def write_report(
  frames: frame.Frames, output_dir: str | os.PathLike[str]
) -> pathlib.Path:
  """Writes `report.md`, `report.html` and the figures.

  The same runs give the same bytes. Folders that are no runs are named in the
  report and left out. Runs whose settings differ, in more than the seeds, stand
  in tables of their own.

  Args:
    frames: The runs.
    output_dir: Where to write; made if it is not there.

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
  for drawing in drawn:
    style.save(drawing.draw(), output / drawing.name)
  template = _TEMPLATE.read_text(encoding='utf-8')
  text = markdown.render(template, values.__getitem__)
  report.write_text(text, encoding='utf-8')
  # Those of other runs would lie beside it, with exact figures of clients.
  for name in earlier - _figures_of(report):
    (output / name).unlink(missing_ok=True)
  report.with_suffix('.html').write_text(
    markdown.to_html(text, output), encoding='utf-8'
  )
  return report


def summary(frames: frame.Frames) -> str:
  """The tables of runs as text for a terminal.

  Returns:
    One table for each group of comparable runs, then a line for each folder
    that was left out and for each thing that is missing.
  """
  parts = []
  for title, group in _titled(frames.groups()):
    table = run_tables.run_table(group).drop(columns='model')
    empty = table.columns[(table == margins.MISSING).all()]
    table = table.drop(columns=empty).rename(columns=_SHORT_HEADINGS)
    parts.append(f'{title}\n{markdown.text_table(table)}')
    parts.extend(run_tables.mark_notes(group))
  return '\n\n'.join([*parts, *_notes(frames)])


def _values(
  frames: frame.Frames,
) -> tuple[dict[str, str | pd.DataFrame], list[drawings.Drawing]]:
  """What the marks of the template stand for, and the figures."""
  runs, groups = frame.by_setting(frames.runs), frames.groups()
  is_evaluated = runs['final_accuracy'].notna()
  is_recorded = runs.index.isin(frames.updates['run'])
  # A threshold can be that of its seed.
  by_seed = [
    part for group in groups for _, part in group.groupby('setting', sort=False)
  ]
  drawn = {
    'accuracy': drawings.accuracies(
      frames, runs[is_evaluated], same_scale=True
    ),
    'updates': drawings.updates(frames, runs[is_recorded]),
    'epsilon': _drawings(
      'epsilon',
      'Final accuracy by privacy budget',
      groups,
      _several_budgets,
      accuracy.draw_epsilon,
    ),
    'deviations': _drawings(
      'deviation',
      'Clipping and noise by round',
      by_seed,
      functools.partial(bound.deviation_data, frames),
      bound_figures.draw_deviation,
      is_exact=True,
    ),
    'terms': _drawings(
      'bound',
      'The terms of Theorem 1 by round',
      by_seed,
      functools.partial(bound.term_data, frames),
      bound_figures.draw_terms,
      is_exact=True,
    ),
  }
  texts = {
    'groups': '\n\n'.join(_group_text(*each) for each in _titled(groups)),
    'differences': markdown.bullets(
      f'{group.index[0]} and {groups[0].index[0]}: '
      + ', '.join(frame.differing_settings(group.iloc[0], groups[0].iloc[0]))
      for group in groups[1:]
    ),
    'notes': markdown.bullets(_notes(frames)),
    'not_evaluated': ', '.join(runs.index[~is_evaluated]) or _NOTHING,
    'not_recorded': ', '.join(runs.index[~is_recorded]) or _NOTHING,
    'paper_tables': _paper_tables(frames),
    'concentration': _concentration(runs),
    'audits': run_tables.attack_table(frames),
    'broken': markdown.bullets(bound.broken_conditions(runs)),
    **{
      name: markdown.pictures((each.name, each.caption) for each in own)
      for name, own in drawn.items()
    },
  }
  texts['not_shown'] = markdown.bullets(
    need for name, need in _NEEDS.items() if not len(texts[name])
  )
  return texts, [each for own in drawn.values() for each in own]


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


def _group_text(title: str, group: pd.DataFrame) -> str:
  """The table of comparable runs, with what it cannot say in its cells."""
  parts = [
    f'### {title}',
    run_tables.setting_sentence(group),
    markdown.markdown_table(run_tables.run_table(group)),
    *run_tables.mark_notes(group),
  ]
  if (group['clips'] == 'models').any():
    parts.append(run_tables.MODEL_CLIPPING_NOTE)
  described = group['privacy_description'].dropna()
  parts += [f'{name}: {text}' for name, text in described.items()]
  by_reason = group[group['no_drop'] != ''].groupby('no_drop')
  reasons = '; '.join(
    f'{", ".join(frame.ordered(runs).index)} ({reason})'
    for reason, runs in by_reason
  )
  if reasons:
    parts.append(f'Not compared with FedAvg: {reasons}.')
  return '\n\n'.join(parts)


def _paper_tables(frames: frame.Frames) -> str:
  """The paper's tables that runs stand for a row of."""
  lines = rows.paper_rows(frames)
  if lines.empty:
    return ''
  return '\n\n'.join(
    f'### Table {number}\n\n'
    + markdown.markdown_table(tables.published_rows(own))
    for number, own in lines.groupby('paper_table')
  )


def _concentration(runs: pd.DataFrame) -> str:
  """How the spread of norms in FedAvg goes with the drop; or empty."""
  clipped = runs[
    (runs['algorithm'] == 'ce_fed_avg')
    & ~runs['has_own_aggregator']
    & runs['drop'].notna()
  ]
  spread = clipped['fed_avg_run'].map(runs['relative_spread']).dropna()
  try:
    found = margins.rank_correlation(spread, clipped['drop'][spread.index])
  except ValueError:  # Too few pairs, or they are all alike.
    return ''
  return str(found)


def _several_budgets(group: pd.DataFrame) -> pd.DataFrame:
  """Accuracy by ε, where there are several."""
  data = accuracy.epsilon_data(group)
  return data if data['epsilon'].nunique() > 1 else data[:0]


def _drawings(
  name: str,
  what: str,
  groups: list[pd.DataFrame],
  find_data: Callable[[pd.DataFrame], pd.DataFrame],
  draw: Callable[[pd.DataFrame, str], figure.Figure],
  *,
  is_exact: bool = False,
) -> list[drawings.Drawing]:
  """A figure of each group of runs that has data for it.

  Args:
    name: That of the files, before the title of the group.
    what: What a figure shows, in words.
    groups: Runs of one setting each.
    find_data: Returns what is drawn of a group; empty for no figure.
    draw: Draws it, below a title.
    is_exact: Whether it shows exact figures of the clients; the caption says so
      where a run is private.
  """
  drawn = []
  for title, group in _titled(groups):
    data = find_data(group)
    if len(data):
      note = run_tables.simulation_caption(group) if is_exact else ''
      drawn.append(
        drawings.Drawing(
          f'{name}_{style.file_part(title)}.png',
          f'{what}: {title}.{note}',
          functools.partial(draw, data, title),
        )
      )
  return drawn


def main(argv: Sequence[str]) -> None:
  if len(argv) < 2:
    raise app.UsageError('Give at least one run folder.')
  if not _OUTPUT.value:
    raise app.UsageError('Give --output=DIR, the folder for the report.')
  try:
    # Read once: a run may be going on.
    frames = frame.read_frames(argv[1:])
    if frames.runs.empty:
      found = '; '.join(f'{name} ({why})' for name, why in frames.left_out)
      raise ValueError(f'A report is on folders of runs, found {found}.')
    try:
      path = write_report(frames, _OUTPUT.value)
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
