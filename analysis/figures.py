"""Figures of accuracy: one function for the data, one for the drawing.

The data of every figure is a data frame, so that a figure is checked by its
numbers and not by its pixels.
"""

import math

import numpy as np
import pandas as pd
from matplotlib import axes, figure

from analysis import frame, style, titles

_MAX_COLUMNS = 3
_TITLE_SIZE = 8.5
# What is shown of the accuracies of seeds.
_OVER_SEEDS = {
  'accuracy': ('accuracy', 'mean'),
  'low': ('accuracy', 'min'),
  'high': ('accuracy', 'max'),
}


def accuracy_data(frames: frame.Frames, runs: pd.DataFrame) -> pd.DataFrame:
  """Test accuracy by round, over seeds.

  Args:
    frames: Where the rounds are.
    runs: The rows of the runs to show.

  Returns:
    Columns panel, line, algorithm, round_num, accuracy (percent, the mean over
    seeds), low and high (the range of seeds).
  """
  series = [
    frame.ordered(part) for _, part in runs.groupby('series', sort=False)
  ]
  parts = []
  names = titles.setting_titles([part.iloc[0] for part in series])
  for title, part in zip(names, series, strict=True):
    own = part.assign(line=titles.line_labels(part))
    own = own[['line', 'algorithm_name']].reset_index()
    rounds = own.merge(frames.rounds.dropna(subset=['accuracy']), on='run')
    by_line = rounds.groupby(['line', 'round_num'], sort=False)
    data = by_line.agg(algorithm=('algorithm_name', 'first'), **_OVER_SEEDS)
    parts.append(data.reset_index().assign(panel=title))
  columns = 'panel line algorithm round_num accuracy low high'.split()
  if not parts:
    return pd.DataFrame(columns=columns)
  return pd.concat(parts, ignore_index=True)[columns]


def draw_accuracy(
  data: pd.DataFrame, *, same_scale: bool = False
) -> figure.Figure:
  """Draws `accuracy_data`: a panel a setting, a band over its seeds.

  Args:
    data: What to draw, not empty.
    same_scale: Whether all panels have one scale of accuracy, to be compared.
  """
  panels = list(dict.fromkeys(data['panel']))
  columns = min(len(panels), _MAX_COLUMNS)
  rows = math.ceil(len(panels) / columns)
  width, height = (6.2, 3.8) if len(panels) == 1 else (4.0, 3.2)
  limits = {panel: _limits(data[data['panel'] == panel]) for panel in panels}
  if same_scale:
    lowest, highest = zip(*limits.values(), strict=True)
    limits = dict.fromkeys(panels, (min(lowest), max(highest)))
  with style.styled():
    drawing, grid = style.new_figure(
      rows, columns, width, height, share_scales=False
    )
    all_axes = [ax for row in grid for ax in row]
    for ax, panel in zip(all_axes, panels, strict=False):
      looks = style.Lines()
      own = data[data['panel'] == panel]
      for label, line in own.groupby('line', sort=False):
        look = looks.next_look(line['algorithm'].iloc[0])
        ax.plot(
          line['round_num'],
          line['accuracy'],
          label=f'{label}: {line["accuracy"].iloc[-1]:.1f} %',
          marker='o' if len(line) <= 12 else None,
          markersize=3.5,
          **look,
        )
        _draw_range(ax, line, 'round_num', look['color'])
      ax.set_title(
        # Less the labels of the axis.
        style.wrapped(panel, width - 0.5, _TITLE_SIZE),
        loc='left',
        fontsize=_TITLE_SIZE,
      )
      style.show_rounds(ax, 'Round')
      ax.set_xlim(left=0)
      ax.set_ylim(*limits[panel])
    for row in grid:
      row[0].set_ylabel('Test accuracy (%)')
    for ax in all_axes[len(panels) :]:
      ax.remove()
    style.add_legends_below(drawing, grid)
  return drawing


def epsilon_data(runs: pd.DataFrame) -> pd.DataFrame:
  """Final accuracy by ε, for the finished private runs of one setting.

  Audited runs, with canaries among their clients, are left out.

  Args:
    runs: The rows of runs whose settings differ in the seed alone.

  Returns:
    Columns line (runs that differ in ε and the seed alone), algorithm, epsilon
    (by the plan's accounting), sampler_epsilon (what the sampler really gives,
    NaN where this is the same) and accuracy (percent, the mean over seeds), low
    and high (the range of seeds), a line after the other, by rising epsilon.
  """
  private = runs[
    runs['is_private']
    & runs['is_complete']
    & ~runs['is_audited']
    & np.isfinite(runs['epsilon_spent'])
  ]
  private = frame.ordered(private)
  actual = private['privacy_actual_epsilon']
  points = pd.DataFrame(
    {
      'line': titles.epsilon_labels(private),
      'algorithm': private['algorithm_name'],
      'epsilon': private['epsilon_spent'],
      'sampler_epsilon': actual.where(actual != private['privacy_epsilon']),
      'accuracy': private['final_accuracy'],
    }
  )
  lines = list(dict.fromkeys(points['line']))
  by_point = points.groupby(['line', 'epsilon'])
  data = by_point.agg(
    algorithm=('algorithm', 'first'),
    sampler_epsilon=('sampler_epsilon', 'max'),
    **_OVER_SEEDS,
  )
  return data.reset_index().sort_values(
    'line',
    key=lambda column: column.map(lines.index),
    kind='stable',
    ignore_index=True,
  )


