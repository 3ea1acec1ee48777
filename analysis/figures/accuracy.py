"""Accuracy by round, and by ε: their data, and how they are drawn.

The data of every figure is a data frame, so that a figure is checked by its
numbers and not by its pixels.
"""

import collections
import itertools
from collections.abc import Iterator, Sequence
from typing import TypeAlias

import numpy as np
import pandas as pd
from matplotlib import figure

from analysis.figures import panels, style
from analysis.runs import frame, titles
from analysis.runs import metric as metrics

# Its title, its runs and their labels.
_Panel: TypeAlias = tuple[str, pd.DataFrame, pd.Series]
# A panel of the runs of several settings has no more lines.
_MAX_LINES = 8

# What is shown of the accuracies of seeds.
_OVER_SEEDS = {
  'score': ('score', 'mean'),
  'low': ('score', 'min'),
  'high': ('score', 'max'),
}
_ROUND_COLUMNS = 'panel line algorithm round_num score low high'.split()


def accuracy_data(
  frames: frame.Frames, runs: pd.DataFrame, *, is_merged: bool = False
) -> pd.DataFrame:
  """The metric of runs by round, such as the test accuracy, over seeds.

  Args:
    frames: Where the rounds are.
    runs: The rows of the runs to show.
    is_merged: Whether the settings of one model, data and split share a panel,
      if its lines are not too many.

  Returns:
    Columns panel, line, algorithm, round_num, score (an accuracy in percent,
    the mean over seeds), low and high (the range of seeds).
  """
  series = [
    frame.ordered(part) for _, part in runs.groupby('series', sort=False)
  ]
  parts = [pd.DataFrame(columns=_ROUND_COLUMNS)]
  for title, part, labels in (_merged if is_merged else _by_setting)(series):
    own = part.assign(line=labels)[['line', 'algorithm_name']].reset_index()
    rounds = own.merge(frames.rounds.dropna(subset=['score']), on='run')
    by_line = rounds.groupby(['line', 'round_num'], sort=False)
    data = by_line.agg(algorithm=('algorithm_name', 'first'), **_OVER_SEEDS)
    parts.append(data.reset_index().assign(panel=title)[_ROUND_COLUMNS])
  return pd.concat(parts[1:] or parts, ignore_index=True)


def _by_setting(series: Sequence[pd.DataFrame]) -> Iterator[_Panel]:
  """Panels of one setting each: title, runs and labels."""
  names = titles.setting_titles([part.iloc[0] for part in series])
  for title, part in zip(names, series, strict=True):
    yield title, part, titles.line_labels(part)


def _merged(series: Sequence[pd.DataFrame]) -> Iterator[_Panel]:
  """Panels of one model, data and split, or `_by_setting` where it is full."""
  problems = collections.defaultdict(list)
  for part in series:
    first = part.iloc[0]
    problems[titles.shared_title([first]), first['metric']].append(part)
  for own in problems.values():
    runs = pd.concat(own)
    found = titles.describe_runs(runs)
    labels = found['line'] + found['setting'].map(
      lambda setting: f', {setting}' if setting else ''
    )
    if labels.nunique() > _MAX_LINES:
      yield from _by_setting(own)
    else:
      title = titles.shared_title([part.iloc[0] for part in own])
      yield title, runs, labels


def draw_accuracy(
  data: pd.DataFrame,
  *,
  metric: metrics.Metric = metrics.ACCURACY,
  limits: tuple[float, float] | None = None,
  size: tuple[float, float] | None = None,
) -> figure.Figure:
  """Draws `accuracy_data`: a panel a setting, a band over its seeds.

  Args:
    data: What to draw, not empty.
    metric: What is shown.
    limits: The ends of all vertical axes; those of each panel's data if None.
    size: Width and height of a panel in inches; None for one that fits.
  """
  shown = []
  for panel, own in data.groupby('panel', sort=False):
    looks = style.Lines()
    decimals = 1 if metric.is_share else metric.decimals(own['score'])
    lines = [
      panels.Line(
        f'{label}: {line["score"].iloc[-1]:.{decimals}f}'
        + (' %' if metric.is_share else ''),
        looks.next_look(line['algorithm'].iloc[0])
        | {'marker': 'o' if len(line) <= 12 else None, 'markersize': 3.5},
        line['score'],
        line['round_num'],
        line['low'],
        line['high'],
      )
      for label, line in own.groupby('line', sort=False)
    ]
    own_limits = limits or find_limits(own, metric)
    shown.append(panels.Panel(panel, lines, metric.heading, own_limits))
  drawing = panels.draw(shown, x_label='Round', size=size)
  for ax in drawing.axes:
    ax.set_xlim(left=0)
  return drawing


