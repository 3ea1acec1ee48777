"""The tables of the reproduction's pages that are pivots of the runs.

`<!--=pivots.NAME(ARGUMENT)-->` in a page stands for `NAME(found, ARGUMENT)`. A
pivot has a row for each group of runs that differ in the seed alone.
"""

import pandas as pd

from analysis.paper import pivoting
from analysis.paper.evidence import Evidence
from analysis.runs import experiments, margins

# Variants with other step sizes, and with another meaning of c, which may
# explain the drops of the perceptron.
_OTHER_RATES, _OTHER_NORMS = 'client_rate_', 'half_averaged_norm_'
# Where a round is that of the paper.
_FULL_SCALES = ('paper', 'paper_40_rounds')

# How cohorts are drawn, and the noise, by what else is changed.
_MECHANISMS = {
  '': 'Poisson, independent',
  'pld': 'Poisson, independent',
  'threshold': 'Poisson, independent, c paid for',
  'pld,threshold': 'Poisson, independent, c paid for',
  'random_allocation': 'a secret round each epoch, independent',
  'random_allocation,threshold': (
    'a secret round each epoch, independent, c paid for'
  ),
  'paper_sampling': 'fixed P, charged as Poisson (the paper)',
  'fixed_size': 'fixed P, independent',
  'fixed_size,pld': 'fixed P, independent',
  'banded': 'in turns, banded',
  'blt': 'in turns, BLT',
}


def explanations(found: Evidence) -> pd.DataFrame:
  """What other step sizes and thresholds make of the perceptron's drops."""
  runs = found.runs
  is_tried = runs['variants'].str.startswith((_OTHER_RATES, _OTHER_NORMS))
  shown = runs[
    runs['algorithm'].isin(['ce_fed_avg', 'dp_fed_avg'])
    & runs['row'].isin(runs.loc[is_tried, 'row'])
    & (is_tried | (runs['variants'] == ''))
    & runs['scale'].isin(_FULL_SCALES)
  ]
  is_other = shown['variants'].str.startswith(_OTHER_NORMS)
  mark = is_other.map({True: ' *', False: ''})
  # Of a row, from the largest T and the paper's c on.
  shown = shown.assign(mark=mark).sort_values(
    ['row', 'num_rounds', 'mark', 'client_learning_rate'],
    ascending=[True, False, True, False],
    kind='stable',
  )
  clipped = shown['algorithm'] == 'ce_fed_avg'
  shown = shown.assign(
    own_drop=shown['drop'].where(clipped),
    own_norm=shown['clipping_norm'].where(clipped),
    fed_avg=(shown['final_score'] + shown['drop']).where(clipped),
  )
  return pivoting.pivot(
    shown,
    ['row', 'scale', 'variants'],
    {
      'data': pivoting.first('data'),
      'η_l': pivoting.first('client_learning_rate', 'g'),
      'c': lambda part: f'{part["own_norm"].mean():.3f}{part["mark"].iloc[0]}',
      'T': pivoting.first('num_rounds'),
      'FedAvg (%)': pivoting.over_seeds('fed_avg'),
      'clipping drop, ours': pivoting.over_seeds('own_drop'),
      'DP drop, ours': pivoting.over_seeds('dp_drop'),
    },
  )


def mechanisms(found: Evidence) -> pd.DataFrame:
  """DP-FedAvg by how cohorts are drawn, the noise, and ε.

  A row for each row of the paper, scale, ε that is aimed at and way that was
  run, where more than one way was.
  """
  runs = found.runs
  ways = pivoting.without_budget(runs)
  shown = runs.assign(way=ways)[
    runs['algorithm'].eq('dp_fed_avg')
    & runs['row'].ne('')
    & ways.isin([*_MECHANISMS])
  ]
  several = shown.groupby(['row', 'scale'])['way'].transform('nunique') > 1
  places = shown['way'].map([*_MECHANISMS].index)
  keys = ['row', 'target_epsilon', 'num_rounds', 'place']
  return pivoting.pivot(
    shown.assign(place=places)[several].sort_values(keys, kind='stable'),
    keys,
    {
      'data': pivoting.first('data'),
      'T': pivoting.first('num_rounds'),
      'cohorts, noise': lambda part: _MECHANISMS[part['way'].iloc[0]],
      'accountant': pivoting.first('privacy_accountant'),
      'ε': pivoting.first('target_epsilon', 'g'),
      'z': pivoting.first('privacy_noise_multiplier', '.3f'),
      'accuracy (%)': pivoting.over_seeds('final_score'),
      'drop from CE-FedAvg': pivoting.over_seeds('dp_drop'),
    },
  )


def local_steps(found: Evidence) -> pd.DataFrame:
  """Each local step without a clip, with it, and with noise.

  A row for each kind of step, where several were run; c is half of the mean
  norm of the updates of FedAvg with that step.
  """
  runs = found.runs
  ways = pivoting.without_budget(runs)
  is_other = ways.isin(experiments.LOCAL_STEP_VARIANTS)
  shown = runs.assign(way=ways)[
    (is_other | ways.eq('')) & runs['row'].ne('') & ~runs['is_audited']
  ]
  several = shown.groupby(['row', 'scale'])['way'].transform('nunique') > 1
  shown = shown[several]
  budgets = shown['target_epsilon'].dropna().sort_values(ascending=False)

  def of(algorithm: str, budget: float | None = None) -> pivoting.Read:
    def read(part: pd.DataFrame) -> str:
      own = part[part['algorithm'] == algorithm]
      if budget is not None:
        own = own[own['target_epsilon'] == budget]
      return pivoting.over_seeds('final_score')(own)

    return read

  return pivoting.pivot(
    shown.sort_values(
      ['row', 'scale', 'way'], key=_places_of_steps, kind='stable'
    ),
    ['row', 'scale', 'way'],
    {
      'local step': _local_step,
      'no clip (%)': of('fed_avg'),
      'c': lambda part: margins.number(part['clipping_norm'].mean(), '.3f'),
      'clip (%)': of('ce_fed_avg'),
      **{
        f'clip and noise, ε = {budget:g} (%)': of('dp_fed_avg', budget)
        for budget in budgets.unique()
      },
      'seeds': _seeds,
    },
  )


def _seeds(runs: pd.DataFrame) -> str:
  """How many seeds each algorithm has, at each ε."""
  keys = [runs['algorithm'], runs['target_epsilon']]
  counts = runs.groupby(keys, dropna=False)['seed'].nunique()
  low, high = counts.min(), counts.max()
  return f'{high}' if low == high else f'{low} to {high}'


def _local_step(runs: pd.DataFrame) -> str:
  """The local step of runs that have one, in words."""
  run = runs.iloc[0]
  if not run['way']:
    return 'SGD'
  if run['local_step'] == 'scaffold':
    return 'SCAFFOLD'
  return f'FedProx, μ = {run["proximal_mu"]:g}'


def _places_of_steps(values: pd.Series) -> pd.Series:
  """Sorts ways to train by their place in the table of experiments."""
  if values.name != 'way':
    return values
  return values.map(('', *experiments.LOCAL_STEP_VARIANTS).index)