def references(runs: pd.DataFrame) -> pd.DataFrame:
  """Final accuracy without privacy, to stand beside `epsilon_data`.

  Args:
    runs: As in `epsilon_data`.

  Returns:
    Columns line, algorithm and accuracy (percent, the mean over seeds), of the
    finished runs of FedAvg and CE-FedAvg.
  """
  found = runs[
    runs['algorithm'].isin(['fed_avg', 'ce_fed_avg']) & runs['is_complete']
  ]
  found = found.assign(line=titles.line_labels(found))
  by_line = found.groupby('line', sort=False)
  return by_line.agg(
    algorithm=('algorithm_name', 'first'), accuracy=('final_accuracy', 'mean')
  ).reset_index()


def draw_epsilon(
  data: pd.DataFrame, without: pd.DataFrame, title: str
) -> figure.Figure:
  """Draws `epsilon_data`, with the accuracies of runs without privacy.

  Args:
    data: From `epsilon_data`, not empty.
    without: From `references`.
    title: What stands above the figure.
  """
  markers = ('o', 's', '^', 'D')
  with style.styled():
    drawing, grid = style.new_figure(1, 1, 6.2, 3.8)
    ax = grid[0][0]
    looks = style.Lines()
    for _, line in without.iterrows():
      ax.axhline(
        line['accuracy'],
        linewidth=1.3,
        label=f'{line["line"]} (no privacy)',
        **looks.next_look(line['algorithm']),
      )
    for index, (label, line) in enumerate(data.groupby('line', sort=False)):
      look = looks.next_look(line['algorithm'].iloc[0])
      ax.plot(
        line['epsilon'],
        line['accuracy'],
        marker=markers[index % len(markers)],
        markersize=5.5,
        label=label,
        **look,
      )
      _draw_range(ax, line, 'epsilon', look['color'])
    moved = data.dropna(subset=['sampler_epsilon'])
    for _, row in moved.iterrows():
      ax.annotate(
        '',
        (row['sampler_epsilon'], row['accuracy']),
        (row['epsilon'], row['accuracy']),
        arrowprops={'arrowstyle': '->', 'color': style.GREY},
      )
    if len(moved):
      ax.plot(
        moved['sampler_epsilon'],
        moved['accuracy'],
        color=style.GREY,
        marker='o',
        fillstyle='none',
        linestyle='',
        label='ε that the sampler really gives',
      )
    ax.set_xscale('log')
    ticks = sorted({*data['epsilon'], *moved['sampler_epsilon']})
    ax.set_xticks(ticks, [f'{tick:.3g}' for tick in ticks])
    ax.set_xticks([], minor=True)
    ax.set_xlabel('Privacy budget ε (log scale)')
    ax.set_ylabel('Final test accuracy (%)')
    style.add_title(drawing, title)
    style.add_legends_below(drawing, grid)
  return drawing


def draw_concentration(pairs: pd.DataFrame, correlation: str) -> figure.Figure:
  """Draws the spread of norms against the drop in accuracy by clipping.

  Args:
    pairs: Rows of runs of CE-FedAvg, with the `relative_spread` of the run of
      FedAvg that each is compared with.
    correlation: The rank correlation in words.
  """
  with style.styled():
    drawing, grid = style.new_figure(1, 1, 6.2, 4.2)
    ax = grid[0][0]
    for iid, marker, colour, label in (
      (True, 'o', style.BLUE, 'IID'),
      (False, 's', style.VERMILION, 'Non-IID'),
    ):
      part = pairs[pairs['is_iid'] == iid]
      if len(part):
        ax.plot(
          100.0 * part['relative_spread'],
          part['drop'],
          linestyle='',
          marker=marker,
          color=colour,
          markersize=6,
          label=label,
        )
    ordered = pairs.sort_values('relative_spread')
    for index, (_, pair) in enumerate(ordered.iterrows()):
      ax.annotate(
        f'{pair["model_name"]}, {pair["data"]}',
        (100.0 * pair['relative_spread'], pair['drop']),
        xytext=(5, 5 if index % 2 == 0 else -11),
        textcoords='offset points',
        fontsize=7.5,
        color='#333333',
      )
    ax.axhline(0.0, color=style.GREY, linewidth=0.8)
    ax.margins(x=0.18, y=0.15)
    ax.set_xlabel(
      'Spread of update norms in FedAvg: standard deviation / mean (%)'
    )
    ax.set_ylabel('Accuracy lost by clipping (points)')
    ax.set_title(correlation, loc='left')
    ax.legend(loc='best')
  return drawing


def _draw_range(
  ax: axes.Axes, line: pd.DataFrame, column: str, colour: str
) -> None:
  """A band over the seeds of a line, where they differ."""
  if (line['high'] > line['low']).any():
    ax.fill_between(
      line[column],
      line['low'],
      line['high'],
      color=colour,
      alpha=0.2,
      linewidth=0,
    )


def _limits(panel: pd.DataFrame) -> tuple[float, float]:
  """Limits of accuracy, by all but the first tenth of the rounds.

  A model that has learnt nothing would flatten what comes after.
  """
  late = panel[panel['round_num'] >= 0.1 * panel['round_num'].max()]
  low, high = late['low'].min(), panel['high'].max()
  pad = 0.05 * max(high - low, 1.0)
  return max(low - pad, 0.0), min(high + pad, 101.0)
