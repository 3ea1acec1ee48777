"""The paper's scatter of update norms against angles.

The data of a figure is a data frame, so that a figure is checked by its numbers
and not by its pixels.
"""

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib import axes, figure, lines

from analysis import paper, results, run_files, style

_ANGLE_LABEL = 'Angle to the last global update (degrees)'
_COLUMNS = (
  'row',
  'column',
  't',
  'client_id',
  'update_norm',
  'angle_degrees',
  'is_mean',
  'threshold',
)


def updates_by_round(
  runs: Sequence[results.Run], groups: Sequence[Sequence[results.Run]]
) -> pd.DataFrame:
  """Norm and angle of each update: a row for each run, a column for each round.

  Source: the figures of the appendix, IID above non-IID.

  Args:
    runs: The runs to show, in the order of the rows.
    groups: Groups of comparable runs, in which a threshold is looked up for
      runs that do not clip.

  Returns:
    Columns row, column (the panel), t, client_id, update_norm, angle_degrees
    (NaN in round 0), is_mean (whether this is the averaged update), threshold
    (c, NaN where there is none).
  """
  labels = ['IID' if run.is_iid else 'Non-IID' for run in runs]
  rows = [
    label if labels.count(label) == 1 else run.name
    for run, label in zip(runs, labels, strict=True)
  ]
  frames = [
    _panel(run, groups, t, row, f't = {t}')
    for run, row in zip(runs, rows, strict=True)
    for t in sorted(run.updates)
  ]
  return _concatenated(frames)


def updates_by_model(
  runs: Sequence[results.Run], groups: Sequence[Sequence[results.Run]], t: int
) -> pd.DataFrame:
  """Norm and angle of each update at one round: a row a model.

  Source: Figs. 1 and 2, IID beside non-IID.

  Args:
    runs: The runs to show, in the order of the rows and columns.
    groups: As in `updates_by_round`.
    t: The round, 0 being the first.

  Returns:
    The columns of `updates_by_round`. Runs without the round are left out.
  """
  frames = []
  places: set[tuple[str, str]] = set()
  for run in runs:
    if t not in run.updates:
      continue
    place = (paper.model_name(run), 'IID' if run.is_iid else 'Non-IID')
    if place in places:
      place = (f'{place[0]} ({run.name})', place[1])
    places.add(place)
    frames.append(_panel(run, groups, t, *place))
  return _concatenated(frames)


def draw_updates(
  data: pd.DataFrame, title: str, compared: pd.DataFrame | None = None
) -> figure.Figure:
  """Draws the panels of `updates_by_round` or `updates_by_model`.

  Every panel has the same scales. In round 0 there is no last update: the dots
  stand side by side in the order of the clients.

  Args:
    data: What to draw, not empty.
    title: What stands above the panels.
    compared: What sets the scales, where several figures are to have the same:
      the data of all of them. By default `data`.

  Returns:
    The figure. A panel without data says so.
  """
  rows = list(dict.fromkeys(data['row']))
  columns = list(dict.fromkeys(data.sort_values('t', kind='stable')['column']))
  # The paper has IID on the left.
  columns.sort(key=lambda column: column == 'Non-IID')
  width = {1: 4.8, 2: 3.6, 3: 3.0}.get(len(columns), 2.35)
  with style.styled():
    drawing, grid = style.new_figure(
      len(rows), len(columns), width, 2.5 + 0.5 / len(rows)
    )
    scale = data if compared is None else compared
    limits = _angle_limits(scale['angle_degrees'])
    top = _largest(pd.concat([scale['update_norm'], scale['threshold']]))
    for row, axes_row in zip(rows, grid, strict=True):
      for column, ax in zip(columns, axes_row, strict=True):
        panel = data[(data['row'] == row) & (data['column'] == column)]
        _draw_panel(ax, panel, limits)
        ax.set_title(f'{row}, {column}')
        ax.set_xlim(*limits)
        ax.set_ylim(0.0, 1.08 * top)
      axes_row[0].set_ylabel('Update norm ‖Δx$_i$‖$_2$')
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
    drawing.legend(
      handles=_legend(data),
      loc=f'outside {place}',
      ncols=3,
      handletextpad=0.4,
      columnspacing=1.4,
    )
  return drawing


def find_threshold(
  run: results.Run, groups: Sequence[Sequence[results.Run]]
) -> float:
  """The run's c, or the one c with which all others of its setting clip.

  NaN where there is none, and for a run that clips models.
  """
  if run.clips_models:
    return math.nan
  if run.clipping_norm is not None:
    return float(run.clipping_norm)
  group = next((group for group in groups if run in group), [run])
  norms = {other.clipping_norm for other in group} - {None}
  return float(norms.pop()) if len(norms) == 1 else math.nan


def _panel(
  run: results.Run,
  groups: Sequence[Sequence[results.Run]],
  t: int,
  row: str,
  column: str,
) -> pd.DataFrame:
  table = run.updates[t]
  return pd.DataFrame(
    {
      'row': row,
      'column': column,
      't': t,
      'client_id': table['client_id'],
      'update_norm': table['update_norm'],
      'angle_degrees': table['angle_degrees'],
      'is_mean': table['client_id'] == run_files.MEAN_UPDATE_ID,
      'threshold': find_threshold(run, groups),
    }
  )


def _concatenated(frames: Sequence[pd.DataFrame]) -> pd.DataFrame:
  if not frames:
    return pd.DataFrame(columns=list(_COLUMNS))
  return pd.concat(frames, ignore_index=True)


def _draw_panel(
  ax: axes.Axes, panel: pd.DataFrame, limits: tuple[float, float]
) -> None:
  middle = 0.5 * (limits[0] + limits[1])
  if panel.empty:
    ax.text(0.5, 0.5, 'not recorded', transform=ax.transAxes, ha='center')
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
  )
  threshold = float(panel['threshold'].iloc[0])
  if math.isfinite(threshold):
    ax.axhline(
      threshold, color=style.VERMILION, linestyle=style.DASHES[1], linewidth=1.3
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
      # Whole at 0 and 180 degrees too.
      clip_on=False,
      zorder=3,
    )


def _legend(data: pd.DataFrame) -> list[lines.Line2D]:
  dot = {'linestyle': '', 'marker': 'o'}
  handles = [
    lines.Line2D(
      [], [], color=style.BLUE, markersize=4.5, label='one client', **dot
    )
  ]
  if data['is_mean'].any():
    handles.append(
      lines.Line2D(
        [], [], color=style.BLACK, markersize=6.5, label='average', **dot
      )
    )
  if data['threshold'].notna().any():
    handles.append(
      lines.Line2D(
        [],
        [],
        color=style.VERMILION,
        linestyle=style.DASHES[1],
        linewidth=1.3,
        label='threshold c',
      )
    )
  return handles


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
