"""The figures of reports and pages: lines by round or by a quantity, and dots.

A figure is a `Drawing`: a grid of functions, each of which draws on its axes.
`draw` calls them, and adds the legends and the titles.
"""

import collections
import dataclasses
import functools
import itertools
import math
import pathlib
import re
import textwrap
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib import figure, ticker
from matplotlib.axes import Axes

from analysis import names, stats

# The palette of Okabe and Ito (2008), which colour-blind readers tell apart.
_COLOURS = {
  'FedAvg': '#0072B2',
  'CE-FedAvg': '#D55E00',
  'DP-FedAvg': '#009E73',
  'Model clipping': '#CC79A7',
}
_GREY = '#6E6E6E'
# Lines of one algorithm in one panel differ in the dash, then in the shade.
_DASHES = ('-', (0, (5, 2)), (0, (1.5, 1.5)), (0, (6, 2, 1.5, 2)))
_SHADES = (1.0, 0.6, 0.35)

_TITLE_SIZE, _LEGEND_SIZE = 8.5, 7.5
_STYLE = {
  'font.family': 'DejaVu Sans',
  'font.size': 9.0,
  'axes.labelsize': 9.0,
  'axes.titlelocation': 'left',
  'axes.titlesize': _TITLE_SIZE,
  'axes.spines.top': False,
  'axes.spines.right': False,
  'axes.grid': True,
  'axes.axisbelow': True,
  'grid.color': '#E3E3E3',
  'grid.linewidth': 0.7,
  'lines.linewidth': 1.8,
  'legend.frameon': False,
  'xtick.labelsize': 8.0,
  'ytick.labelsize': 8.0,
}
_AXES = {'epsilon': 'privacy budget ε', 'clipping_norm': 'clipping norm c'}

Panel = Callable[[Axes], None]


@dataclasses.dataclass(frozen=True, eq=False)
class Drawing:
  """A figure before it is drawn.

  Attributes:
    name: The name of its file.
    caption: What it shows, in words.
    grid: The panels of each row: functions that draw on axes.
    size: Width and height of a panel in inches.
    title: What all panels show, which have one legend; empty where each panel
      has its legend below it. It stands above several columns.
  """

  name: str
  caption: str
  grid: Sequence[Sequence[Panel]]
  size: tuple[float, float]
  title: str = ''


def draw(drawing: Drawing) -> figure.Figure:
  """Draws all panels."""
  num_columns = max(map(len, drawing.grid))
  width, height = drawing.size
  size = num_columns * width, len(drawing.grid) * height
  with matplotlib.rc_context(_STYLE):
    drawn = figure.Figure(size, layout='constrained')
    axes = drawn.subplots(len(drawing.grid), num_columns, squeeze=False)
    num_lines = 0
    for row, panels in zip(axes, drawing.grid, strict=True):
      for ax in row[len(panels) :]:
        ax.remove()
      for ax, panel in zip(row, panels, strict=False):
        panel(ax)
        title = ax.get_title(loc='left')
        ax.set_title(_wrapped(title, width - 0.5, _TITLE_SIZE))
        # Panels beside each other mostly share what their axes show.
        if ax is not row[0] and ax.get_ylabel() == row[0].get_ylabel():
          ax.set_ylabel('')
      if not drawing.title:
        num_lines += max(_add_legend(ax, width) for ax in row[: len(panels)])
    # The figure grows by what the legends need.
    drawn.set_figheight(size[1] + 1.6 * _LEGEND_SIZE / 72 * num_lines)
    if drawing.title:
      _add_title_and_legend(drawn, drawing.title, num_columns)
  return drawn


def _add_legend(ax: Axes, width: float) -> int:
  """Adds a legend below the ticks and the label of an axis; its lines."""
  handles, labels = ax.get_legend_handles_labels()
  labels = [_wrapped(each, width - 0.8, _LEGEND_SIZE) for each in labels]
  ax.legend(
    handles,
    labels,
    fontsize=_LEGEND_SIZE,
    handlelength=3.0,
    loc='upper center',
    bbox_to_anchor=(0.5, 0.0),
    borderaxespad=4.5,
  )
  return sum(1 + label.count('\n') for label in labels)


