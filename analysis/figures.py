"""Figures of accuracy: one function for the data, one for the drawing.

The data of every figure is a data frame, so that a figure is checked by its
numbers and not by its pixels.
"""

import math

import numpy as np
import pandas as pd
from matplotlib import figure, ticker

from analysis import frame, style, titles

_MAX_COLUMNS = 3


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
    data = by_line.agg(
      algorithm=('algorithm_name', 'first'),
      accuracy=('accuracy', 'mean'),
      low=('accuracy', 'min'),
      high=('accuracy', 'max'),
    )
    parts.append(data.reset_index().assign(panel=title))
  columns = 'panel line algorithm round_num accuracy low high'.split()
  if not parts:
    return pd.DataFrame(columns=columns)
  return pd.concat(parts, ignore_index=True)[columns]


def draw_accuracy(data: pd.DataFrame) -> figure.Figure:
  """Draws `accuracy_data`: a panel a setting, a band over its seeds."""
  panels = list(dict.fromkeys(data['panel']))
  columns = min(len(panels), _MAX_COLUMNS)
  rows = math.ceil(len(panels) / columns)
  width, height = (6.2, 3.8) if len(panels) == 1 else (4.0, 3.2)
  with style.styled():
    drawing, grid = style.new_figure(
      rows, columns, width, height, share_scales=False
    )
    all_axes = [ax for row in grid for ax in row]
    for ax, panel in zip(all_axes, panels, strict=False):
      seen: dict[str, int] = {}
      for label, line in data[data['panel'] == panel].groupby(
        'line', sort=False
      ):
        algorithm = line['algorithm'].iloc[0]
        variant = seen.setdefault(algorithm, 0)
        seen[algorithm] += 1
        colour = style.algorithm_colour(algorithm)
        ax.plot(
          line['round_num'],
          line['accuracy'],
          label=f'{label}: {line["accuracy"].iloc[-1]:.1f} %',
          color=colour,
          linestyle=style.line_dash(algorithm, variant),
          marker='o' if len(line) <= 12 else None,
          markersize=3.5,
        )
        if (line['high'] > line['low']).any():
          ax.fill_between(
            line['round_num'],
            line['low'],
            line['high'],
            color=colour,
            alpha=0.2,
            linewidth=0,
          )
      ax.set_title(panel, loc='left', fontsize=8.5)
      ax.set_xlabel('Round')
      ax.xaxis.set_major_locator(
        ticker.MaxNLocator(6, integer=True, steps=[1, 2, 5, 10])
      )
      ax.set_xlim(left=0)
      ax.set_ylim(*_limits(data[data['panel'] == panel]))
      # Below the axes, where no line can run through it.
      ax.legend(
        loc='upper center',
        bbox_to_anchor=(0.5, -0.17),
        ncols=2,
        fontsize=7.5,
      )
    for row in grid:
      row[0].set_ylabel('Test accuracy (%)')
    for ax in all_axes[len(panels) :]:
      ax.remove()
  return drawing


def epsilon_data(group: pd.DataFrame) -> pd.DataFrame:
  """Final accuracy by ε, for the finished private runs of one setting.

  Audited runs, with canaries among their clients, are left out.

  Args:
    group: The rows of the runs.

  Returns:
    Columns sampling, epsilon (by the plan's accounting), sampler_epsilon (what
    the sampler really gives, NaN where this is the same) and accuracy
    (percent), by rising epsilon, with the names of the runs as index.
  """
  private = group[
    group['is_private'] & group['is_complete'] & ~group['is_audited']
  ]
  actual = private['privacy_actual_epsilon']
  data = pd.DataFrame(
    {
      'sampling': private['privacy_sampling'].fillna('not known'),
      'epsilon': private['epsilon_spent'],
      'sampler_epsilon': actual.where(actual != private['privacy_epsilon']),
      'accuracy': private['final_accuracy'],
    }
  )
  return data[np.isfinite(data['epsilon'])].sort_values(['sampling', 'epsilon'])


def draw_epsilon(
  data: pd.DataFrame, references: dict[str, float], title: str
) -> figure.Figure:
  """Draws `epsilon_data`, with the accuracies of runs without privacy.

  Args:
    data: From `epsilon_data`, not empty.
    references: By algorithm, the accuracy (percent) of a run without privacy.
    title: What stands above the figure.
  """
  markers = ('o', 's', '^', 'D')
  with style.styled():
    drawing, grid = style.new_figure(1, 1, 6.2, 3.8)
    ax = grid[0][0]
    for name, accuracy in references.items():
      ax.axhline(
        accuracy,
        color=style.algorithm_colour(name),
        linestyle=style.DASHES[1],
        linewidth=1.3,
        label=f'{name} (no privacy)',
      )
    for index, (sampling, line) in enumerate(data.groupby('sampling')):
      ax.plot(
        line['epsilon'],
        line['accuracy'],
        color=style.GREEN,
        linestyle=style.DASHES[index % len(style.DASHES)],
        marker=markers[index % len(markers)],
        markersize=5.5,
        label=f'DP-FedAvg, {sampling.replace("_", " ")} sampling',
      )
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
    ax.set_title(title, loc='left')
    ax.legend(loc='best')
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


def _limits(panel: pd.DataFrame) -> tuple[float, float]:
  """Limits of accuracy, by all but the first tenth of the rounds.

  A model that has learnt nothing would flatten what comes after.
  """
  late = panel[panel['round_num'] >= 0.1 * panel['round_num'].max()]
  low, high = late['low'].min(), panel['high'].max()
  pad = 0.05 * max(high - low, 1.0)
  return max(low - pad, 0.0), min(high + pad, 101.0)
