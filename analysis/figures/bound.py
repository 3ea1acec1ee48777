"""Theorem 1 on a run: what clipping and noise do, round by round.

L, G, σ_l and σ_g are no part of a run folder, unless somebody estimated them
and left `constants.json` there. Without them the clipping term is shown in
units of G², and the rest relative to the measured updates.
"""

import pandas as pd
from matplotlib import figure

from analysis.figures import panels, style

# Terms below this share of the largest are not drawn: what is 0 but for
# rounding would stretch the scale by ten orders of magnitude.
_LEAST_SHARE = 1e-8

_TERM_LOOKS = {
  'initial_gap': ('f(x⁰) − f* at the start', style.GREY, None),
  'client_drift': ('heterogeneity and local steps', style.BLUE, 'o'),
  'sampling_noise': ('variance of gradients', style.SKY_BLUE, 's'),
  'client_sampling': ('variance of client sampling', style.PURPLE, 'p'),
  'privacy_noise': ('privacy noise', style.GREEN, '^'),
  'clipping_bias': ('clipping, first term', style.VERMILION, 'D'),
  'clipping_variance': ('clipping, second term', style.ORANGE, 'v'),
}


def draw_deviation(data: pd.DataFrame, title: str) -> figure.Figure:
  """Draws `deviation_data`: the factors on the left, the update on the right.

  Args:
    data: What to draw, not empty.
    title: What stands above the panels.
  """
  colours = style.Lines()
  left, right = [], []
  for run, part in data.groupby('run', sort=False):
    algorithm = part['algorithm'].iloc[0]
    colour = colours.next_colour(algorithm)
    several = data.loc[data['algorithm'] == algorithm, 'run'].nunique() > 1
    name = run if several else algorithm
    for lines, column, what, dash, marker, scale in (
      (left, 'between_clients', 'between clients', '-', 'o', 1.0),
      (left, 'within_clients', 'within clients', style.DASHES[1], 's', 1.0),
      (right, 'bias', 'clipping, at most', '-', 'o', 100.0),
      (right, 'noise', 'noise / √T', style.DASHES[1], '^', 100.0),
    ):
      look = {'color': colour, 'linestyle': dash, 'marker': marker}
      if part[column].notna().any():
        lines.append(
          panels.Line(
            f'{name}: {what}',
            look | {'markersize': 4.5},
            scale * part[column],
            part['t'],
          )
        )
  return panels.draw(
    [
      panels.Panel('', lines, label, (0.0, None))
      for lines, label in (
        (left, 'Mean deviation of the factors α'),
        (right, 'Share of the mean update norm (%)'),
      )
    ],
    x_label='Round t',
    title=title,
    size=(4.6, 3.4),
  )


def draw_terms(data: pd.DataFrame, title: str) -> figure.Figure:
  """Draws `term_data`: a panel a run, all on one logarithmic scale.

  Args:
    data: What to draw, not empty.
    title: What stands above the panels.
  """
  terms = data[list(_TERM_LOOKS)]
  least = _LEAST_SHARE * float(terms.to_numpy().max())
  shown = terms.where(terms > least)
  limits = (0.5 * shown.min(axis=None), 2.0 * shown.max(axis=None))
  shown = data[['run', 't']].join(shown)
  drawn = []
  for run, part in shown.groupby('run', sort=False):
    lines = [
      panels.Line(
        label,
        {'color': colour, 'marker': marker, 'markersize': 4.5},
        known[name],
        known['t'],
      )
      for name, (label, colour, marker) in _TERM_LOOKS.items()
      for known in [part.dropna(subset=[name])]
      if len(known)
    ]
    label = 'Term of the bound on ᾱ ‖∇f‖²'
    drawn.append(panels.Panel(run, lines, label, limits, is_log=True))
  return panels.draw(drawn, x_label='Round t', title=title, size=(4.2, 3.4))
