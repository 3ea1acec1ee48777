"""Accuracy by round, and by ε: their data, and how they are drawn.

The data of every figure is a data frame, so that a figure is checked by its
numbers and not by its pixels.
"""

import itertools

import numpy as np
import pandas as pd
from matplotlib import figure

from analysis.figures import panels, style
from analysis.runs import frame, titles

# What is shown of the accuracies of seeds.
_OVER_SEEDS = {
  'accuracy': ('accuracy', 'mean'),
  'low': ('accuracy', 'min'),
  'high': ('accuracy', 'max'),
}
_ROUND_COLUMNS = 'panel line algorithm round_num accuracy low high'.split()


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
  parts = [pd.DataFrame(columns=_ROUND_COLUMNS)]
  names = titles.setting_titles([part.iloc[0] for part in series])
  for title, part in zip(names, series, strict=True):
    own = part.assign(line=titles.line_labels(part))
    own = own[['line', 'algorithm_name']].reset_index()
    rounds = own.merge(frames.rounds.dropna(subset=['accuracy']), on='run')
    by_line = rounds.groupby(['line', 'round_num'], sort=False)
    data = by_line.agg(algorithm=('algorithm_name', 'first'), **_OVER_SEEDS)
    parts.append(data.reset_index().assign(panel=title)[_ROUND_COLUMNS])
  return pd.concat(parts[1:] or parts, ignore_index=True)


def draw_accuracy(
  data: pd.DataFrame, *, same_scale: bool = False
) -> figure.Figure:
  """Draws `accuracy_data`: a panel a setting, a band over its seeds.

  Args:
    data: What to draw, not empty.
    same_scale: Whether all panels have one scale of accuracy, to be compared.
  """
  by_panel = dict(iter(data.groupby('panel', sort=False)))
  limits = {panel: _limits(own) for panel, own in by_panel.items()}
  if same_scale:
    lowest, highest = zip(*limits.values(), strict=True)
    limits = dict.fromkeys(limits, (min(lowest), max(highest)))
  shown = []
  for panel, own in by_panel.items():
    looks = style.Lines()
    lines = [
      panels.Line(
        f'{label}: {line["accuracy"].iloc[-1]:.1f} %',
        looks.next_look(line['algorithm'].iloc[0])
        | {'marker': 'o' if len(line) <= 12 else None, 'markersize': 3.5},
        line['accuracy'],
        line['round_num'],
        line['low'],
        line['high'],
      )
      for label, line in own.groupby('line', sort=False)
    ]
    shown.append(panels.Panel(panel, lines, 'Test accuracy (%)', limits[panel]))
  drawing = panels.draw(shown, x_label='Round')
  for ax in drawing.axes:
    ax.set_xlim(left=0)
  return drawing


def epsilon_data(runs: pd.DataFrame) -> pd.DataFrame:
  """Final accuracy by ε and without privacy, of the finished runs of a setting.

  Audited runs, with canaries among their clients, are left out.

  Args:
    runs: The rows of runs whose settings differ in the seed alone.

  Returns:
    Columns line (runs that differ in ε and the seed alone), algorithm, epsilon
    (by the plan's accounting; NaN for FedAvg and CE-FedAvg without privacy,
    which come first), sampler_epsilon (what the sampler really gives, NaN where
    this is the same) and accuracy (percent, the mean over seeds), low and high
    (the range of seeds), a line after the other, by rising epsilon.
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
      'accuracy': runs['final_accuracy'],
    }
  )
  lines = list(dict.fromkeys(points['line']))
  data = points.groupby(['line', 'epsilon'], dropna=False).agg(
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
      lines.append(panels.Line(label, look, line['accuracy'].to_list()))
    else:
      look |= {'marker': next(markers), 'markersize': 5.5}
      lines.append(
        panels.Line(
          label,
          look,
          line['accuracy'],
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
        moved['accuracy'],
        moved['sampler_epsilon'],
      )
    )
  panel = panels.Panel('', lines, 'Final test accuracy (%)')
  drawing = panels.draw(
    [panel], x_label='Privacy budget ε (log scale)', title=title
  )
  ax = drawing.axes[0]
  for row in moved.to_dict('records'):
    ax.annotate(
      '',
      (row['sampler_epsilon'], row['accuracy']),
      (row['epsilon'], row['accuracy']),
      arrowprops={'arrowstyle': '->', 'color': style.GREY},
    )
  ax.set_xscale('log')
  ticks = sorted({*data['epsilon'].dropna(), *moved['sampler_epsilon']})
  ax.set_xticks(ticks, [f'{tick:.3g}' for tick in ticks])
  ax.set_xticks([], minor=True)
  return drawing


def _limits(panel: pd.DataFrame) -> tuple[float, float]:
  """Limits of accuracy, by all but the first tenth of the rounds.

  A model that has learnt nothing would flatten what comes after.
  """
  late = panel[panel['round_num'] >= 0.1 * panel['round_num'].max()]
  low, high = late['low'].min(), panel['high'].max()
  pad = 0.05 * max(high - low, 1.0)
  return max(low - pad, 0.0), min(high + pad, 101.0)
