"""Writes one report over training runs: Markdown with PNGs, and one HTML file.

Command: `python -m analysis.report RUN... --output=DIR`
"""

import os
import pathlib
import sys
from collections.abc import Sequence

from absl import app, flags

from analysis import document, figures, findings, results, sections, tables

_OUTPUT = flags.DEFINE_string(
  'output', None, 'Folder for report.md, report.html and the figures.'
)

# A terminal is narrower than a page.
_SHORT_HEADINGS = {
  'final accuracy (%)': 'accuracy %',
  'best (%)': 'best %',
  'drop (points)': 'drop',
  'clipped (%)': 'clipped %',
  'noise multiplier': 'noise mult.',
}

RunLike = str | os.PathLike[str] | results.Run


def write_report(
  run_dirs: Sequence[RunLike], output_dir: str | os.PathLike[str]
) -> pathlib.Path:
  """Reads runs and writes `report.md`, `report.html` and the figures.

  The same runs give the same bytes. Folders that are no runs are named in the
  report and left out. Runs whose settings differ (other data, other seed) stand
  in tables of their own.

  Args:
    run_dirs: Run folders, or runs that were read already.
    output_dir: Where to write; made if it is not there.

  Returns:
    The path of `report.md`.

  Raises:
    ValueError: None of the folders is a run.
  """
  runs, left_out = results.read_runs(run_dirs)
  return _write(runs, left_out, pathlib.Path(output_dir))


def summary_table(runs: Sequence[RunLike]) -> str:
  """The table of runs as text for a terminal.

  Args:
    runs: Run folders, or runs that were read already.

  Returns:
    One table for each group of comparable runs, then a line for each folder
    that was left out and for each thing that is missing.
  """
  return _summary(*results.read_runs(runs))


def main(argv: Sequence[str]) -> None:
  if len(argv) < 2:
    raise app.UsageError('Give at least one run folder.')
  if not _OUTPUT.value:
    raise app.UsageError('Give --output=DIR, the folder for the report.')
  try:
    # Read once: a run may be going on.
    runs, left_out = results.read_runs(argv[1:])
    path = _write(runs, left_out, pathlib.Path(_OUTPUT.value))
  except (ValueError, OSError) as error:
    print(f'error: {error}', file=sys.stderr)
    sys.exit(2)
  print(_summary(runs, left_out))
  print(f'\nReport: {path}\n        {path.with_suffix(".html")}')


def _write(
  runs: Sequence[results.Run],
  left_out: Sequence[tuple[str, str]],
  output: pathlib.Path,
) -> pathlib.Path:
  if not runs:
    reasons = '; '.join(f'{name}: {reason}' for name, reason in left_out)
    raise ValueError(
      f'`run_dirs` must hold at least one run, found none ({reasons or "empty"}'
      ').'
    )
  output.mkdir(parents=True, exist_ok=True)
  groups = results.group_by_setting(runs)
  blocks: list[document.Block] = [
    document.Heading('Clipping in federated learning: report', 1)
  ]
  blocks += sections.runs_section(runs, groups, left_out)
  blocks += sections.accuracy_section(groups, output)
  blocks += sections.updates_section(runs, groups, output)
  blocks += sections.paper_section(groups)
  blocks += findings.concentration_section(groups, output)
  blocks += findings.epsilon_section(groups, output)
  blocks += findings.bound_section(groups, output)
  blocks += findings.advice_section(groups)
  report = output / 'report.md'
  report.write_text(document.to_markdown(blocks), encoding='utf-8')
  (output / 'report.html').write_text(
    document.to_html(blocks, output), encoding='utf-8'
  )
  return report


def _summary(
  runs: Sequence[results.Run], left_out: Sequence[tuple[str, str]]
) -> str:
  groups = results.group_by_setting(runs)
  parts = []
  titles = figures.panel_titles(groups)
  for title, group in zip(titles, groups, strict=True):
    table = tables.format_run_table(tables.run_table(group))
    table = table.drop(columns=['model']).rename(columns=_SHORT_HEADINGS)
    empty = [
      column
      for column in table.columns
      if (table[column] == tables.MISSING).all()
    ]
    text = document.to_text(table.drop(columns=empty))
    parts.append(f'{title}\n{text}')
    if any(run.has_simulation_figures for run in group):
      parts.append(f'{tables.SIMULATION_MARK} {sections.SIMULATION_NOTE}')
  parts += [f'{run.name}: {note}' for run in runs for note in run.notes]
  parts += [f'left out: {name}: {reason}' for name, reason in left_out]
  return '\n\n'.join(parts)


if __name__ == '__main__':
  app.run(main)
