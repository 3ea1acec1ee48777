"""Theorem 1 on a run: what clipping and noise do, round by round.

L, G, σ_l and σ_g are no part of a run folder, unless somebody estimated them
and left `constants.json` there. Without them the clipping term is shown in
units of G², and the rest relative to the measured updates.
"""

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib import figure

from analysis import paper, results, run_files, style, tables, update_figures
from tff_clipping.theory import bounds, clipping_bias, estimates

_COLUMNS = (
  'run',
  'algorithm',
  't',
  'threshold',
  'between_clients',
  'within_clients',
  'bias',
  'noise',
)
# Terms below this share of the largest are not drawn: what is 0 but for
# rounding would stretch the scale by ten orders of magnitude.
_LEAST_SHARE = 1e-8

_TERM_COLUMNS = ('run', 't', 'initial_gap', *estimates.RoundTerms._fields)


def deviation_data(group: Sequence[results.Run]) -> pd.DataFrame:
  """What clipping and noise do in each recorded round of comparable runs.

  Args:
    group: Runs of one setting. A run that does not clip is looked at with the
      threshold of the others, if they share one. Runs that clip models are left
      out: the theorem is on clipped updates.

  Returns:
    Columns run, algorithm, t, threshold (c), between_clients (the mean of
    |α̃_i − ᾱ|; of |α_i − ᾱ| where ||E[Δx_i]|| was not measured),
    within_clients (the mean of |α_i − α̃_i|; NaN where not measured), bias and
    noise (relative to the mean update, see `estimates.UpdateError`; the noise
    is that of T rounds over √T, NaN for runs without). Rounds with norms that
    are not finite are left out.
  """
  rows = []
  for run in tables.ordered(group):
    norm = update_figures.find_threshold(run, [list(group)])
    if run.clips_models or not math.isfinite(norm):
      continue
    mechanism = _mechanism(run)
    for t in sorted(run.updates):
      factors = _factors(run, t, norm)
      if factors is None:
        continue
      norms = update_norms(run, t)
      measured = run_files.EXPECTED_NORM in run.updates[t]
      error = estimates.update_error(
        [norms], norm, mechanism or estimates.Mechanism(0.0, 1, 1)
      )
      rows.append(
        {
          'run': run.name,
          'algorithm': paper.algorithm_name(run),
          't': t,
          'threshold': norm,
          'between_clients': float(clipping_bias.client_deviation(factors)[0]),
          'within_clients': (
            float(clipping_bias.local_deviation(factors)[0])
            if measured
            else math.nan
          ),
          'bias': error.bias,
          'noise': error.averaged_noise if mechanism else math.nan,
        }
      )
  return pd.DataFrame(rows, columns=list(_COLUMNS))


def draw_deviation(data: pd.DataFrame, title: str) -> figure.Figure:
  """Draws `deviation_data`: the factors on the left, the update on the right.

  Args:
    data: What to draw, not empty.
    title: What stands above the panels.
  """
  with style.styled():
    drawing, grid = style.new_figure(1, 2, 4.6, 3.4, share_scales=False)
    left, right = grid[0]
    for run, part in data.groupby('run', sort=False):
      algorithm = part['algorithm'].iloc[0]
      colour = style.ALGORITHM_COLOURS.get(algorithm, style.OTHER_COLOUR)
      several = data.loc[data['algorithm'] == algorithm, 'run'].nunique() > 1
      name = f'{algorithm} ({run})' if several else algorithm
      for ax, column, what, dash, marker in (
        (left, 'between_clients', 'between clients', '-', 'o'),
        (left, 'within_clients', 'within clients', style.DASHES[1], 's'),
        (right, 'bias', 'clipping, at most', '-', 'o'),
        (right, 'noise', 'noise / √T', style.DASHES[1], '^'),
      ):
        scale = 100.0 if ax is right else 1.0
        if part[column].notna().any():
          ax.plot(
            part['t'],
            scale * part[column],
            color=colour,
            linestyle=dash,
            marker=marker,
            markersize=4.5,
            label=f'{name}: {what}',
          )
    left.set_ylabel('Mean deviation of the factors α')
    right.set_ylabel('Share of the mean update norm (%)')
    for ax in (left, right):
      ax.set_xlabel('Round t')
      ax.set_ylim(bottom=0.0)
      # Below the axes, where no line can run through it.
      ax.legend(
        loc='upper center', bbox_to_anchor=(0.5, -0.17), ncols=2, fontsize=7.5
      )
    drawing.suptitle(title, x=0.01, ha='left', fontsize=10.5)
  return drawing


def term_data(group: Sequence[results.Run]) -> pd.DataFrame:
  """Theorem 1's terms by round, of the runs that have their constants.

  Args:
    group: Runs of one setting. Runs that clip models are left out.

  Returns:
    Columns run, t, initial_gap (that term of the whole run, the same in every
    round) and the terms of `estimates.RoundTerms`; those of clipping are 0 for
    a run that does not clip. Empty where no run has both recorded updates and
    estimates of L, G, σ_l and σ_g.
  """
  rows = []
  for run in tables.ordered(group):
    problem = _problem(run)
    if problem is None or run.clips_models:
      continue
    gap = bounds.theorem_1_terms(problem, _schedule(run)).initial_gap
    for t in sorted(run.updates):
      factors = _factors(run, t, run.clipping_norm or 1.0)
      if factors is None:
        continue
      if run.clipping_norm is None:
        factors = clipping_bias.ClippingFactors(
          *(np.ones_like(a) for a in factors)
        )
      terms = estimates.round_terms(
        problem, _schedule(run), factors, noise_stddev=_client_stddev(run)
      )
      rows.append(
        {'run': run.name, 't': t, 'initial_gap': gap}
        | {name: float(value[0]) for name, value in terms._asdict().items()}
      )
  return pd.DataFrame(rows, columns=list(_TERM_COLUMNS))