def _add_title_and_legend(
  drawn: figure.Figure, title: str, num_columns: int
) -> None:
  """Adds what is for all panels of updates; each label stands once."""
  if num_columns > 1:
    wrapped = _wrapped(title, drawn.get_figwidth(), 10.5)
    drawn.suptitle(wrapped, x=0.01, ha='left', fontsize=10.5)
  drawn.supxlabel('Angle to the last global update (degrees)', fontsize=9)
  shown: dict[str, Any] = {}
  for ax in drawn.axes:
    for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
      shown.setdefault(label, handle)
  drawn.legend(
    shown.values(),
    shown.keys(),
    loc='outside upper right',
    ncols=3 if num_columns > 1 else 2,
    fontsize=8.0,
  )


def _wrapped(text: str, width: float, size: float) -> str:
  """Text in lines of about a width in inches, in letters of a size."""
  # What a number is of stays beside it.
  whole = text.replace(' = ', '\xa0=\xa0').replace(' %', '\xa0%')
  # Nothing in a name is mathematics.
  whole = whole.replace('$', r'\$')
  letters = max(int(width * 120 / size), 8)
  lines = textwrap.fill(whole, letters, break_on_hyphens=False)
  return lines.replace('\xa0', ' ')


def save(drawing: Drawing, path: pathlib.Path, dpi: int) -> None:
  """Writes a PNG of so many dots an inch, the same bytes for the same data."""
  with matplotlib.rc_context(_STYLE):
    draw(drawing).savefig(path, format='png', dpi=dpi, facecolor='white')


def file_part(text: str) -> str:
  """Text as a part of a file name."""
  return '_'.join(re.findall('[a-z0-9]+', text.lower()))


def looks(algorithms: Iterable[str]) -> list[dict[str, Any]]:
  """How the lines of a panel look, by their algorithms, no two of them alike.

  An algorithm has its colour, whatever of it was changed. CE-FedAvg starts
  dashed, so that FedAvg is seen below it where the two agree.
  """
  seen = collections.Counter({_COLOURS['CE-FedAvg']: 1})
  found = []
  for algorithm in algorithms:
    colour = _COLOURS.get(algorithm.split(' by ')[0], _GREY)
    shade, dash = divmod(seen[colour], len(_DASHES))
    seen[colour] += 1
    alpha = _SHADES[shade % len(_SHADES)]
    found.append({'color': colour, 'linestyle': _DASHES[dash], 'alpha': alpha})
  return found


def _labelled(
  table: pd.DataFrame, by: str = ''
) -> list[tuple[str, dict[str, Any], pd.DataFrame]]:
  """The runs of each label, with it and the look of their line."""
  groups = [*table.groupby(names.labels(table, by=by), sort=False)]
  found = looks(own['algorithm_name'].iloc[0] for _, own in groups)
  return [
    (label, look, own) for (label, own), look in zip(groups, found, strict=True)
  ]


def _plot_over_seeds(
  ax: Axes, label: str, look: dict[str, Any], points: pd.DataFrame
) -> None:
  """A line of means by x, with the band from least to largest."""
  ax.plot(points.index, points['mean'], label=label, **look)
  if (points['max'] > points['min']).any():
    band = {'color': look['color'], 'alpha': 0.2, 'linewidth': 0}
    ax.fill_between(points.index, points['min'], points['max'], **band)


def curve_panel(ax: Axes, title: str, table: pd.DataFrame) -> None:
  """The metric of some runs by round: means over seeds, with their range."""
  metric = table['metric'].iloc[0]
  decimals = 1 if metric.is_share else metric.decimals(table['final_score'])
  unit = ' %' if metric.is_share else ''
  for label, look, own in _labelled(table):
    scores = pd.concat([run.scores for run in own['files']], axis=1)
    # Seeds can be evaluated in other rounds: a mean is over all of them.
    scores = scores.dropna()
    rounds = pd.DataFrame(
      {
        'mean': scores.mean(axis=1),
        'min': scores.min(axis=1),
        'max': scores.max(axis=1),
      }
    )
    if len(rounds) <= 12:
      look |= {'marker': 'o', 'markersize': 3.5}
    last = stats.number(own['final_score'].mean(), f'.{decimals}f')
    _plot_over_seeds(ax, f'{label}: {last}{unit}', look, rounds)
  ax.set(title=title, xlabel='Round', ylabel=metric.heading)
  ax.set(xlim=(0.0, None), ylim=curve_limits(table))
  _set_few_ticks(ax)


def _set_few_ticks(ax: Axes) -> None:
  ax.xaxis.set_major_locator(
    ticker.MaxNLocator(6, integer=True, steps=[1, 2, 5, 10])
  )


