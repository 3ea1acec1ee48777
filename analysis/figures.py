"""Figures of accuracy: one function for the data, one for the drawing.

The data of every figure is a data frame, so that a figure is checked by its
numbers and not by its pixels.
"""

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib import figure, ticker

from analysis import paper, results, style, tables

_MAX_COLUMNS = 3


def accuracy_data(groups: Sequence[Sequence[results.Run]]) -> pd.DataFrame:
  """Test accuracy by round.

  Args:
    groups: Groups of comparable runs; each is a panel.

  Returns:
    Columns panel, line, algorithm, variant (the number of the line among those
    of its algorithm in the panel), round_num, accuracy (percent).
  """
  frames = []
  titles = panel_titles(groups)
  for title, group in zip(titles, groups, strict=True):
    seen: dict[str, int] = {}
    for run in tables.ordered(group):
      algorithm = paper.algorithm_name(run)
      variant = seen.get(algorithm, 0)
      seen[algorithm] = variant + 1
      data = run.accuracy_by_round
      frames.append(
        data.assign(
          panel=title,
          line=line_label(run, group),
          algorithm=algorithm,
          variant=variant,
        )
      )
  columns = ['panel', 'line', 'algorithm', 'variant', 'round_num', 'accuracy']
  if not frames:
    return pd.DataFrame(columns=columns)
  return pd.concat(frames, ignore_index=True)[columns]


def draw_accuracy(data: pd.DataFrame) -> figure.Figure:
  """Draws `accuracy_data`: a panel a setting, all on one scale of accuracy."""
  panels = list(dict.fromkeys(data['panel']))
  columns = min(len(panels), _MAX_COLUMNS)
  rows = math.ceil(len(panels) / columns)
  width, height = (6.2, 3.8) if len(panels) == 1 else (4.0, 3.2)
  with style.styled():
    drawing, grid = style.new_figure(
      rows, columns, width, height, share_scales=False
    )
    all_axes = [ax for row in grid for ax in row]
    low, high = _padded(data['accuracy'], 0.04)
    for ax, panel in zip(all_axes, panels, strict=False):
      panel_data = data[data['panel'] == panel]
      for label, line in panel_data.groupby('line', sort=False):
        algorithm = line['algorithm'].iloc[0]
        ax.plot(
          line['round_num'],
          line['accuracy'],
          label=f'{label}: {line["accuracy"].iloc[-1]:.1f} %',
          color=style.ALGORITHM_COLOURS.get(algorithm, style.OTHER_COLOUR),
          linestyle=style.line_dash(algorithm, int(line['variant'].iloc[0])),
          marker='o' if len(line) <= 12 else None,
          markersize=3.5,
        )
      ax.set_title(panel, loc='left')
      ax.set_xlabel('Round')
      ax.xaxis.set_major_locator(ticker.MaxNLocator('auto', integer=True))
      ax.set_ylim(max(low, 0.0), min(high, 101.0))
      ax.set_xlim(left=0)
      ax.legend(loc='best')
    for row in grid:
      row[0].set_ylabel('Test accuracy (%)')
    for ax in all_axes[len(panels) :]:
      ax.remove()
  return drawing


def epsilon_data(group: Sequence[results.Run]) -> pd.DataFrame:
  """Final accuracy by ε, for the private runs of a group of comparable runs.

  Args:
    group: Runs of one setting.

  Returns:
    Columns run, sampling, epsilon (by the plan's accounting), sampler_epsilon
    (what the sampler really gives, NaN where this is the same), accuracy
    (percent), by rising epsilon. Runs that are not finished are left out.
  """
  rows = [
    {
      'run': run.name,
      'sampling': str((run.privacy or {}).get('sampling', 'not known')),
      'epsilon': tables.epsilon_spent(run),
      'sampler_epsilon': tables.sampler_epsilon(run),
      'accuracy': run.final_accuracy,
    }
    for run in group
    if run.is_private and run.is_complete
  ]
  data = pd.DataFrame(
    rows,
    columns=['run', 'sampling', 'epsilon', 'sampler_epsilon', 'accuracy'],
  )
  data = data[np.isfinite(data['epsilon'].astype(float))]
  return data.sort_values(['sampling', 'epsilon'], ignore_index=True)


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
        color=style.ALGORITHM_COLOURS.get(name, style.OTHER_COLOUR),
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
    pairs: From `concentration.pairs`.
    correlation: The rank correlation and its interval in words.
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
        pair['label'],
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


def line_label(run: results.Run, group: Sequence[results.Run]) -> str:
  """The algorithm, with what tells the run from others of its algorithm."""
  name = paper.algorithm_name(run)
  same = [other for other in group if other.algorithm == run.algorithm]
  epsilon = tables.epsilon_spent(run) if run.is_private else math.nan
  private = f', ε = {epsilon:.3g}' if math.isfinite(epsilon) else ''
  label = name + private
  if len(same) > 1:
    others = [tables.epsilon_spent(other) for other in same if other is not run]
    if not private or epsilon in others:
      label += f' ({run.name})'
  if not run.is_complete:
    label += f', {run.rounds_done} of {run.num_rounds} rounds'
  return label


def panel_titles(groups: Sequence[Sequence[results.Run]]) -> list[str]:
  """A title for each group, with what tells apart two that would be equal.

  That is the number of examples a client, the seed, or else a number.
  """
  titles = [paper.setting_title(group[0]) for group in groups]
  sizes = [group[0].experiment.get('examples_per_client') for group in groups]
  pairs = set(zip(titles, sizes, strict=True))
  titles = [
    f'{title}, {size} a client'
    if size and sum(other == title for other, _ in pairs) > 1
    else title
    for title, size in zip(titles, sizes, strict=True)
  ]
  if len(set(titles)) < len(titles):
    titles = [
      f'{title}, seed {group[0].seed}' if titles.count(title) > 1 else title
      for title, group in zip(titles, groups, strict=True)
    ]
  return [
    f'{title} ({titles[: index + 1].count(title)})'
    if titles.count(title) > 1
    else title
    for index, title in enumerate(titles)
  ]


def _padded(values: pd.Series, share: float) -> tuple[float, float]:
  if values.dropna().empty:
    return 0.0, 100.0
  low, high = float(values.min()), float(values.max())
  pad = share * max(high - low, 1.0)
  return low - pad, high + pad
