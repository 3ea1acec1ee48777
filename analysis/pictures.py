"""Draws the figures of runs into files: which runs stand in which."""

import pathlib

import pandas as pd

from analysis import (
  evidence,
  figures,
  frame,
  run_tables,
  style,
  titles,
  update_figures,
)


def draw_accuracies(
  frames: frame.Frames, runs: pd.DataFrame, output: pathlib.Path
) -> list[tuple[str, str]]:
  """Draws accuracy by round, a figure for each data set.

  Args:
    frames: Where the rounds are.
    runs: The rows of the runs to show.
    output: The folder for the files.

  Returns:
    File name and caption of each.
  """
  drawn = []
  for data, part in _in_order(runs).groupby('data', sort=False):
    name = f'accuracy_{style.file_part(data)}.png'
    shown = figures.accuracy_data(frames, part)
    style.save(figures.draw_accuracy(shown), output / name)
    drawn.append((name, f'Test accuracy by round on {data}.'))
  return drawn


def draw_updates(
  frames: frame.Frames, runs: pd.DataFrame, output: pathlib.Path
) -> list[tuple[str, str]]:
  """Draws the paper's scatter: all models at t = 16, and each model by round.

  Args:
    frames: Where the updates are.
    runs: The rows of the runs to show, with recorded updates.
    output: The folder for the files.

  Returns:
    File name and caption of each, those of all models first.
  """
  runs = _in_order(frame.ordered(runs))
  shown = []
  t = evidence.FIGURE_ROUND
  for (algorithm, data), part in runs.groupby(
    ['algorithm_name', 'data'], sort=False
  ):
    panels = update_figures.updates_by_model(frames, part, t)
    if part['model_name'].nunique() > 1 and len(panels):
      shown.append((f'Round t = {t} on {data}, {algorithm}', part, panels))
  num_of_models = len(shown)
  # With clipped models the averaged update can be as long as the model.
  clipped = (
    runs['clips'].eq('models').map({True: ', models clipped', False: ''})
  )
  for (data, model, what), part in runs.groupby(
    ['data', 'model_name', clipped], sort=False
  ):
    panels = update_figures.updates_by_round(frames, part)
    shown.append((f'{model} on {data}{what}', part, panels))
  drawn = []
  for place, (title, part, panels) in enumerate(shown):
    # One model at one round is compared between panels.
    same_norms = 'row' if place < num_of_models else 'column'
    name = f'updates_{style.file_part(title)}.png'
    drawing = update_figures.draw_updates(panels, title, same_norms)
    style.save(drawing, output / name)
    caption = f'Norm and angle of each update: {title}.'
    drawn.append((name, caption + run_tables.simulation_caption(part)))
  return drawn


def _in_order(runs: pd.DataFrame) -> pd.DataFrame:
  """Models in the paper's order, IID before non-IID."""
  names = list(titles.MODEL_NAMES.values())

  def place(run: str) -> tuple[int, bool]:
    model = runs.at[run, 'model_name']
    rank = names.index(model) if model in names else len(names)
    return rank, not runs.at[run, 'is_iid']

  return runs.loc[sorted(runs.index, key=place)]