def find_limits(
  data: pd.DataFrame, metric: metrics.Metric
) -> tuple[float, float]:
  """The ends of the vertical axes of panels that share a scale.

  Args:
    data: From `accuracy_data`, not empty.
    metric: What is shown.

  Returns:
    Limits by all but the first tenth of the rounds of each panel, if the
    others take no more than two thirds of the whole height: a model that has
    learnt nothing would flatten what comes after.
  """
  longest = data.groupby('panel')['round_num'].transform('max')
  late = data[data['round_num'] >= 0.1 * longest]
  if metric.is_share:
    low, high = late['low'].min(), data['high'].max()
    pad = 0.05 * max(high - low, 1.0)
    return max(low - pad, 0.0), min(high + pad, 101.0)
  whole, ends = _finite_ends(data), _finite_ends(late)
  if ends.empty:
    return 0.0, 1.0
  if np.ptp(whole) <= 1.5 * np.ptp(ends):
    ends = whole
  pad = 0.05 * (np.ptp(ends) or 1.0)
  return ends.min() - pad, ends.max() + pad


def _finite_ends(data: pd.DataFrame) -> pd.Series:
  """Both ends of the ranges; a loss can be infinite."""
  ends = data[['low', 'high']].stack()
  return ends[np.isfinite(ends)]


def epsilon_data(runs: pd.DataFrame) -> pd.DataFrame:
  """The final metric by ε and without, of the finished runs of a setting.

  Audited runs, with canaries among their clients, are left out.

  Args:
    runs: The rows of runs whose settings differ in the seed alone.

  Returns:
    Columns line (runs that differ in ε and the seed alone), algorithm, epsilon
    (by the plan's accounting; NaN for FedAvg and CE-FedAvg without privacy,
    which come first), sampler_epsilon (what the sampler really gives, NaN where
    this is the same), metric, score (its mean over seeds; accuracies in
    percent), low and high (the range of seeds), a line after the other, by
    rising epsilon.
  """
  runs = runs[runs['is_complete']]
  plain = runs[
    runs['algorithm'].isin(['fed_avg', 'ce_fed_avg']) & ~runs['is_private']
  ]
  private = frame.ordered(
    runs[
      runs['is_private']
      & ~runs['is_audited']
      & np.isfinite(runs['epsilon_spent'])
    ]
  )
  labels = [titles.line_labels(plain), titles.epsilon_labels(private)]
  runs = runs.loc[[*plain.index, *private.index]]
  actual = runs['privacy_actual_epsilon']
  points = pd.DataFrame(
    {
      'line': pd.concat(labels),
      'algorithm': runs['algorithm_name'],
      'epsilon': runs['epsilon_spent'].where(runs['is_private']),
      'sampler_epsilon': actual.where(actual != runs['privacy_epsilon']),
      'metric': runs['metric'],
      'score': runs['final_score'],
    }
  )
  lines = list(dict.fromkeys(points['line']))
  data = points.groupby(['line', 'epsilon'], dropna=False).agg(
    algorithm=('algorithm', 'first'),
    sampler_epsilon=('sampler_epsilon', 'max'),
    metric=('metric', 'first'),
    **_OVER_SEEDS,
  )
  return data.reset_index().sort_values(
    'line',
    key=lambda column: column.map(lines.index),
    kind='stable',
    ignore_index=True,
  )


def draw_epsilon(data: pd.DataFrame, title: str) -> figure.Figure:
  """Draws `epsilon_data`: runs without privacy as levels.

  Args:
    data: From `epsilon_data`, with an ε.
    title: What stands above the figure.
  """
  markers = itertools.cycle('os^D')
  looks = style.Lines()
  lines = []
  for label, line in data.groupby('line', sort=False):
    look = looks.next_look(line['algorithm'].iloc[0])
    if line['epsilon'].isna().all():
      label, look = f'{label} (no privacy)', look | {'linewidth': 1.3}
      lines.append(panels.Line(label, look, line['score'].to_list()))
    else:
      look |= {'marker': next(markers), 'markersize': 5.5}
      lines.append(
        panels.Line(
          label,
          look,
          line['score'],
          line['epsilon'],
          line['low'],
          line['high'],
        )
      )
  moved = data.dropna(subset=['sampler_epsilon'])
  if len(moved):
    hollow = {'color': style.GREY, 'marker': 'o', 'fillstyle': 'none'}
    lines.append(
      panels.Line(
        'ε that the sampler really gives',
        hollow | {'linestyle': ''},
        moved['score'],
        moved['sampler_epsilon'],
      )
    )
  heading = data['metric'].iloc[0].heading.lower()
  panel = panels.Panel('', lines, f'Final {heading}')
  drawing = panels.draw(
    [panel], x_label='Privacy budget ε (log scale)', title=title
  )
  ax = drawing.axes[0]
  for row in moved.to_dict('records'):
    ax.annotate(
      '',
      (row['sampler_epsilon'], row['score']),
      (row['epsilon'], row['score']),
      arrowprops={'arrowstyle': '->', 'color': style.GREY},
    )
  ax.set_xscale('log')
  ticks = sorted({*data['epsilon'].dropna(), *moved['sampler_epsilon']})
  ax.set_xticks(ticks, [f'{tick:.3g}' for tick in ticks])
  ax.set_xticks([], minor=True)
  return drawing
