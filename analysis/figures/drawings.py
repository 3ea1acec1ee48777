"""Figures with names and captions: which runs stand in which file."""

import dataclasses
import functools
from collections.abc import Callable

import pandas as pd
from matplotlib import figure

from analysis.figures import accuracy, style
from analysis.figures import updates as scatter
from analysis.runs import frame, run_tables

# Of Figs. 1 and 2, 0 being the first round.
_FIGURE_ROUND = 16


@dataclasses.dataclass(frozen=True)
class Drawing:
  """A figure before it is drawn.

  Attributes:
    name: The name of its file.
    caption: What it shows, in words.
    draw: Draws it.
  """

  name: str
  caption: str
  draw: Callable[[], figure.Figure]


def accuracies(
  frames: frame.Frames, runs: pd.DataFrame, *, same_scale: bool = False
) -> list[Drawing]:
  """Accuracy by round, a figure for each data set.

  Args:
    frames: Where the rounds are.
    runs: The rows of the runs to show.
    same_scale: Whether all panels of a figure have one scale of accuracy.
  """
  drawn = []
  for data, part in frame.by_setting(runs).groupby('data', sort=False):
    shown = accuracy.accuracy_data(frames, part)
    draw = functools.partial(
      accuracy.draw_accuracy, shown, same_scale=same_scale
    )
    name = f'accuracy_{style.file_part(data)}.png'
    drawn.append(Drawing(name, f'Test accuracy by round on {data}.', draw))
  return drawn


def updates(frames: frame.Frames, runs: pd.DataFrame) -> list[Drawing]:
  """The paper's scatter: all models at t = 16, and each model by round.

  Args:
    frames: Where the updates are.
    runs: The rows of the runs to show, with recorded updates.

  Returns:
    The figures, those of all models first.
  """
  runs = frame.ordered(runs)
  shown = []
  for (algorithm, data), part in runs.groupby(
    ['algorithm_name', 'data'], sort=False
  ):
    part = frame.by_setting(part)
    panels = scatter.updates_by_model(frames, part, _FIGURE_ROUND)
    if part['model_name'].nunique() > 1 and len(panels):
      title = f'Round t = {_FIGURE_ROUND} on {data}, {algorithm}'
      shown.append((title, part, panels))
  # With clipped models the averaged update can be as long as the model.
  clipped = (
    runs['clips'].eq('models').map({True: ', models clipped', False: ''})
  )
  for (data, model, what), part in frame.by_setting(runs).groupby(
    ['data', 'model_name', clipped], sort=False
  ):
    panels = scatter.updates_by_round(frames, part)
    shown.append((f'{model} on {data}{what}', part, panels))
  return [
    Drawing(
      f'updates_{style.file_part(title)}.png',
      f'Norm and angle of each update: {title}.'
      + run_tables.simulation_caption(part),
      functools.partial(scatter.draw_updates, panels, title),
    )
    for title, part, panels in shown
  ]
