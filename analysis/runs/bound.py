"""Theorem 1 on a run, as data: deviations, terms of the bound, conditions.

L, G, σ_l and σ_g are no part of a run folder, unless somebody estimated them
and left `constants.json` there. Without them the clipping term is shown in
units of G², and the rest relative to the measured updates.
"""

import math

import numpy as np
import pandas as pd

from analysis.runs import files, frame
from tff_clipping.theory import bounds, clipping_bias, estimates

_COLUMNS = (
  'run',
  'algorithm',
  't',
  'clipping_norm',
  'between_clients',
  'within_clients',
  'bias',
  'noise',
)
_TERM_COLUMNS = (
  *('run', 't', 'left_side', 'initial_gap'),
  *estimates.RoundTerms._fields,
)


def deviation_data(frames: frame.Frames, group: pd.DataFrame) -> pd.DataFrame:
  """What clipping and noise do in each recorded round of comparable runs.

  Args:
    frames: Where the updates are.
    group: The rows of the runs of one setting. A run that does not clip is
      looked at with the threshold of the others, if they share one. Runs that
      clip models are left out: the theorem is on clipped updates.

  Returns:
    Columns run, algorithm, t, clipping_norm (c), between_clients (the mean of
    |α̃_i − ᾱ|; of |α_i − ᾱ| where ||E[Δx_i]|| was not measured),
    within_clients (the mean of |α_i − α̃_i|; NaN where not measured), bias and
    noise (relative to the mean update, see `estimates.UpdateError`; the noise
    is that of T rounds over √T, NaN for runs without). Rounds with norms that
    are not finite are left out.
  """
  rows = []
  for name, run in frame.ordered(group).iterrows():
    norm = run['shown_norm']
    if math.isnan(norm):
      continue
    mechanism = _mechanism(run)
    for t, clients in frames.client_rounds(name):
      factors = _factors(clients, norm)
      if factors is None:
        continue
      error = estimates.update_error(
        [clients['update_norm'].to_numpy()],
        norm,
        mechanism or estimates.Mechanism(0.0, 1, 1),
      )
      rows.append(
        {
          'run': name,
          'algorithm': run['algorithm_name'],
          't': t,
          'clipping_norm': norm,
          'between_clients': float(clipping_bias.client_deviation(factors)[0]),
          'within_clients': (
            float(clipping_bias.local_deviation(factors)[0])
            if clients['expected_norm'].notna().any()
            else math.nan
          ),
          'bias': error.bias,
          'noise': error.averaged_noise if mechanism else math.nan,
        }
      )
  return pd.DataFrame(rows, columns=list(_COLUMNS))


def term_data(frames: frame.Frames, group: pd.DataFrame) -> pd.DataFrame:
  """Theorem 1's terms by round, of the runs that have their constants.

  Args:
    frames: Where the updates are.
    group: The rows of the runs of one setting. Runs that clip models are left
      out.

  Returns:
    Columns run, t, left_side (ᾱ ||∇f||², which is bounded; NaN where ∇f was not
    measured), initial_gap (that term of the whole run, the same in every round)
    and the terms of `estimates.RoundTerms`; those of clipping are 0 for a run
    that does not clip. Empty where no run has both recorded updates and
    estimates of L, G, σ_l and σ_g.
  """
  rows = []
  for name, run in frame.ordered(group).iterrows():
    problem = _problem(run)
    if problem is None:
      continue
    gap = bounds.theorem_1_terms(problem, _schedule(run)).initial_gap
    clips = run['clips'] == 'updates'
    for t, clients in frames.client_rounds(name):
      factors = _factors(clients, run['clipping_norm'] if clips else 1.0)
      if factors is None:
        continue
      if not clips:
        factors = clipping_bias.ClippingFactors(
          *(np.ones_like(factor) for factor in factors)
        )
      terms = estimates.round_terms(
        problem, _schedule(run), factors, noise_stddev=_client_stddev(run)
      )
      rows.append(
        {
          'run': name,
          't': t,
          'left_side': float(factors.mean[0])
          * run['squared_gradient_norms'].get(t, math.nan),
          'initial_gap': gap,
        }
        | {key: float(value[0]) for key, value in terms._asdict().items()}
      )
  return pd.DataFrame(rows, columns=list(_TERM_COLUMNS))


def broken_conditions(group: pd.DataFrame) -> list[str]:
  """Which of Theorem 1's conditions do not hold, a sentence for each run.

  Args:
    group: The rows of the runs of one setting.

  Returns:
    Sentences on the runs of `term_data`; none where all conditions hold.
  """
  sentences = []
  for name, run in frame.ordered(group).iterrows():
    problem = _problem(run)
    if problem is None:
      continue
    broken = [
      f'{condition.name} ({condition.value:.3g} against {condition.limit:.3g})'
      for condition in bounds.theorem_1_conditions(problem, _schedule(run))
      if not condition.holds
    ]
    if broken:
      sentences.append(f'{name}: {", ".join(broken)}')
  return sentences


def _factors(
  clients: pd.DataFrame, clipping_norm: float
) -> clipping_bias.ClippingFactors | None:
  norms = clients['update_norm'].to_numpy()
  expected = clients['expected_norm'].to_numpy()
  if np.isnan(expected).all():
    expected = norms
  both = np.concatenate([norms, expected])
  if not (norms.size and np.isfinite(both).all() and norms.max() > 0.0):
    return None
  return clipping_bias.clipping_factors(norms, expected, clipping_norm)


def _mechanism(run: pd.Series) -> estimates.Mechanism | None:
  """The noise of a private run; None where it is not known."""
  multiplier = run['privacy_noise_multiplier']
  if math.isnan(multiplier * run['num_parameters']):
    return None
  return estimates.Mechanism(
    multiplier,
    int(run['clients_per_round']),
    int(run['num_parameters']),
    int(run['num_rounds']),
  )


def _client_stddev(run: pd.Series) -> float:
  """σ of the noise of each client, its share of z c on the sum."""
  stddev = run['privacy_noise_multiplier'] * run['clipping_norm']
  if math.isnan(stddev):
    return 0.0
  return stddev / math.sqrt(run['clients_per_round'])


def _schedule(run: pd.Series) -> bounds.Schedule:
  return bounds.Schedule(
    num_clients=int(run['num_clients']),
    clients_per_round=int(run['clients_per_round']),
    local_steps=int(run['local_steps']),
    num_rounds=int(run['num_rounds']),
    client_learning_rate=run['client_learning_rate'],
    server_learning_rate=run['server_learning_rate'],
    # All others draw a fixed number of clients.
    sampling='poisson' if run['sampling'] == 'poisson' else 'fixed_size',
  )


def _problem(run: pd.Series) -> bounds.Problem | None:
  """The constants of the run's problem; None where they do not apply."""
  unknown = not run['has_constants'] or math.isnan(run['num_parameters'])
  if unknown or run['clips'] in ('models', 'gradients'):
    return None
  constants = {key: run[f'constant_{key}'] for key in files.CONSTANT_KEYS}
  return bounds.Problem(dimension=int(run['num_parameters']), **constants)