def broken_conditions(group: Sequence[results.Run]) -> list[str]:
  """Which of Theorem 1's conditions do not hold, a sentence for each run.

  Args:
    group: Runs of one setting.

  Returns:
    Sentences on the runs of `term_data`; none where all conditions hold.
  """
  sentences = []
  for run in tables.ordered(group):
    problem = _problem(run)
    if problem is None or run.clips_models:
      continue
    broken = [
      f'{condition.name} ({condition.value:.3g} against {condition.limit:.3g})'
      for condition in bounds.theorem_1_conditions(problem, _schedule(run))
      if not condition.holds
    ]
    if broken:
      sentences.append(f'{run.name}: {", ".join(broken)}')
  return sentences


def draw_terms(data: pd.DataFrame, title: str) -> figure.Figure:
  """Draws `term_data`: a panel a run, all on one logarithmic scale.

  Args:
    data: What to draw, not empty.
    title: What stands above the panels.
  """
  looks = {
    'initial_gap': ('f(x⁰) − f* at the start', style.GREY, None),
    'client_drift': ('heterogeneity and local steps', style.BLUE, 'o'),
    'sampling_noise': ('variance of gradients', style.SKY_BLUE, 's'),
    'privacy_noise': ('privacy noise', style.GREEN, '^'),
    'clipping_bias': ('clipping, first term', style.VERMILION, 'D'),
    'clipping_variance': ('clipping, second term', style.ORANGE, 'v'),
  }
  runs = list(dict.fromkeys(data['run']))
  with style.styled():
    columns = min(len(runs), 3)
    drawing, grid = style.new_figure(
      math.ceil(len(runs) / columns), columns, 4.2, 3.4
    )
    panels = [ax for row in grid for ax in row]
    for ax in panels[len(runs) :]:
      ax.set_axis_off()
    least = _LEAST_SHARE * float(data[list(looks)].to_numpy().max())
    for run, ax in zip(runs, panels, strict=False):
      part = data[data['run'] == run]
      for name, (label, colour, marker) in looks.items():
        positive = part[part[name] > least]
        if len(positive):
          ax.plot(
            positive['t'],
            positive[name],
            color=colour,
            marker=marker,
            markersize=4.5,
            label=label,
          )
      ax.set_yscale('log')
      ax.set_xlabel('Round t')
      ax.set_title(run, loc='left')
    for row in grid:
      row[0].set_ylabel('Term of the bound on ᾱ ‖∇f‖²')
    shown = {}
    for ax in panels:
      for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
        shown.setdefault(label, handle)
    labels = [look[0] for look in looks.values() if look[0] in shown]
    drawing.legend(
      [shown[label] for label in labels],
      labels,
      loc='outside lower center',
      ncols=3,
    )
    drawing.suptitle(title, x=0.01, ha='left', fontsize=10.5)
  return drawing


def update_norms(
  run: results.Run, t: int, column: str = 'update_norm'
) -> np.ndarray:
  """The clients' values of a recorded round, without the averaged update."""
  table = run.updates[t]
  clients = table[table['client_id'] != run_files.MEAN_UPDATE_ID]
  return clients[column].to_numpy(float)


def _factors(
  run: results.Run, t: int, clipping_norm: float
) -> clipping_bias.ClippingFactors | None:
  norms = update_norms(run, t)
  expected = norms
  if run_files.EXPECTED_NORM in run.updates[t]:
    expected = update_norms(run, t, run_files.EXPECTED_NORM)
  both = np.concatenate([norms, expected])
  if not (norms.size and np.isfinite(both).all() and norms.max() > 0.0):
    return None
  return clipping_bias.clipping_factors(norms, expected, clipping_norm)


def _mechanism(run: results.Run) -> estimates.Mechanism | None:
  """The noise of a private run; None where it is not known."""
  multiplier = tables.privacy_number(run, 'noise_multiplier')
  if not math.isfinite(multiplier) or not run.num_parameters:
    return None
  return estimates.Mechanism(
    multiplier,
    int(run.experiment['clients_per_round']),
    run.num_parameters,
    run.num_rounds,
  )


def _client_stddev(run: results.Run) -> float:
  """σ of the noise of each client, its share of z c on the sum."""
  multiplier = tables.privacy_number(run, 'noise_multiplier')
  if not math.isfinite(multiplier) or run.clipping_norm is None:
    return 0.0
  clients = int(run.experiment['clients_per_round'])
  return multiplier * run.clipping_norm / math.sqrt(clients)


def _schedule(run: results.Run) -> bounds.Schedule:
  experiment = run.experiment
  return bounds.Schedule(
    num_clients=run.num_clients,
    clients_per_round=experiment['clients_per_round'],
    local_steps=experiment['local_steps'],
    num_rounds=run.num_rounds,
    client_learning_rate=experiment['client_learning_rate'],
    server_learning_rate=experiment['server_learning_rate'],
  )


def _problem(run: results.Run) -> bounds.Problem | None:
  if run.constants is None or not run.num_parameters:
    return None
  return bounds.Problem(dimension=run.num_parameters, **run.constants)
