"""The paper's scatter of update norms against angles.

The data of a figure is a data frame, so that a figure is checked by its numbers
and not by its pixels.
"""

import math

import numpy as np
import pandas as pd
from matplotlib import axes, figure

from analysis.figures import style
from analysis.runs import frame

_ANGLE_LABEL = 'Angle to the last global update (degrees)'
_TITLE_SIZE = 8.5


def updates_by_round(frames: frame.Frames, runs: pd.DataFrame) -> pd.DataFrame:
  """Norm and angle of each update: a row for each run, a column for each round.

  Source: the figures of the appendix, IID above non-IID.

  Args:
    frames: Where the updates are.
    runs: The rows of the runs to show, in the order of the rows.

  Returns:
    The columns of `Frames.updates`, with row and column (the panel), scale
    (panels of the same one have one scale of norms, to be compared: those of a
    round, without the runs whose aggregator is a user's own) and clipping_norm
    (c, that of the runs beside it where the run does not clip; NaN where there
    is none).
  """
  labels = runs['algorithm_name'] + ', ' + runs['split']
  labels = labels.where(~labels.duplicated(keep=False), runs.index)
  data = _of_runs(frames, runs, labels)
  column = 't = ' + data['t'].astype(str)
  is_own = data['run'].map(runs['has_own_aggregator']).astype(bool)
  scale = column.where(~is_own, data['row'] + ', ' + column)
  return data.assign(column=column, scale=scale)


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
    The columns of `updates_by_round`; one scale a model. Runs without the
    round are left out.
  """
  places = runs[['model_name', 'split']]
  again = places.duplicated()
  names = runs['model_name'].where(~again, runs['model_name'] + ' (other)')
  data = _of_runs(frames, runs, names).query('t == @t')
  return data.assign(column=data['run'].map(runs['split']), scale=data['row'])


def draw_updates(
  data: pd.DataFrame,
  title: str = '',
  *,
  angles: tuple[float, float] | None = None,
) -> figure.Figure:
  """Draws the panels of `updates_by_round` or `updates_by_model`.

  All panels have the same angles. In round 0 there is no last update: the dots
  stand side by side in the order of the clients. An average that is longer than
  every client's update and the threshold is marked at the upper edge, with its
  norm.

  Args:
    data: What to draw, not empty.
    title: What stands above the panels; empty for nothing.
    angles: The ends of the horizontal axes; those of `data` if None.

  Returns:
    The figure. A panel without data says so.
  """
  rows = list(dict.fromkeys(data['row']))
  columns = list(dict.fromkeys(data.sort_values('t', kind='stable')['column']))
  # The paper has IID on the left.
  columns.sort(key=lambda column: column == 'non-IID')
  width = {1: 3.4, 2: 3.6, 3: 3.0}.get(len(columns), 2.5)
  with style.styled():
    drawing, grid = style.new_figure(
      len(rows), len(columns), width, 2.4 + 0.5 / len(rows)
    )
    limits = angles or angle_limits(data['angle_degrees'])
    for row, axes_row in zip(rows, grid, strict=True):
      for column, ax in zip(columns, axes_row, strict=True):
        panel = data[(data['row'] == row) & (data['column'] == column)]
        ax.set_title(
          style.wrapped(f'{row}, {column}', width - 0.4, _TITLE_SIZE),
          fontsize=_TITLE_SIZE,
        )
        ax.set_xlim(*limits)
        if panel.empty:
          ax.text(0.5, 0.5, 'not recorded', transform=ax.transAxes, ha='center')
          ax.set_axis_off()
          continue
        same = data[data['scale'] == panel['scale'].iloc[0]]
        ax.set_ylim(0.0, _highest(same))
        _draw_panel(ax, panel)
      # A panel without data has no axes.
      first = next(ax for ax in axes_row if ax.axison)
      first.set_ylabel('Update norm ‖Δx$_i$‖$_2$')
    # The legend stands beside the title where there is room, else below the
    # panels, where it would cover a label of the whole figure.
    has_room = len(columns) > 2
    if has_room:
      drawing.supxlabel(_ANGLE_LABEL, fontsize=9)
    else:
      for column in zip(*grid, strict=True):
        with_angles = [ax for ax in column if ax.axison and not ax.get_xlabel()]
        if with_angles:
          with_angles[-1].set_xlabel(_ANGLE_LABEL)
    place = 'upper right' if has_room else 'lower center'
    if title:
      style.add_title(drawing, title)
    style.add_legend(
      drawing,
      loc=f'outside {place}',
      ncols=3 if len(columns) > 1 else 2,
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


def _draw_panel(ax: axes.Axes, panel: pd.DataFrame) -> None:
  """Draws the updates of a panel whose limits are set."""
  limits, highest = ax.get_xlim(), ax.get_ylim()[1]
  middle = 0.5 * (limits[0] + limits[1])
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
    angle = middle if math.isnan(angle) else angle
    norm = float(mean['update_norm'].iloc[0])
    is_beyond = norm > highest
    ax.plot(
      [angle],
      [min(norm, highest)],
      linestyle='',
      marker='^' if is_beyond else 'o',
      markersize=6.5,
      color=style.BLACK,
      label='average, beyond the scale' if is_beyond else 'average',
      # Whole at 0 and 180 degrees too.
      clip_on=False,
      zorder=3,
    )
    if is_beyond:
      is_left = angle < middle
      ax.annotate(
        f'{norm:.3g}',
        (angle, highest),
        xytext=(6 if is_left else -6, -3),
        textcoords='offset points',
        ha='left' if is_left else 'right',
        va='center',
        fontsize=7.5,
      )


def angle_limits(angles: pd.Series) -> tuple[float, float]:
  """Limits in steps of 15 degrees that hold every angle."""
  finite = angles[np.isfinite(angles)]
  if finite.empty:
    return 0.0, 180.0
  low = 15.0 * math.floor((finite.min() - 2.0) / 15.0)
  high = 15.0 * math.ceil((finite.max() + 2.0) / 15.0)
  return max(low, 0.0), min(high, 180.0)


def _highest(panels: pd.DataFrame) -> float:
  """The upper end of the scale of panels, by their clients and thresholds."""
  clients = panels[~panels['is_mean']]
  values = clients[['update_norm', 'clipping_norm']].stack()
  finite = values[np.isfinite(values)]
  largest = float(finite.max()) if len(finite) else 0.0
  return 1.08 * largest if largest > 0.0 else 1.0
