"""One table over the runs of a sweep, as CSV, as Markdown and on the screen."""

import csv
import dataclasses
import io
import pathlib
from collections.abc import Sequence
from typing import Any

import pandas as pd

from tasks.running.run_folder import RunFolder
from tff_clipping import atomic_files, privacy
from tff_clipping.privacy.accounting import rounding
from tff_clipping.privacy.ledger import ledger_contents, ledger_file, spending

NOT_STARTED = 'not started'
NOT_FINISHED = 'not finished'


@dataclasses.dataclass(frozen=True)
class SweepRow:
  """What a table says of one run; `None` for what is not known.

  Attributes:
    values: The values of the flags that the sweep varies.
    status: How it ended, or why it did not.
    rounds: The rounds done.
    final_accuracy: The last test accuracy, from 0 to 1.
    best_accuracy: The largest one; an optimistic figure.
    final_loss: The last test loss.
    epsilon: What the ledger has charged.
    actual_epsilon: What the sampler really gives, where that is another figure.
    epsilon_holds: Whether `epsilon` holds for the run as it was, of which it is
      the only one that is released: 'yes' or 'no'. privacy.json says why not.
    seconds_per_round: The median.
  """

  values: dict[str, str]
  status: str
  rounds: int | None = None
  final_accuracy: float | None = None
  best_accuracy: float | None = None
  final_loss: float | None = None
  epsilon: float | None = None
  actual_epsilon: float | None = None
  epsilon_holds: str | None = None
  seconds_per_round: float | None = None


def read_row(
  folder: RunFolder, values: dict[str, str], status: str
) -> SweepRow:
  """Returns the row of a run, from the files in its folder."""
  measured = {}
  try:
    measured = _summarize(folder.read_metrics())
  except (OSError, ValueError, KeyError, IndexError):
    pass  # Not begun yet, or damaged, which the run itself reports.
  return SweepRow(
    values=values, status=status, **measured, **_read_privacy(folder)
  )


def describe_spending(folders: Sequence[RunFolder]) -> str:
  """Returns what the private runs of a sweep cost together.

  Args:
    folders: Those of all runs.

  Returns:
    A paragraph; nothing for less than two runs, and where none has a guarantee.
  """
  paths = [folder.ledger for folder in folders if folder.ledger.exists()]
  if len(paths) < 2 or all(map(_has_caveats, paths)):
    return ''
  try:
    ledgers = [privacy.read_ledger(path) for path in paths]
    spent = privacy.compute_spending(ledgers)
  except (OSError, ValueError) as e:
    return f'What the private runs cost together is not known: {e}\n'
  return f'{spending.describe_spending(ledgers, spent)}\n'


def _has_caveats(ledger: pathlib.Path) -> bool:
  """Returns whether a ledger says of a run that it has no guarantee."""
  try:
    lines, _ = ledger_file.read_lines(ledger)
    return bool(ledger_contents.read_caveats(lines))
  except (OSError, ValueError, LookupError):
    return False


def write_tables(
  rows: Sequence[SweepRow], folder: pathlib.Path, *, below: str = ''
) -> str:
  """Writes sweep.csv and sweep.md, and returns the latter.

  Args:
    rows: What the tables say of each run.
    folder: Where they go.
    below: What stands below the table in sweep.md.
  """
  cells = _cells(rows)
  text = io.StringIO()
  csv.writer(text, lineterminator='\n').writerows(cells)
  markdown = _markdown(cells) + (f'\n{below}' if below else '')
  for name, content in (
    ('sweep.csv', text.getvalue()),
    ('sweep.md', markdown),
  ):
    with atomic_files.replacing(folder / name) as new:
      new.write_text(content)
  return markdown


def _summarize(metrics: pd.DataFrame) -> dict[str, float]:
  evaluated = metrics.dropna(subset=['test_accuracy'])
  seconds = metrics['round_seconds'].dropna()
  return dict(
    rounds=int(metrics['round_num'].iloc[-1]),
    final_accuracy=float(evaluated['test_accuracy'].iloc[-1]),
    best_accuracy=float(evaluated['test_accuracy'].max()),
    final_loss=float(evaluated['test_loss'].iloc[-1]),
    seconds_per_round=float(seconds.median()) if len(seconds) else None,
  )


def _read_privacy(folder: RunFolder) -> dict[str, Any]:
  """Returns what was charged; a damaged ledger the run itself reports."""
  try:
    # As it was charged: to compute it anew takes seconds with some plans.
    lines, is_cut_short = ledger_file.read_lines(folder.ledger)
    if is_cut_short:
      return {}  # Until the run goes on, and counts the line.
    caveats = ledger_contents.read_caveats(lines)
    last = ledger_contents.releases(lines)[-1]
    epsilon, actual = last['epsilon'], last.get('actual_epsilon')
  except (OSError, ValueError, LookupError):
    return {}
  return dict(
    epsilon=epsilon,
    actual_epsilon=actual,
    epsilon_holds='yes' if actual is None and not caveats else 'no',
  )


def _cells(rows: Sequence[SweepRow]) -> list[list[str]]:
  """Returns the header and the rows, without columns that are all empty."""
  columns = {
    name: [row.values[name] for row in rows] for name in rows[0].values
  }
  for field in dataclasses.fields(SweepRow):
    if field.name == 'values':
      continue
    found = [getattr(row, field.name) for row in rows]
    if any(value is not None for value in found):
      columns[field.name] = [_format(field.name, value) for value in found]
  return [list(columns), *map(list, zip(*columns.values(), strict=True))]


def _format(name: str, value: Any) -> str:
  if value is None:
    return ''
  if name.endswith('epsilon'):
    return rounding.format_up(value)
  return f'{value:.4g}' if isinstance(value, float) else str(value)


def _markdown(cells: Sequence[Sequence[str]]) -> str:
  widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
  header, *rows = (
    '| '
    + ' | '.join(c.ljust(w) for c, w in zip(row, widths, strict=True))
    + ' |\n'
    for row in cells
  )
  rule = '|' + '|'.join('-' * (width + 2) for width in widths) + '|\n'
  return header + rule + ''.join(rows)
