"""Theorem 1 on runs: what it bounds, as measured, and the terms of the bound.

Units: the loss is in nats, models have the length of their parameters' norm.
"""

import numpy as np
import pandas as pd

from analysis import bound, frame, margins

_CONSTANTS = {
  'smoothness': ('L', 'nats / length²'),
  'gradient_bound': ('G', 'nats / length'),
  'local_stddev': ('σ_l', 'nats / length'),
  'global_stddev': ('σ_g', 'nats / length'),
  'initial_gap': ('f(x⁰) − f*', 'nats'),
}
_TERMS = {
  'initial_gap': 'f(x⁰) − f* over T rounds',
  'client_drift': 'heterogeneity and local steps',
  'sampling_noise': 'variance of gradients',
  'client_sampling': 'variance of client sampling',
  'privacy_noise': 'privacy noise',
  'clipping_bias': 'clipping, first term',
  'clipping_variance': 'clipping, second term',
}
_TERM_UNIT = '(nats / length)²'
# Each quantity with its unit, in the order of the lines.
_LINES = (
  dict(_CONSTANTS.values())
  | {'measured: ᾱ ‖∇f‖²': _TERM_UNIT}
  | {f'bound: {title}': _TERM_UNIT for title in _TERMS.values()}
  | {'bound, all terms': _TERM_UNIT}
)


def term_table(frames: frame.Frames, runs: pd.DataFrame) -> pd.DataFrame:
  """Both sides of Theorem 1, of the runs whose left side was measured.

  Both are means over the T rounds, by straight lines between the rounds that
  were measured, and with the last one after it.

  Args:
    frames: Where the updates are.
    runs: The rows of the runs.

  Returns:
    Columns for a table; a column of figures for each run.
  """
  columns = {
    name: _column(run, terms)
    for name, terms in bound.term_data(frames, runs).groupby('run', sort=False)
    if terms['left_side'].notna().any()
    for run in [runs.loc[name]]
  }
  if not columns:
    return pd.DataFrame()
  return pd.DataFrame(
    {
      'quantity': list(_LINES),
      'unit': list(_LINES.values()),
      **{
        f'{run["model_name"]} on {run["data"]}': columns[name]
        for name, run in runs.loc[list(columns)].iterrows()
      },
    }
  )


def _column(run: pd.Series, terms: pd.DataFrame) -> list[str]:
  num_rounds = run['num_rounds']

  def mean(column: str) -> float:
    known = terms.dropna(subset=[column])
    by_round = np.interp(np.arange(num_rounds), known['t'], known[column])
    return float(by_round.mean())

  means = [mean(column) for column in _TERMS]
  figures = [run[f'constant_{key}'] for key in _CONSTANTS]
  figures += [mean('left_side'), *means, sum(means)]
  return [margins.number(figure, '.2g') for figure in figures]
