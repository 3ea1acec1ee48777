"""Which threshold the recorded norms speak for, and what ε costs."""

import functools
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from analysis import bound, paper, results, tables
from tff_clipping.privacy import accounting
from tff_clipping.theory import estimates

# The budgets that are compared.
EPSILONS = (0.5, 1.0, 1.5, 3.0, 5.0, 10.0)


def advise(group: Sequence[results.Run]) -> pd.DataFrame:
  """For each ε, the threshold with the least estimated error of the update.

  The norms are those of the group's FedAvg run or, without one, of its first
  run with recorded updates. The noise multiplier is calibrated for the group's
  N, P and T, and for the sampling, accountant and δ of its private run; Poisson
  sampling, RDP and δ = 1e-5 without one.

  Args:
    group: Runs of one setting.

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
  source = find_source(group)
  if source is None or not source.num_parameters or not source.num_clients:
    return pd.DataFrame(columns=columns)
  norms = _finite_rounds(source)
  mean_norm = float(np.mean(np.concatenate(norms)))
  rows = []
  for epsilon in EPSILONS:
    multiplier = _calibrated(group, source, epsilon)
    if multiplier is None:
      continue
    mechanism = estimates.Mechanism(
      multiplier,
      int(source.experiment['clients_per_round']),
      source.num_parameters,
      source.num_rounds,
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


def find_source(group: Sequence[results.Run]) -> results.Run | None:
  """The run whose norms `advise` takes, None where no run has any."""
  return next(
    (run for run in tables.ordered(group) if _finite_rounds(run)), None
  )


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


def _finite_rounds(run: results.Run) -> list[np.ndarray]:
  """The norms of the rounds in which all are finite and one is positive."""
  rounds = [bound.update_norms(run, t) for t in sorted(run.updates)]
  return [
    norms
    for norms in rounds
    if norms.size and np.isfinite(norms).all() and norms.max() > 0.0
  ]


def _calibrated(
  group: Sequence[results.Run], source: results.Run, epsilon: float
) -> float | None:
  """The noise multiplier for an ε; None where there is none in range."""
  privacy: dict[str, Any] = next(
    (dict(run.privacy) for run in group if run.privacy), {}
  )
  sampling = privacy.get('sampling', 'poisson')
  return _calibrate(
    num_clients=int(source.num_clients),
    clients_per_round=int(source.experiment['clients_per_round']),
    num_rounds=source.num_rounds,
    target_epsilon=epsilon,
    target_delta=float(privacy.get('target_delta', paper.TARGET_DELTA)),
    # The paper's accounting takes its cohorts for Poisson samples.
    sampling='poisson' if sampling == 'paper' else sampling,
    accountant=privacy.get('accountant', 'rdp'),
  )


@functools.lru_cache(maxsize=256)
def _calibrate(**setting: Any) -> float | None:
  """`calibrate_noise_multiplier`, which takes a second, once a setting."""
  with warnings.catch_warnings():
    # A delta above 1/N was warned of when the run was planned.
    warnings.simplefilter('ignore')
    try:
      return accounting.calibrate_noise_multiplier(**setting)
    except ValueError:
      return None
