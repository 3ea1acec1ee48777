"""The figures of reports and pages: lines by round or by a quantity, and dots.

One function draws them all: a figure is panels, a panel is lines. So figures
are checked by their panels, and not by their pixels.
"""

import collections
import dataclasses
import functools
import itertools
import math
import pathlib
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import matplotlib
import numpy as np
import pandas as pd
from matplotlib import axes, colors, figure, ticker

from analysis import names, stats
from analysis.stats import Runs

# The palette of Okabe and Ito (2008), which colour-blind readers tell apart.
_COLOURS = {
  'FedAvg': '#0072B2',
  'CE-FedAvg': '#D55E00',
  'DP-FedAvg': '#009E73',
  'Model clipping': '#CC79A7',
}
_GREY = '#6E6E6E'
# Lines of one algorithm in one panel differ in the dash and then in the shade:
# what is added to its colour, of which, and how much.
_DASHES = ('-', (0, (5, 2)), (0, (1.5, 1.5)), (0, (6, 2, 1.5, 2)))
_SHADES = ((0.0, 0.0), (0.0, 0.5), (1.0, 0.5))

_TITLE_SIZE, _LEGEND_SIZE = 8.5, 7.5
_STYLE = {
  'font.family': 'DejaVu Sans',
  'font.size': 9.0,
  'axes.labelsize': 9.0,
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
# A panel of the runs of several settings has no more lines.
_MAX_LINES = 8
# Of Figs. 1 and 2, 0 being the first round.
_FIGURE_ROUND = 16
_ANGLE_LABEL = 'Angle to the last global update (degrees)'


@dataclasses.dataclass(frozen=True, eq=False)
class Line:
  """A line, or a level where it has no x.

  Attributes:
    label: What the legend says.
    look: How it is drawn: arguments of `Axes.plot`.
    y: Its values; one for a level.
    x: Where they are; None for a level.
    low: The lower ends of its band; None without one.
    high: The upper ends.
    note: What stands beside its first point.
  """

  label: str
  look: Mapping[str, Any]
  y: Sequence[float]
  x: Sequence[float] | None = None
  low: Sequence[float] | None = None
  high: Sequence[float] | None = None
  note: str = ''


@dataclasses.dataclass(frozen=True, eq=False)
class Panel:
  """Lines on one pair of axes.

  Attributes:
    title: What stands above it; empty for nothing.
    lines: The lines, in the order of the legend; empty where nothing was
      recorded.
    x_label: What the horizontal axis shows.
    y_label: What the vertical axis shows.
    x_limits: The ends of the horizontal axis; None at an end for the data's.
    y_limits: The ends of the vertical axis.
    is_log: Whether the horizontal axis is logarithmic, with a tick at each x.
    has_x: Whether the horizontal axis has numbers.
  """

  title: str
  lines: Sequence[Line]
  x_label: str
  y_label: str
  x_limits: tuple[float | None, float | None] = (None, None)
  y_limits: tuple[float | None, float | None] = (None, None)
  is_log: bool = False
  has_x: bool = True


class Drawing(NamedTuple):
  """A figure before it is drawn.

  Attributes:
    name: The name of its file.
    caption: What it shows, in words.
    draw: Draws it.
  """

  name: str
  caption: str
  draw: Callable[[], figure.Figure]


def draw(
  grid: Sequence[Sequence[Panel]],
  size: tuple[float, float],
  *,
  title: str = '',
  one_legend: bool = False,
) -> figure.Figure:
  """Draws panels.

  Args:
    grid: The panels of each row.
    size: Width and height of a panel in inches.
    title: What stands above all; empty for nothing.
    one_legend: Whether one legend is for all panels, with each label once, in
      place of one below each panel.
  """
  num_columns = max(map(len, grid))
  with matplotlib.rc_context(_STYLE):
    drawing = figure.Figure(
      (num_columns * size[0], len(grid) * size[1]), layout='constrained'
    )
    every = drawing.subplots(len(grid), num_columns, squeeze=False)
    for row, panels in zip(every, grid, strict=True):
      for ax, panel in itertools.zip_longest(row, panels):
        if panel is None:
          ax.remove()
          continue
        _draw_panel(ax, panel, size[0])
        # Panels beside each other mostly share what their axes show.
        if ax is not row[0] and panel.y_label == panels[0].y_label:
          ax.set_ylabel('')
        if one_legend and panel.has_x:
          ax.set_xlabel('')
    if title:
      wrapped = _wrapped(title, num_columns * size[0], 10.5)
      drawing.suptitle(wrapped, x=0.01, ha='left', fontsize=10.5)
    if one_legend:
      drawing.supxlabel(_ANGLE_LABEL, fontsize=9)
      shown: dict[str, Any] = {}
      for ax in drawing.axes:
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
          shown.setdefault(label, handle)
      drawing.legend(
        shown.values(),
        shown.keys(),
        loc='outside upper right',
        ncols=3 if num_columns > 1 else 2,
        fontsize=8.0,
      )
    else:
      _add_legends(drawing, grid, size[0])
  return drawing


def _draw_panel(ax: axes.Axes, panel: Panel, width: float) -> None:
  ax.set_title(
    _wrapped(panel.title, width - 0.5, _TITLE_SIZE),
    loc='left',
    fontsize=_TITLE_SIZE,
  )
  if not panel.lines:
    ax.text(0.5, 0.5, 'not recorded', transform=ax.transAxes, ha='center')
    ax.set_axis_off()
    return
  for line in panel.lines:
    if line.x is None:
      ax.axhline(line.y[0], label=line.label, **line.look)
      continue
    ax.plot(line.x, line.y, label=line.label, **line.look)
    if line.low is not None and np.any(np.greater(line.high, line.low)):
      ax.fill_between(
        line.x,
        line.low,
        line.high,
        color=line.look['color'],
        alpha=0.2,
        linewidth=0,
      )
    if line.note:
      is_left = line.x[0] < np.mean(panel.x_limits)
      ax.annotate(
        line.note,
        (line.x[0], line.y[0]),
        xytext=(6 if is_left else -6, -3),
        textcoords='offset points',
        ha='left' if is_left else 'right',
        va='center',
        fontsize=7.5,
      )
  ax.set_xlabel(panel.x_label)
  ax.set_ylabel(panel.y_label)
  ax.set_xlim(*panel.x_limits)
  ax.set_ylim(*panel.y_limits)
  if panel.is_log:
    ax.set_xscale('log')
    ticks = sorted({x for line in panel.lines for x in line.x or ()})
    ax.set_xticks(ticks, [f'{tick:.3g}' for tick in ticks])
    ax.set_xticks([], minor=True)
  elif panel.has_x:
    ax.xaxis.set_major_locator(
      ticker.MaxNLocator(6, integer=True, steps=[1, 2, 5, 10])
    )
  else:
    ax.tick_params(axis='x', labelbottom=False)


def _add_legends(
  drawing: figure.Figure, grid: Sequence[Sequence[Panel]], width: float
) -> None:
  """A legend below each panel; the figure grows by what they need."""
  shown = iter(drawing.axes)
  num_lines = 0
  for row in grid:
    most = 0
    for ax in itertools.islice(shown, len(row)):
      handles, labels = ax.get_legend_handles_labels()
      labels = [_wrapped(each, width - 0.8, _LEGEND_SIZE) for each in labels]
      # Below the ticks and the label of the axis.
      legend = {'loc': 'upper center', 'bbox_to_anchor': (0.5, 0.0)}
      legend['borderaxespad'] = 4.5
      ax.legend(
        handles, labels, fontsize=_LEGEND_SIZE, handlelength=3.0, **legend
      )
      most = max(most, sum(1 + label.count('\n') for label in labels))
    num_lines += most
  height = drawing.get_figheight() + 1.6 * _LEGEND_SIZE / 72 * num_lines
  drawing.set_figheight(height)


def _wrapped(text: str, width: float, size: float) -> str:
  """Text in lines of about a width in inches, in letters of a size."""
  # What a number is of stays beside it.
  whole = text.replace(' = ', '\xa0=\xa0').replace(' %', '\xa0%')
  letters = max(int(width * 120 / size), 8)
  lines = textwrap.fill(whole, letters, break_on_hyphens=False)
  return lines.replace('\xa0', ' ')


def save(drawing: figure.Figure, path: pathlib.Path, dpi: int) -> None:
  """Writes a PNG of so many dots an inch, the same bytes for the same data."""
  with matplotlib.rc_context(_STYLE):
    drawing.savefig(path, format='png', dpi=dpi, facecolor='white')


def file_part(text: str) -> str:
  """Text as a part of a file name."""
  return '_'.join(re.findall('[a-z0-9]+', text.lower()))


def looks() -> Callable[[str], dict[str, Any]]:
  """A function that gives lines of algorithms looks, no two of them alike.

  An algorithm has its colour, whatever of it was changed. CE-FedAvg starts
  dashed, so that FedAvg is seen below it where the two agree.
  """
  seen: collections.Counter = collections.Counter()

  def next_look(algorithm: str) -> dict[str, Any]:
    name = algorithm.split(' by ')[0]
    name = name if name in _COLOURS else ''
    number = seen[name] + (name == 'CE-FedAvg')
    seen[name] += 1
    shade, dash = divmod(number, len(_DASHES))
    other, share = _SHADES[shade % len(_SHADES)]
    colour = colors.to_rgb(_COLOURS.get(name, _GREY))
    mixed = colors.to_hex([(1 - share) * c + share * other for c in colour])
    return {'color': mixed, 'linestyle': _DASHES[dash]}

  return next_look


def curve_panel(
  title: str,
  table: pd.DataFrame,
  *,
  limits: tuple[float, float] | None = None,
) -> Panel:
  """The metric of some runs by round: means over seeds, with their range.

  Args:
    title: The title of the panel.
    table: The rows of the runs, of one metric.
    limits: The ends of the vertical axis; `curve_limits` of the runs if None.
  """
  metric, next_look = table['metric'].iloc[0], looks()
  decimals = 1 if metric.is_share else metric.decimals(table['final_score'])
  lines = []
  for label, own in table.groupby(names.labels(table), sort=False):
    rounds = _over_seeds(own)
    look = next_look(own['algorithm_name'].iloc[0])
    if len(rounds) <= 12:
      look |= {'marker': 'o', 'markersize': 3.5}
    last = stats.number(rounds['mean'].iloc[-1], f'.{decimals}f')
    lines.append(
      Line(
        f'{label}: {last}' + (' %' if metric.is_share else ''),
        look,
        rounds['mean'].to_list(),
        rounds.index.to_list(),
        rounds['min'].to_list(),
        rounds['max'].to_list(),
      )
    )
  return Panel(
    title,
    lines,
    'Round',
    metric.heading,
    (0.0, None),
    limits or curve_limits(table),
  )


def _over_seeds(table: pd.DataFrame) -> pd.DataFrame:
  """The mean, least and largest score of runs, by round."""
  scores = [pd.Series(dict(scores)) for scores in table['scores']]
  return pd.concat(scores, axis=1).agg(['mean', 'min', 'max'], axis=1)


def curve_limits(table: pd.DataFrame) -> tuple[float, float]:
  """The ends of the vertical axes of curves that share a scale.

  Returns:
    Limits by all but the first tenth of the rounds of each run, if the others
    take no more than two thirds of the whole height: a model that has learnt
    nothing would flatten what comes after.
  """
  points = [
    (score, number >= 0.1 * scores[-1][0])
    for scores in table['scores']
    for number, score in scores
    if math.isfinite(score)
  ]
  whole = [score for score, _ in points]
  late = [score for score, is_late in points if is_late]
  if not late:
    return 0.0, 1.0
  if table['metric'].iloc[0].is_share:
    low, high = min(late), max(whole)
    pad = 0.05 * max(high - low, 1.0)
    return max(low - pad, 0.0), min(high + pad, 101.0)
  ends = whole if np.ptp(whole) <= 1.5 * np.ptp(late) else late
  pad = 0.05 * (np.ptp(ends) or 1.0)
  return min(ends) - pad, max(ends) + pad


def curves(table: pd.DataFrame) -> list[Drawing]:
  """The metric by round: a figure for each model, data and split.

  A figure that would have too many lines is one for each setting. Figures of
  one data set have one scale.

  Args:
    table: The rows of the runs to show.
  """
  drawn = []
  table = names.ordered(table[table['final_score'].notna()])
  for (_, metric), of_data in table.groupby(['data', 'metric'], sort=False):
    limits = curve_limits(of_data)
    problems = of_data.apply(names.problem, axis=1)
    shown: list[tuple[str, pd.DataFrame]] = []
    for title, own in of_data.groupby(problems, sort=False):
      if names.labels(own).nunique() <= _MAX_LINES:
        shown.append((title, own))
      else:
        shown += by_setting(own)
    for title, own in shown:
      panel = curve_panel(title, own, limits=limits)
      what = f'{metric.title} by round'
      drawn.append(
        Drawing(
          f'{file_part(what)}_{file_part(title)}.png',
          f'{what.capitalize()}: {title}.',
          functools.partial(draw, [[panel]], (4.2, 2.9)),
        )
      )
  return drawn


def by_setting(table: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
  """The runs of each setting, which differ in the seed alone, with a title."""
  groups = [own for _, own in table.groupby('series', sort=False)]
  firsts = pd.DataFrame([own.iloc[0] for own in groups])
  return list(zip(names.titles(firsts), groups, strict=True))


def by_quantity(table: pd.DataFrame, quantity: str) -> list[Drawing]:
  """The final metric by ε or c: a figure for each setting that has several.

  Runs without the quantity are levels. Unfinished and audited runs are left
  out.

  Args:
    table: The rows of the runs to show.
    quantity: 'epsilon' or 'clipping_norm'.
  """
  what, x_label = {
    'epsilon': ('privacy budget', 'Privacy budget ε (log scale)'),
    'clipping_norm': ('clipping norm', 'Clipping norm c (log scale)'),
  }[quantity]
  usable = table['is_complete'] & table['final_score'].notna()
  shown = names.ordered(table[usable & ~table['is_audited']])
  drawn = []
  for title, own in by_setting(shown) if len(shown) else ():
    values = own[quantity].where(np.isfinite(own[quantity]))
    labels = names.labels(own, by=quantity)
    if values.groupby([labels, own['setting']]).nunique().max() < 2:
      continue
    metric, next_look, lines = own['metric'].iloc[0], looks(), []
    markers = itertools.cycle('os^D')
    for label, runs in own.groupby(labels, sort=False):
      look = next_look(runs['algorithm_name'].iloc[0])
      points = runs.groupby(values[runs.index])['final_score']
      points = points.agg(['mean', 'min', 'max'])
      if points.empty:
        level = [runs['final_score'].mean()]
        lines.append(Line(label, look | {'linewidth': 1.3}, level))
      else:
        ends = points['min'].to_list(), points['max'].to_list()
        x, y = points.index.to_list(), points['mean'].to_list()
        lines.append(Line(label, look | {'marker': next(markers)}, y, x, *ends))
    heading = f'Final {metric.heading.lower()}'
    panel = Panel(title, lines, x_label, heading, is_log=True)
    drawn.append(
      Drawing(
        f'{quantity}_{file_part(title)}.png',
        f'Final {metric.title} by {what}: {title}.',
        functools.partial(draw, [[panel]], (6.2, 3.6)),
      )
    )
  return drawn


def scatter_grid(
  found: Runs,
  table: pd.DataFrame,
  rounds: Sequence[int],
  angles: tuple[float, float],
) -> list[list[Panel]]:
  """The paper's scatter of norms against angles: a row a run, a column a round.

  Panels of a round have one scale of norms, but for runs whose aggregator is a
  user's own.

  Args:
    found: The runs.
    table: The rows of the runs to show, in the order of the rows.
    rounds: The rounds t.
    angles: The ends of the horizontal axes.
  """
  labels = table['algorithm_name'] + ', ' + table['split']
  labels = labels.where(~labels.duplicated(keep=False), table.index)
  shared = table[~table['own_aggregator']]
  tops = {t: highest(found, shared, t) for t in rounds}
  return [
    [
      update_panel(
        found,
        run,
        t,
        f'{labels[name]}, t = {t}',
        angles,
        highest(found, table.loc[[name]], t)
        if run['own_aggregator']
        else tops[t],
      )
      for t in rounds
    ]
    for name, run in table.iterrows()
  ]


def draw_updates(
  found: Runs, table: pd.DataFrame, title: str = ''
) -> figure.Figure:
  """Draws the updates of runs in all recorded rounds: see `scatter_grid`."""
  updates = found.updates(table.index)
  angles = angle_limits(updates['angle_degrees'])
  grid = scatter_grid(found, table, sorted(set(updates['t'])), angles)
  width = {1: 3.4, 2: 3.6, 3: 3.0}.get(len(grid[0]), 2.5)
  return draw(grid, (width, 2.4), title=title, one_legend=True)


def highest(found: Runs, table: pd.DataFrame, t: int) -> float:
  """The upper end of the scale of runs, by their clients and thresholds."""
  updates = found.updates(table.index)
  updates = updates[(updates['t'] == t) & ~updates['is_mean'].astype(bool)]
  norms = table['shown_norm'][table.index.isin(updates['run'])]
  values = [*updates['update_norm'], *norms]
  largest = max((x for x in values if math.isfinite(x)), default=0.0)
  return 1.08 * largest if largest > 0.0 else 1.0


def update_panel(
  found: Runs,
  run: pd.Series,
  t: int,
  title: str,
  angles: tuple[float, float],
  top: float,
) -> Panel:
  """Norm and angle of each update of a run in round t.

  In round 0 there is no last update: the dots stand side by side in the order
  of the clients. An average that is longer than `top` is marked at the upper
  edge, with its norm.

  Args:
    found: The runs.
    run: The row of the run.
    t: The round, 0 being the first.
    title: The title of the panel.
    angles: The ends of the horizontal axis.
    top: The end of the vertical axis.
  """
  middle = 0.5 * (angles[0] + angles[1])
  updates = found.updates([run.name])
  updates = updates[updates['t'] == t].astype({'is_mean': bool})
  clients, mean = updates[~updates['is_mean']], updates[updates['is_mean']]
  places = clients['angle_degrees'].astype(float).to_list()
  has_angles = bool(np.isfinite(places).any())
  if not has_angles:
    span = 0.8 * (angles[1] - angles[0])
    places = middle + span * (np.linspace(0.0, 1.0, len(clients)) - 0.5)
  lines = []
  if len(clients):
    dot = {'linestyle': '', 'marker': 'o', 'markersize': 3.6, 'alpha': 0.6}
    dot |= {'markeredgewidth': 0.0, 'color': _COLOURS['FedAvg']}
    lines.append(Line('one client', dot, [*clients['update_norm']], [*places]))
    if math.isfinite(run['shown_norm']):
      dash = {'color': _COLOURS['CE-FedAvg'], 'linestyle': _DASHES[1]}
      norm = [run['shown_norm']]
      lines.append(Line('threshold c', dash | {'linewidth': 1.3}, norm))
  for length, angle in mean[['update_norm', 'angle_degrees']].to_numpy(float):
    angle = middle if math.isnan(angle) else angle
    is_beyond = length > top
    # Whole at 0 and 180 degrees too.
    look = {'linestyle': '', 'color': '#000000', 'clip_on': False, 'zorder': 3}
    look |= {'marker': '^' if is_beyond else 'o', 'markersize': 6.5}
    label = 'average, beyond the scale' if is_beyond else 'average'
    note = f'{length:.3g}' if is_beyond else ''
    lines.append(Line(label, look, [min(length, top)], [angle], note=note))
  return Panel(
    title,
    lines,
    _ANGLE_LABEL if has_angles else 'no last update: by client',
    'Update norm ‖Δx$_i$‖$_2$',
    angles,
    (0.0, top),
    has_x=has_angles,
  )


def angle_limits(angles: pd.Series) -> tuple[float, float]:
  """Limits in steps of 15 degrees that hold every angle."""
  finite = angles[np.isfinite(angles.astype(float))]
  if finite.empty:
    return 0.0, 180.0
  low = 15.0 * math.floor((finite.min() - 2.0) / 15.0)
  high = 15.0 * math.ceil((finite.max() + 2.0) / 15.0)
  return max(low, 0.0), min(high, 180.0)


def scatters(found: Runs) -> list[Drawing]:
  """The updates of one seed in up to three rounds, a figure each.

  Returns:
    For each model, data and split the figures of the setting and seed with the
    most runs: the first round that has angles, a middle one and the last.
  """
  drawn = []
  recorded = [name for name, run in found.runs.items() if len(run.updates)]
  table = names.ordered(found.table.loc[recorded])
  for (data, model), part in table.groupby(['data', 'model_name'], sort=False):
    shown = pd.concat(
      [
        own[own['setting'] == own['setting'].value_counts(sort=False).idxmax()]
        for _, own in part.groupby(['split', 'partition'], sort=False)
      ]
    )
    updates = found.updates(shown.index)
    angles = angle_limits(updates['angle_degrees'])
    mark = ' †' if shown['has_simulation_figures'].any() else ''
    for t in _three(sorted(set(updates['t']))):
      grid = scatter_grid(found, shown, [t], angles)
      title = f'{model} on {data}, t = {t}'
      drawn.append(
        Drawing(
          f'updates_{file_part(title)}.png',
          f'Norm and angle of each update: {title}.{mark}',
          functools.partial(draw, grid, (3.4, 2.6), one_legend=True),
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
