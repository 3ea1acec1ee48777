"""Which threshold the recorded norms speak for, and what ε costs."""

import functools
import warnings
from typing import Any

import numpy as np
import pandas as pd

from analysis import evidence, frame
from tff_clipping import privacy
from tff_clipping.privacy.plans import plan
from tff_clipping.theory import estimates

# Of the paper (Sec. 4).
_TARGET_DELTA = 1e-5

# The budgets that are compared.
EPSILONS = (0.5, 1.0, 1.5, 3.0, 5.0, 10.0)


def advise(frames: frame.Frames, group: pd.DataFrame) -> pd.DataFrame:
  """For each ε, the threshold with the least estimated error of the update.

  The norms are those of the group's FedAvg run or, without one, of its first
  run with recorded updates; an aggregator of a user's own, which may move the
  model in another way, counts for none. The noise multiplier is calibrated for
  the group's N, P and T, for independent noise, and for the sampling,
  accountant and δ of its private run with such noise; Poisson sampling, RDP and
  δ = 1e-5 without one.

  Args:
    frames: Where the updates are.
    group: The rows of the runs of one setting.

  Returns:
    Columns epsilon, noise_multiplier, clipping_norm, share_of_mean_norm,
    shrinkage, bias, noise, averaged_noise and total; the last five are those of
    `estimates.UpdateError`. Empty where the group has no recorded updates.
  """
  columns = [
    'epsilon',
    'noise_multiplier',
    'clipping_norm',
    'share_of_mean_norm',
    'shrinkage',
    'bias',
    'noise',
    'averaged_noise',
    'total',
  ]
  name = find_source(frames, group)
  source = None if name is None else group.loc[name]
  if source is None or source[['num_parameters', 'num_clients']].isna().any():
    return pd.DataFrame(columns=columns)
  norms = _finite_rounds(frames, name)
  mean_norm = float(np.mean(np.concatenate(norms)))
  rows = []
  setting = _setting(group, source)
  for epsilon in EPSILONS:
    multiplier = _calibrate(target_epsilon=epsilon, **setting)
    if multiplier is None:
      continue
    mechanism = estimates.Mechanism(
      multiplier,
      int(source['clients_per_round']),
      int(source['num_parameters']),
      int(source['num_rounds']),
    )
    norm, error = estimates.best_clipping_norm(norms, mechanism)
    rows.append(
      {
        'epsilon': epsilon,
        'noise_multiplier': multiplier,
        'clipping_norm': norm,
        'share_of_mean_norm': norm / mean_norm,
        'shrinkage': error.shrinkage,
        'bias': error.bias,
        'noise': error.noise,
        'averaged_noise': error.averaged_noise,
        'total': error.total,
      }
    )
  return pd.DataFrame(rows, columns=columns)


def find_source(frames: frame.Frames, group: pd.DataFrame) -> str | None:
  """The run whose norms `advise` takes, None where no run has any."""
  names = frame.ordered(group[~group['has_own_aggregator']]).index
  return next((name for name in names if _finite_rounds(frames, name)), None)


def format_advice(table: pd.DataFrame) -> pd.DataFrame:
  """`advise` in words, with the units in the headings."""
  return pd.DataFrame(
    [
      {
        'ε': f'{row["epsilon"]:g}',
        'noise multiplier': f'{row["noise_multiplier"]:.4g}',
        'threshold c': f'{row["clipping_norm"]:.4g}',
        'c / mean norm': f'{row["share_of_mean_norm"]:.2f}',
        'ᾱ': f'{row["shrinkage"]:.2f}',
        'clipping, at most (%)': f'{100 * row["bias"]:.1f}',
        'noise of a round (%)': f'{100 * row["noise"]:.0f}',
        'noise / √T (%)': f'{100 * row["averaged_noise"]:.1f}',
        'both (%)': f'{100 * row["total"]:.1f}',
      }
      for row in table.to_dict('records')
    ]
  )


def _finite_rounds(frames: frame.Frames, run: str) -> list[np.ndarray]:
  """The norms of the rounds in which all are finite and one is positive."""
  rounds = [
    clients['update_norm'].to_numpy()
    for _, clients in frames.client_rounds(run)
  ]
  return [
    norms for norms in rounds if np.isfinite(norms).all() and norms.max() > 0.0
  ]


def describe_setting(frames: frame.Frames, group: pd.DataFrame) -> str:
  """What the noise multipliers of `advise` are for, in words.

  Args:
    frames: Where the updates are.
    group: The rows of the runs of one setting, with recorded updates.
  """
  setting = _setting(group, group.loc[find_source(frames, group)])
  planned = _planned(group)
  whose = (
    f'as in {planned.index[0]}'
    if len(planned)
    else 'as no run here has a plan with independent noise'
  )
  return (
    f'N = {setting["num_clients"]}, P = {setting["clients_per_round"]}, '
    f'T = {setting["num_rounds"]}, '
    f'δ = {evidence.format_delta(setting["target_delta"])}, '
    f'{setting["sampling"]} cohorts and the accountant '
    f'{setting["accountant"]} ({whose})'
  )


def _planned(group: pd.DataFrame) -> pd.DataFrame:
  """The private runs whose plan is of independent noise."""
  # A plan with correlated noise says nothing of independent noise.
  return group[group['privacy_sampling'].isin(plan.SAMPLINGS)]


def _setting(group: pd.DataFrame, source: pd.Series) -> dict[str, Any]:
  """What a noise multiplier is calibrated for, beside an ε."""
  private = _planned(group)
  planned = private.iloc[0] if len(private) else pd.Series(dtype=object)
  sampling = planned.get('privacy_sampling', 'poisson')
  return {
    'num_clients': int(source['num_clients']),
    'clients_per_round': int(source['clients_per_round']),
    'num_rounds': int(source['num_rounds']),
    'target_delta': planned.get('privacy_target_delta', _TARGET_DELTA),
    # The paper's accounting takes its cohorts for Poisson samples.
    'sampling': 'poisson' if sampling == 'paper' else sampling,
    'accountant': planned.get('privacy_accountant', 'rdp'),
  }


@functools.lru_cache(maxsize=256)
def _calibrate(**setting: Any) -> float | None:
  """The noise multiplier, which takes a second; None where none is in range."""
  with warnings.catch_warnings():  # Of delta: the plan of the run has warned.
    warnings.simplefilter('ignore', privacy.DeltaTooLargeWarning)
    try:
      return privacy.calibrate_noise_multiplier(**setting)
    except ValueError:
      return None