def curve_limits(table: pd.DataFrame) -> tuple[float, float]:
  """The ends of the vertical axis of curves.

  They hold all but the worst of the first tenth of the rounds of each run: a
  model that has learnt nothing would flatten what comes after.
  """
  metric = table['metric'].iloc[0]
  scores = [run.scores for run in table['files']]
  late = [each[each.index >= 0.1 * each.index[-1]] for each in scores]
  values, late_values = (
    each[np.isfinite(each)] for each in map(pd.concat, (scores, late))
  )
  if late_values.empty:
    return 0.0, 1.0
  low, high = late_values.min(), late_values.max()
  if metric.goal == 'max':
    high = values.max()
  else:
    low = values.min()
  pad = 0.05 * ((high - low) or 1.0)
  if metric.is_share:
    return max(low - pad, 0.0), min(high + pad, 101.0)
  return low - pad, high + pad


def curves(table: pd.DataFrame) -> list[Drawing]:
  """The metric by round: a figure for each model, data and split."""
  table = names.ordered(table[table['final_score'].notna()])
  groups = table.groupby([names.problems(table), 'metric'], sort=False)
  return [
    _of_lines(
      f'{metric.title} by round',
      title,
      functools.partial(curve_panel, title=title, table=own),
    )
    for (title, metric), own in groups
  ]


def by_quantity(table: pd.DataFrame, quantity: str) -> list[Drawing]:
  """The final metric by ε or c: a figure for each setting that has several.

  `quantity` is 'epsilon' or 'clipping_norm'. Runs without it are levels.
  Unfinished and audited runs are left out.
  """
  usable = table['is_complete'] & table['final_score'].notna()
  table = names.ordered(table[usable & ~table['is_audited']])
  table = table.replace({quantity: {math.inf: math.nan}})
  drawn = []
  for title, own in names.by_setting(table):
    labels = names.labels(own, by=quantity)
    if own.groupby([labels, 'setting'])[quantity].nunique().max() < 2:
      continue
    panel = functools.partial(
      _quantity_panel, title=title, table=own, quantity=quantity
    )
    what = f'final {own["metric"].iloc[0].title} by {_AXES[quantity][:-2]}'
    drawn.append(_of_lines(what, title, panel))
  return drawn


def _of_lines(what: str, title: str, panel: Panel) -> Drawing:
  """A figure of one panel of lines."""
  name = f'{file_part(what)}_{file_part(title)}.png'
  caption = f'{what[0].upper()}{what[1:]}: {title}.'
  return Drawing(name, caption, [[panel]], (4.2, 2.9))


def _quantity_panel(
  ax: Axes, title: str, table: pd.DataFrame, quantity: str
) -> None:
  """The final metric by a quantity; a run without the quantity is a level."""
  markers = itertools.cycle('os^D')
  for label, look, runs in _labelled(table, by=quantity):
    points = runs.groupby(quantity)['final_score'].agg(['mean', 'min', 'max'])
    if points.empty:
      level = runs['final_score'].mean()
      ax.axhline(level, label=label, **look | {'linewidth': 1.3})
    else:
      look |= {'marker': next(markers)}
      _plot_over_seeds(ax, label, look, points)
  heading = f'Final {table["metric"].iloc[0].heading.lower()}'
  x_label = f'{_AXES[quantity].capitalize()} (log scale)'
  ax.set(title=title, xlabel=x_label, ylabel=heading, xscale='log')
  ticks = sorted({*table[quantity].dropna()})
  ax.set_xticks(ticks, [f'{tick:.3g}' for tick in ticks])
  ax.set_xticks([], minor=True)


def updates_drawing(
  title: str, grid: Sequence[Sequence[Panel]], size: tuple[float, float]
) -> Drawing:
  """A figure of panels of `scatter`."""
  caption = f'Norm and angle of each update: {title}.'
  name = f'updates_{file_part(title)}.png'
  return Drawing(name, caption, grid, size, title)


def scatter(groups: Sequence[pd.DataFrame]) -> list[list[Panel]]:
  """The paper's scatter of norms against angles: the panels of each group.

  All panels have one scale of angles, those of a group one of norms.

  Args:
    groups: Some runs, each with a `title` and the round `t` that is shown.
  """
  every = []
  for table in groups:
    updates = stats.updates(table)
    every.append(updates[updates['t'] == table['t'].iloc[0]])
  angles = angle_limits(pd.concat(every)['angle_degrees'])
  grid = []
  for updates, table in zip(every, groups, strict=True):
    norms = table['shown_norm']
    clients = updates[~updates['is_mean']]
    shown = norms[norms.index.isin(clients['run'])]
    values = pd.concat([clients['update_norm'], shown])
    largest = values[np.isfinite(values)].max()
    panels = [
      functools.partial(
        _update_panel,
        title=title,
        updates=updates[updates['run'] == name],
        norm=norms[name],
        angles=angles,
        top=1.08 * largest if largest > 0 else 1.0,
      )
      for name, title in table['title'].items()
    ]
    grid.append(panels)
  return grid


