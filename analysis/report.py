"""Writes one report over training runs: Markdown with PNGs, and one HTML file.

Command: `python -m analysis.report RUN... --output=DIR`
"""

import os
import pathlib
import re
import sys
from collections.abc import Sequence

from absl import app, flags

try:
  from analysis import frame, margins, pages, report_values, run_tables, titles
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

# A figure in `report.md`, by the name of its file.
_FIGURE = re.compile(r'\]\(([\w.-]+\.png)\)')
_HEADING = '# Clipping in federated learning: report\n'

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
  text = pages.fill_template(
    'report.md', report_values.report_values(frames, output)
  )
  report.write_text(text, encoding='utf-8')
  # Those of other runs would lie beside it, with exact figures of clients.
  for name in earlier - _figures_of(report):
    (output / name).unlink(missing_ok=True)
  report.with_suffix('.html').write_text(
    pages.to_html(text, output), encoding='utf-8'
  )
  return report


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


def summary(frames: frame.Frames) -> str:
  """The tables of runs as text for a terminal.

  Returns:
    One table for each group of comparable runs, then a line for each folder
    that was left out and for each thing that is missing.
  """
  groups = frames.groups()
  names = titles.setting_titles([group.iloc[0] for group in groups])
  parts = []
  for title, group in zip(names, groups, strict=True):
    table = run_tables.run_table(group).drop(columns='model')
    empty = table.columns[(table == margins.MISSING).all()]
    table = table.drop(columns=empty).rename(columns=_SHORT_HEADINGS)
    parts.append(f'{title}\n{pages.text_table(table)}')
    parts.extend(run_tables.mark_notes(group))
  return '\n\n'.join([*parts, *report_values.notes(frames)])


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
