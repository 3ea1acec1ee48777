"""Draws the figures of runs into files: which runs stand in which."""

import pathlib

import pandas as pd

from analysis import (
  evidence,
  figures,
  frame,
  run_tables,
  style,
  update_figures,
)


def draw_accuracies(
  frames: frame.Frames,
  runs: pd.DataFrame,
  output: pathlib.Path,
  *,
  same_scale: bool = False,
) -> list[tuple[str, str]]:
  """Draws accuracy by round, a figure for each data set.

  Args:
    frames: Where the rounds are.
    runs: The rows of the runs to show.
    output: The folder for the files.
    same_scale: Whether all panels of a figure have one scale of accuracy.

  Returns:
    File name and caption of each.
  """
  drawn = []
  for data, part in frame.by_setting(runs).groupby('data', sort=False):
    name = f'accuracy_{style.file_part(data)}.png'
    shown = figures.accuracy_data(frames, part)
    drawing = figures.draw_accuracy(shown, same_scale=same_scale)
    style.save(drawing, output / name)
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
  runs = frame.ordered(runs)
  shown = []
  t = evidence.FIGURE_ROUND
  for (algorithm, data), part in runs.groupby(
    ['algorithm_name', 'data'], sort=False
  ):
    part = frame.by_setting(part)
    panels = update_figures.updates_by_model(frames, part, t)
    if part['model_name'].nunique() > 1 and len(panels):
      shown.append((f'Round t = {t} on {data}, {algorithm}', part, panels))
  # With clipped models the averaged update can be as long as the model.
  clipped = (
    runs['clips'].eq('models').map({True: ', models clipped', False: ''})
  )
  for (data, model, what), part in frame.by_setting(runs).groupby(
    ['data', 'model_name', clipped], sort=False
  ):
    panels = update_figures.updates_by_round(frames, part)
    shown.append((f'{model} on {data}{what}', part, panels))
  drawn = []
  for title, part, panels in shown:
    name = f'updates_{style.file_part(title)}.png'
    style.save(update_figures.draw_updates(panels, title), output / name)
    caption = f'Norm and angle of each update: {title}.'
    drawn.append((name, caption + run_tables.simulation_caption(part)))
  return drawn
