"""The paper's scatter of update norms against angles.

The data of a figure is a data frame, so that a figure is checked by its numbers
and not by its pixels.
"""

import math
from typing import Literal

import numpy as np
import pandas as pd
from matplotlib import axes, figure

from analysis import frame, style

_ANGLE_LABEL = 'Angle to the last global update (degrees)'


def updates_by_round(frames: frame.Frames, runs: pd.DataFrame) -> pd.DataFrame:
  """Norm and angle of each update: a row for each run, a column for each round.

  Source: the figures of the appendix, IID above non-IID.

  Args:
    frames: Where the updates are.
    runs: The rows of the runs to show, in the order of the rows.

  Returns:
    The columns of `Frames.updates`, with row and column (the panel) and
    clipping_norm (c, that of the runs beside it where the run does not clip;
    NaN where there is none).
  """
  labels = runs['algorithm_name'] + ', ' + runs['split']
  labels = labels.where(~labels.duplicated(keep=False), runs.index)
  data = _of_runs(frames, runs, labels)
  return data.assign(column='t = ' + data['t'].astype(str))


def updates_by_model(
  frames: frame.Frames, runs: pd.DataFrame, t: int
) -> pd.DataFrame:
  """Norm and angle of each update at one round: a row a model.

  Source: Figs. 1 and 2, IID beside non-IID.

  Args:
    frames: Where the updates are.
    runs: The rows of the runs to show.
    t: The round, 0 being the first.

  Returns:
    The columns of `updates_by_round`. Runs without the round are left out.
  """
  places = runs[['model_name', 'split']]
  again = places.duplicated()
  names = runs['model_name'].where(~again, runs['model_name'] + ' (other)')
  data = _of_runs(frames, runs, names).query('t == @t')
  return data.assign(column=data['run'].map(runs['split']))


def draw_updates(
  data: pd.DataFrame, title: str, same_norms: Literal['row', 'column']
) -> figure.Figure:
  """Draws the panels of `updates_by_round` or `updates_by_model`.

  All panels have the same angles. In round 0 there is no last update: the dots
  stand side by side in the order of the clients.

  Args:
    data: What to draw, not empty.
    title: What stands above the panels.
    same_norms: Which panels have one scale of norms, to be compared.

  Returns:
    The figure. A panel without data says so.
  """
  rows = list(dict.fromkeys(data['row']))
  columns = list(dict.fromkeys(data.sort_values('t', kind='stable')['column']))
  # The paper has IID on the left.
  columns.sort(key=lambda column: column == 'non-IID')
  width = {1: 4.8, 2: 3.6, 3: 3.0}.get(len(columns), 2.5)
  with style.styled():
    drawing, grid = style.new_figure(
      *(len(rows), len(columns), width, 2.4 + 0.5 / len(rows)),
      share_scales=False,
    )
    limits = _angle_limits(data['angle_degrees'])
    for row, axes_row in zip(rows, grid, strict=True):
      for column, ax in zip(columns, axes_row, strict=True):
        panel = data[(data['row'] == row) & (data['column'] == column)]
        _draw_panel(ax, panel, limits)
        ax.set_title(f'{row}, {column}', fontsize=8.5)
        ax.set_xlim(*limits)
        same = data[
          data[same_norms] == (row if same_norms == 'row' else column)
        ]
        ax.set_ylim(
          0.0, 1.08 * _largest(same[['update_norm', 'clipping_norm']].stack())
        )
      # A panel without data has no axes.
      first = next(ax for ax in axes_row if ax.axison)
      first.set_ylabel('Update norm ‖Δx$_i$‖$_2$')
    # The legend stands beside the title where there is room, else below the
    # panels, where it would cover a label of the whole figure.
    has_room = len(columns) > 2
    if has_room:
      drawing.supxlabel(_ANGLE_LABEL, fontsize=9)
    else:
      for ax in grid[-1]:
        ax.set_xlabel(_ANGLE_LABEL)
    place = 'upper right' if has_room else 'lower center'
    drawing.suptitle(title, x=0.01, ha='left', fontsize=10.5)
    style.add_legend(
      drawing,
      loc=f'outside {place}',
      ncols=3,
      handletextpad=0.4,
      columnspacing=1.4,
    )
  return drawing


def _of_runs(
  frames: frame.Frames, runs: pd.DataFrame, rows: pd.Series
) -> pd.DataFrame:
  """The updates of runs in their order, each with its row of panels."""
  data = frames.updates[frames.updates['run'].isin(runs.index)]
  data = data.sort_values('run', key=runs.index.get_indexer, kind='stable')
  return data.assign(
    row=data['run'].map(rows), clipping_norm=data['run'].map(runs['shown_norm'])
  )


def _draw_panel(
  ax: axes.Axes, panel: pd.DataFrame, limits: tuple[float, float]
) -> None:
  middle = 0.5 * (limits[0] + limits[1])
  if panel.empty:
    ax.text(0.5, 0.5, 'not recorded', transform=ax.transAxes, ha='center')
    ax.set_axis_off()
    return
  clients, mean = panel[~panel['is_mean']], panel[panel['is_mean']]
  angles = clients['angle_degrees'].to_numpy(float)
  if np.isnan(angles).all():
    span = 0.8 * (limits[1] - limits[0])
    angles = middle + span * (np.linspace(0.0, 1.0, len(clients)) - 0.5)
    # In place of the angles, where no dot can run through it.
    ax.set_xlabel('no last update: by client', fontsize=7.5, color=style.GREY)
    ax.tick_params(axis='x', labelbottom=False)
  ax.plot(
    angles,
    clients['update_norm'],
    linestyle='',
    marker='o',
    markersize=3.6,
    markeredgewidth=0.0,
    alpha=0.6,
    color=style.BLUE,
    label='one client',
  )
  clipping_norm = float(panel['clipping_norm'].iloc[0])
  if math.isfinite(clipping_norm):
    ax.axhline(
      clipping_norm,
      color=style.VERMILION,
      linestyle=style.DASHES[1],
      linewidth=1.3,
      label='threshold c',
    )
  if len(mean):
    angle = float(mean['angle_degrees'].iloc[0])
    ax.plot(
      [middle if math.isnan(angle) else angle],
      [float(mean['update_norm'].iloc[0])],
      linestyle='',
      marker='o',
      markersize=6.5,
      color=style.BLACK,
      label='average',
      # Whole at 0 and 180 degrees too.
      clip_on=False,
      zorder=3,
    )


def _angle_limits(angles: pd.Series) -> tuple[float, float]:
  """Limits in steps of 15 degrees that hold every angle."""
  finite = angles[np.isfinite(angles)]
  if finite.empty:
    return 0.0, 180.0
  low = 15.0 * math.floor((finite.min() - 2.0) / 15.0)
  high = 15.0 * math.ceil((finite.max() + 2.0) / 15.0)
  return max(low, 0.0), min(high, 180.0)


def _largest(values: pd.Series) -> float:
  finite = values[np.isfinite(values)]
  largest = float(finite.max()) if len(finite) else 0.0
  return largest if largest > 0.0 else 1.0
