"""The ε of private runs under other ways to draw cohorts, and what it costs."""

import math
import warnings
from collections.abc import Mapping
from typing import Any

import pandas as pd

from analysis import evidence, margins
from tff_clipping import privacy
from tff_clipping.privacy.accounting.accountants import ACCOUNTANTS


def cost_table(runs: pd.DataFrame) -> pd.DataFrame:
  """ε of the runs with Poisson cohorts, and of cohorts of a fixed size.

  Both accountants hold for cohorts of a fixed size, so that their ε is the
  smaller of the two.

  Args:
    runs: Runs of one δ or several, private or not.

  Returns:
    Columns for a table; a row for each N, P, T, δ and noise multiplier.
  """
  private = runs[runs['privacy_sampling'] == 'poisson']
  keys = ['num_clients', 'clients_per_round', 'num_rounds']
  keys += ['privacy_target_delta', 'privacy_noise_multiplier']
  different = private.drop_duplicates(keys).to_dict('records')
  with warnings.catch_warnings():  # Of delta: the plan of the run has warned.
    warnings.simplefilter('ignore', privacy.DeltaTooLargeWarning)
    return pd.DataFrame([_line(run) for run in different])


def _line(run: Mapping[str, Any]) -> dict[str, Any]:
  return {
    'N': f'{run["num_clients"]:.0f}',
    'P': run['clients_per_round'],
    'T': run['num_rounds'],
    'δ': evidence.format_delta(run['privacy_target_delta']),
    'z': f'{run["privacy_noise_multiplier"]:.3f}',
    'ε, Poisson (as run), add or remove': (
      margins.at_most(_epsilon(run, 'poisson', run['privacy_accountant']))
    ),
    'ε, fixed size, replace': margins.at_most(
      min(_epsilon(run, 'fixed_size', name) for name in ACCOUNTANTS)
    ),
    'z for this ε, fixed size': ', '.join(
      f'{margins.at_most(_noise(run, name))} by {name.upper()}'
      for name in ACCOUNTANTS
    ),
  }


def _epsilon(run: Mapping[str, Any], sampling: str, accountant: str) -> float:
  """The ε that the noise of a run gives under a sampling."""
  return privacy.compute_epsilon(
    noise_multiplier=run['privacy_noise_multiplier'],
    sampling=sampling,
    accountant=accountant,
    **_setting(run),
  )


def _noise(run: Mapping[str, Any], accountant: str) -> float:
  """The noise multiplier that a fixed P needs for the ε of a run."""
  target = run['target_epsilon']
  return privacy.calibrate_noise_multiplier(
    target_epsilon=run['privacy_epsilon'] if math.isnan(target) else target,
    sampling='fixed_size',
    accountant=accountant,
    **_setting(run),
  )


def _setting(run: Mapping[str, Any]) -> dict[str, Any]:
  return {
    'num_clients': int(run['num_clients']),
    'clients_per_round': run['clients_per_round'],
    'num_rounds': run['num_rounds'],
    'target_delta': run['privacy_target_delta'],
  }