def _update_panel(
  ax: Axes,
  title: str,
  updates: pd.DataFrame,
  norm: float,
  angles: tuple[float, float],
  top: float,
) -> None:
  """Norm and angle of each update of a run in a round, and the threshold.

  In round 0 there is no last update: the dots stand side by side in the order
  of the clients. An average that is longer than `top`, the end of the vertical
  axis, is marked at the upper edge, and its label has its norm.
  """
  ax.set_title(title)
  if updates.empty:
    ax.text(0.5, 0.5, 'not recorded', transform=ax.transAxes, ha='center')
    ax.set_axis_off()
    return
  middle = np.mean(angles)
  clients, mean = updates[~updates['is_mean']], updates[updates['is_mean']]
  places = clients['angle_degrees']
  if np.isfinite(places).any():
    _set_few_ticks(ax)
  else:
    places = middle + 0.8 * np.ptp(angles) * np.linspace(
      -0.5, 0.5, len(clients)
    )
    ax.set_xlabel('no last update: by client')
    ax.tick_params(axis='x', labelbottom=False)
  if len(clients):
    dots = {'markersize': 3.6, 'alpha': 0.6, 'markeredgewidth': 0.0}
    dots |= {'color': _COLOURS['FedAvg'], 'label': 'one client'}
    ax.plot(places, clients['update_norm'], 'o', **dots)
    if math.isfinite(norm):
      look = {'color': _COLOURS['CE-FedAvg'], 'linestyle': _DASHES[1]}
      ax.axhline(norm, linewidth=1.3, label='threshold c', **look)
  for length, angle in mean[['update_norm', 'angle_degrees']].to_numpy():
    marker, label = 'o', 'average'
    if length > top:
      marker, label = '^', f'average, beyond the scale: {length:.3g}'
    # Whole at 0 and 180 degrees too.
    look = {'color': '#000000', 'markersize': 6.5, 'clip_on': False}
    place = middle if math.isnan(angle) else angle
    ax.plot(place, min(length, top), marker, label=label, zorder=3, **look)
  ax.set(xlim=angles, ylim=(0.0, top), ylabel='Update norm ‖Δx$_i$‖$_2$')


def angle_limits(angles: pd.Series) -> tuple[float, float]:
  """Limits in steps of 15 degrees that hold every angle."""
  finite = angles[np.isfinite(angles)]
  if finite.empty:
    return 0.0, 180.0
  low = 15.0 * math.floor((finite.min() - 2.0) / 15.0)
  high = 15.0 * math.ceil((finite.max() + 2.0) / 15.0)
  return max(low, 0.0), min(high, 180.0)


def scatters(table: pd.DataFrame) -> list[Drawing]:
  """The updates of one seed in up to three rounds, a figure each.

  Returns:
    For each model, data and split the figures of the setting and seed with the
    most runs: the first round that has angles, a middle one and the last.
  """
  drawn = []
  table = names.ordered(table[table['has_updates']])
  for (data, model), part in table.groupby(['data', 'model_name'], sort=False):
    shown = pd.concat(
      own[own['setting'] == own['setting'].value_counts(sort=False).idxmax()]
      for _, own in part.groupby(['split', 'partition'], sort=False)
    )
    rounds = sorted({*stats.updates(shown)['t']})
    # The first has no angles, and comes if nothing else.
    later = rounds[1:] if rounds[0] == 0 and rounds[1:] else rounds
    rounds = sorted({later[0], later[len(later) // 2], later[-1]})
    mark = ' †' if shown['has_simulation_figures'].any() else ''
    by_round = scatter([at_round(shown, t) for t in rounds])
    for t, panels in zip(rounds, by_round, strict=True):
      title = f'{model} on {data}, t = {t}{mark}'
      grid = [[panel] for panel in panels]
      drawn.append(updates_drawing(title, grid, (3.4, 2.6)))
  return drawn


def at_round(table: pd.DataFrame, t: int) -> pd.DataFrame:
  """Runs for `scatter`, whose titles are the algorithm or, of two, the name."""
  titles = table['algorithm_name'] + ', ' + table['split']
  titles = titles.where(~titles.duplicated(keep=False), table.index)
  return table.assign(title=titles + f', t = {t}', t=t)
