"""The figures of the pages on the reproduction: which runs stand there."""

import pathlib

import pandas as pd

from analysis import evidence, frame, pictures
from tasks.experiments import experiment_table

# What no table of the paper has, but its figures.
_FIGURE_ROWS = (
  'mlp_mnist_iid',
  'mlp_cifar10_noniid',
  'mobilenet_v2_mnist_iid',
)
# Of the scatter of updates; the tables have the spread over all seeds.
_SEED = 0
# A late round of the figures of the paper, from 0.
_LATE_ROUND = 32


def draw_figures(
  frames: frame.Frames, lines: pd.DataFrame, output: pathlib.Path
) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
  """Draws the figures of the pages on the reproduction.

  A panel is the best evidence of a row. Other ways to draw cohorts and model
  clipping have tables of their own.

  Args:
    frames: The runs, without those of variants.
    lines: The paper's rows, from `evidence.paper_lines`.
    output: The folder for the files.

  Returns:
    File name and caption of each figure, of the first and of the second page.
  """
  best = evidence.once(evidence.headlines(lines))
  runs = frames.runs
  runs = runs[(runs['clips'] != 'models') & runs['is_complete']]
  # Of a folder with no names, runs with other ways to draw cohorts.
  runs = runs[runs['privacy_sampling'].fillna('poisson') == 'poisson']
  shown = runs[runs.index.isin([name for own in best['runs'] for name in own])]
  accuracies = pictures.draw_accuracies(frames, shown, output)
  updates = pictures.draw_updates(
    frames, _with_updates(frames, runs, lines), output
  )
  return accuracies + updates[:2], updates[2:]


def _with_updates(
  frames: frame.Frames, runs: pd.DataFrame, lines: pd.DataFrame
) -> pd.DataFrame:
  """The runs in the scatter: of each model, data and split, one scale.

  It is the one with the most local steps, then one that has the rounds of the
  paper's figures, then the one with the most clients, then rounds.
  """
  runs = runs[runs.index.isin(frames.updates['run']) & ~runs['is_private']]
  runs = runs[runs['seed'] == _SEED]
  runs = runs.assign(is_long=runs['num_rounds'] > _LATE_ROUND)
  rows = dict.fromkeys(lines['row'])
  shown = []
  for row in (*rows, *_FIGURE_ROWS):
    own = runs[evidence.of_row(runs, experiment_table.ROWS[row])]
    if len(own):
      largest = own.sort_values(
        ['local_steps', 'is_long', 'clients_per_round', 'num_rounds']
      ).iloc[-1]
      shown.append(own[own['series'] == largest['series']])
  if not shown:
    return runs[:0]
  # Figs. 1 and 2 are of Table 2's clients, of 500 examples, which come first.
  found = pd.concat(shown)
  found = found[~found.index.duplicated()]
  first = found.groupby(['model', 'data', 'split'])['series'].transform('first')
  return found[found['series'] == first]
