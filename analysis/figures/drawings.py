"""Figures with names and captions: which runs stand in which file."""

import dataclasses
import functools
from collections.abc import Callable

import pandas as pd
from matplotlib import figure

from analysis.figures import accuracy, style
from analysis.figures import updates as scatter
from analysis.runs import frame, run_tables

# Of a panel, in inches: what it says is read on a phone.
_CURVE_SIZE = (4.2, 3.2)
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


def accuracies(frames: frame.Frames, runs: pd.DataFrame) -> list[Drawing]:
  """Accuracy by round, a figure for each data set.

  Args:
    frames: Where the rounds are.
    runs: The rows of the runs to show.
  """
  drawn = []
  for data, part in frame.by_setting(runs).groupby('data', sort=False):
    shown = accuracy.accuracy_data(frames, part)
    draw = functools.partial(accuracy.draw_accuracy, shown)
    name = f'accuracy_{style.file_part(data)}.png'
    drawn.append(Drawing(name, f'Test accuracy by round on {data}.', draw))
  return drawn


def curves(frames: frame.Frames, runs: pd.DataFrame) -> list[Drawing]:
  """The metric by round, a figure for each panel, for a page of any width.

  Those of one data set have one scale.

  Args:
    frames: Where the rounds are.
    runs: The rows of the runs to show.
  """
  drawn = []
  for (_, metric), part in frame.by_setting(runs).groupby(
    ['data', 'metric'], sort=False
  ):
    shown = accuracy.accuracy_data(frames, part, is_merged=True)
    limits = accuracy.find_limits(shown, metric)
    for title, panel in shown.groupby('panel', sort=False):
      draw = functools.partial(
        accuracy.draw_accuracy,
        panel,
        metric=metric,
        limits=limits,
        size=_CURVE_SIZE,
      )
      what = f'{metric.title} by round'
      drawn.append(
        Drawing(
          f'{style.file_part(what)}_{style.file_part(title)}.png',
          f'{what.capitalize()}: {title}.',
          draw,
        )
      )
  return drawn


def columns(frames: frame.Frames, runs: pd.DataFrame) -> list[Drawing]:
  """The scatter of the runs of one seed in up to three rounds, a figure each.

  Args:
    frames: Where the updates are.
    runs: The rows of the runs, with recorded updates.

  Returns:
    For each model, data and split the figures of the setting and seed with the
    most runs: the first round that has angles, a middle one and the last.
  """
  drawn = []
  for (data, model), part in frame.by_setting(runs).groupby(
    ['data', 'model_name'], sort=False
  ):
    shown = pd.concat(
      [
        own[own['setting'] == own['setting'].value_counts(sort=False).idxmax()]
        for _, own in part.groupby(['split', 'partition'], sort=False)
      ]
    )
    panels = scatter.updates_by_round(frames, frame.ordered(shown))
    angles = scatter.angle_limits(panels['angle_degrees'])
    mark = run_tables.SIMULATION_MARK
    note = f' {mark}' if shown['has_simulation_figures'].any() else ''
    for t in _three(sorted(set(panels['t']))):
      title = f'{model} on {data}, t = {t}'
      draw = functools.partial(
        scatter.draw_updates, panels[panels['t'] == t], angles=angles
      )
      drawn.append(
        Drawing(
          f'updates_{style.file_part(title)}.png',
          f'Norm and angle of each update: {title}.{note}',
          draw,
        )
      )
  return drawn


def _three(rounds: list[int]) -> list[int]:
  """Up to three rounds; the first has no angles, and comes if nothing else."""
  later = [t for t in rounds if t > 0] or rounds
  if len(later) <= 3:
    return later
  inner = later[1:-1]
  middle = _FIGURE_ROUND if _FIGURE_ROUND in inner else inner[len(inner) // 2]
  return [later[0], middle, later[-1]]


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
