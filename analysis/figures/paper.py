"""The figures of the reproduction's pages: which runs stand there.

`<!--=figures.NAME-->` in a page stands for the figures of `NAME(found)`. A
panel is the best evidence of a row.
"""

import pandas as pd

from analysis.figures import drawings
from analysis.figures.drawings import Drawing
from analysis.paper import rows
from analysis.paper.evidence import Evidence
from analysis.runs import experiments

# Of the scatter of updates; the tables have the spread over all seeds.
_SEED = 0
# A late round of the figures of the paper, from 0.
_LATE_ROUND = 32


def accuracies(found: Evidence) -> list[Drawing]:
  """Accuracy by round, a figure for each data set."""
  shown = _of_lines(found, rows.best_scale(found.lines))
  return drawings.accuracies(found.frames, shown[shown['variants'] == ''])


def updates_at_one_round(found: Evidence) -> list[Drawing]:
  """The scatter of all models at t = 16, without clipping."""
  return _scatter(found)[:2]


def updates_by_round(found: Evidence) -> list[Drawing]:
  """The scatter of all models at t = 16, clipped, and of each by round."""
  return _scatter(found)[2:]


def _of_lines(found: Evidence, lines: pd.DataFrame) -> pd.DataFrame:
  names = {name for own in lines['runs'] for name in own}
  return found.runs[found.runs.index.isin(names)]


def _scatter(found: Evidence) -> list[Drawing]:
  """The runs of each model, data and split at one scale.

  It is the one with the most local steps, then one that has the rounds of the
  paper's figures, then the one with the most clients, then rounds.
  """
  runs = found.runs
  runs = runs[
    (runs['variants'] == '')
    & ~runs['is_private']
    & (runs['seed'] == _SEED)
    & runs.index.isin(found.frames.updates['run'])
  ]
  runs = runs.assign(is_long=runs['num_rounds'] > _LATE_ROUND)
  shown = [runs[:0]]
  names = {*found.lines['row']}
  in_tables = (row for row in experiments.ROWS if row.name in names)
  for row in (*in_tables, *experiments.FIGURE_ROWS):
    own = runs[rows.of_row(runs, row)]
    largest = own.sort_values(
      ['local_steps', 'is_long', 'clients_per_round', 'num_rounds']
    )
    shown.append(own[own['series'].isin(largest['series'][-1:])])
  # Figs. 1 and 2 are of Table 2's clients, of 500 examples, which come first.
  scatter = pd.concat(shown)
  scatter = scatter[~scatter.index.duplicated()]
  first = scatter.groupby(['model', 'data', 'split'])['series']
  scatter = scatter[scatter['series'] == first.transform('first')]
  return drawings.updates(found.frames, scatter)
