"""One table over the runs of a sweep, as CSV, as Markdown and on the screen."""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from tasks.running.run_folder import RunFolder
from tff_clipping import atomic_files
from tff_clipping.privacy.accounting import rounding
from tff_clipping.privacy.ledger import ledger_contents, ledger_file, spending

# After the values of the flags that the sweep varies: how a run ended, the
# rounds done, the last and the best value of the metric that decides (the best
# is an optimistic figure), such as `final_accuracy`, the last test loss, what
# the ledger has charged, what the sampler really gives where that is another
# figure, whether the first holds for the run as it was ('yes' or 'no';
# privacy.json says why not), and the median of the seconds.
_COLUMNS = (
  'status',
  'rounds',
  *('final_{metric}', 'best_{metric}'),
  'final_loss',
  'epsilon',
  'actual_epsilon',
  'epsilon_holds',
  'seconds_per_round',
)


def read_row(
  folder: RunFolder, values: Mapping[str, str], ended: str | None
) -> dict[str, Any]:
  """Returns what the table says of a run, from the files in its folder.

  Args:
    folder: The folder of the run, which may not be there.
    values: The values of the flags that the sweep varies.
    ended: How it ended, or why it did not; `None` if it has not yet.

  Returns:
    `values` and what is known of `_COLUMNS`, `None` for the rest.
  """
  measured = {}
  metric, goal = 'accuracy', 'max'
  try:
    saved = folder.read_description() or {}
    # Runs of before there were others have an accuracy.
    metric, goal = saved.get('metric', metric), saved.get('metric_goal', goal)
    measured = _summarize(folder.read_metrics(), metric, goal)
  except (OSError, ValueError, KeyError, IndexError):
    pass  # Not begun yet, or damaged, which the run itself reports.
  begun = 'not finished' if folder.metrics.exists() else 'not started'
  known = {'status': ended or begun, **measured, **_read_privacy(folder)}
  columns = [name.format(metric=metric) for name in _COLUMNS]
  return {**values, **{name: known.get(name) for name in columns}}


def describe_spending(folders: Sequence[RunFolder]) -> str:
  """Returns what the private runs of a sweep cost together.

  Args:
    folders: Those of all runs.

  Returns:
    A paragraph; nothing for less than two runs, and where none has a guarantee.
  """
  paths = [folder.ledger for folder in folders if folder.ledger.exists()]
  told = spending.describe_ledgers(paths)
  return f'{told}\n' if told else ''


def write_tables(
  rows: Sequence[Mapping[str, Any]], folder: pathlib.Path, *, below: str = ''
) -> str:
  """Writes sweep.csv and sweep.md, and returns the latter.

  Args:
    rows: What the tables say of each run; see `read_row`.
    folder: Where they go.
    below: What stands below the table in sweep.md.
  """
  table = pd.DataFrame(
    [{name: _format(name, row[name]) for name in row} for row in rows]
  ).dropna(axis='columns', how='all')
  markdown = _markdown(table.fillna('')) + (f'\n{below}' if below else '')
  for name, content in (
    ('sweep.csv', table.to_csv(index=False)),
    ('sweep.md', markdown),
  ):
    with atomic_files.replacing(folder / name) as new:
      new.write_text(content)
  return markdown


def _summarize(
  metrics: pd.DataFrame, metric: str, goal: str
) -> dict[str, float | None]:
  decides = f'test_{metric}'
  evaluated = metrics.dropna(subset=[decides])
  best = evaluated[decides].agg(goal)
  seconds = metrics['round_seconds'].dropna()
  return {
    'rounds': int(metrics['round_num'].iloc[-1]),
    f'final_{metric}': float(evaluated[decides].iloc[-1]),
    f'best_{metric}': float(best),
    'final_loss': float(evaluated['test_loss'].iloc[-1]),
    'seconds_per_round': float(seconds.median()) if len(seconds) else None,
  }


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


def _format(name: str, value: Any) -> str | None:
  if value is None:
    return None
  if name.endswith('epsilon'):
    return rounding.format_up(value)
  return f'{value:.4g}' if isinstance(value, float) else str(value)


def _markdown(table: pd.DataFrame) -> str:
  cells = [list(table), *table.to_numpy().tolist()]
  widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
  cells.insert(1, ['-' * width for width in widths])
  return ''.join(
    f'| {" | ".join(map(str.ljust, row, widths))} |\n' for row in cells
  )
