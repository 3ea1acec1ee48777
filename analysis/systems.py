"""The tables that set ways to protect clients side by side.

`mechanisms` has those of DP-FedAvg, `systems` those that the paper speaks of.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from analysis import experiments, stats
from analysis.stats import cells
from analysis.tables import Evidence

# How cohorts are drawn, and the noise, by algorithm and what else is changed.
_MECHANISMS = {
  'dp_fed_avg': 'Poisson, independent',
  'dp_fed_avg,pld': 'Poisson, independent',
  'dp_fed_avg,threshold': 'Poisson, independent, c paid for',
  'dp_fed_avg,random_allocation': 'a secret round each epoch, independent',
  'dp_fed_avg,random_allocation,threshold': (
    'a secret round each epoch, independent, c paid for'
  ),
  'dp_fed_avg,paper_sampling': 'fixed P, charged as Poisson (the paper)',
  'dp_fed_avg,fixed_size': 'fixed P, independent',
  'dp_fed_avg,fixed_size,pld': 'fixed P, independent',
  'dp_fed_avg,banded': 'in turns, banded',
  'dp_fed_avg,blt': 'in turns, BLT',
}

# What is compared on which data, and at which scale.
_DATA = {
  f'mlp_{data}_{clients}': title
  for data, title in (('mnist', 'MNIST'), ('cifar10', 'CIFAR-10'))
  for clients in ('half', 'disjoint', 'examples')
}
_SCALES = {'MNIST': 'paper_96_rounds', 'CIFAR-10': 'paper_40_rounds'}
_READERS, _SERVER = 'who sees the models', 'the server too'
_NOBODY = ('nobody', stats.MISSING)
_CLIENT = ('a client', _READERS)
_EXAMPLE = 'an example'

# The name of a system, what its ε protects, and from whom; by algorithm and
# what else is changed, in the order of the table.
_SYSTEMS = {
  'fed_avg': ('FedAvg', *_NOBODY),
  'ce_fed_avg': ('CE-FedAvg', *_NOBODY),
  'dp_fed_avg': ('DP-FedAvg, Poisson', *_CLIENT),
  **{
    f'dp_fed_avg,{way}': (f'DP-FedAvg, {title}', *_CLIENT)
    for way, title in {
      'pld': 'Poisson, by pld',
      'random_allocation': 'random allocation',
      'fixed_size,pld': 'fixed P',
      'banded': 'in turns, banded noise',
      'adaptive': 'adaptive c',
      'per_layer': 'c per layer',
      'smooth': 'smoothed normalization',
      'scaffold': 'local steps of SCAFFOLD',
      # Against the server the cohorts are no secret, and ε is another.
      'distributed': 'noise at the clients, in integers (D2P-Fed)',
    }.items()
  },
  'dp_model_clipping_fed_avg,half_model_norm': ('model clipping', *_CLIENT),
  'local_dp_fed_avg': ('local DP', 'a client', _SERVER),
  'dp_steps_fed_avg': ('noise in each local step', _EXAMPLE, _SERVER),
  'dp_fed_avg,dp_sgd': ('DP-SGD', _EXAMPLE, _READERS),
}

_MECHANISM_COLUMNS = {
  'data': ('data', ''),
  'T': ('num_rounds', ''),
  'cohorts, noise': ('title', ''),
  'accountant': ('accountant', ''),
  'ε': ('target_epsilon', 'g'),
  'z': ('noise_multiplier', '.3f'),
  'accuracy (%)': ('accuracy', ''),
  'drop from CE-FedAvg': ('drop', ''),
}
_SYSTEM_COLUMNS = {
  'data': ('data', ''),
  'T': ('num_rounds', ''),
  'system': ('title', ''),
  'ε': ('target_epsilon', 'g'),
  'η_l': ('client_learning_rate', 'g'),
  'accuracy (%)': ('accuracy', ''),
  'protects': ('protects', ''),
  'against': ('against', ''),
  'neighbours': ('neighbours', ''),
  'accountant': ('accountant', ''),
  'z': ('noise_multiplier', '.3f'),
  'noise / c': ('noise_over_norm', '.1f'),
  'noise / signal': ('noise_over_signal', '.2g'),
  'bits': ('bits', 'g'),
  'seeds': ('seeds', ''),
}


def mechanisms(found: Evidence) -> pd.DataFrame:
  """DP-FedAvg by how cohorts are drawn, the noise, and ε.

  A row for each row of the paper, scale, ε that is aimed at and way that was
  run, where more than one way was.
  """
  table = found.rows.assign(way=_in_order(found.rows, _MECHANISMS))
  table = table[table['row'].ne('') & table['way'].notna()]
  ways = table.groupby(['row', 'scale'])['way']
  lines = _over_seeds(
    table[ways.transform('nunique') > 1],
    ['row', 'target_epsilon', 'num_rounds', 'way'],
  )
  lines['title'] = lines['way'].map(_MECHANISMS)
  return cells(lines, _MECHANISM_COLUMNS)


def systems(found: Evidence) -> pd.DataFrame:
  """A row for each system, data and ε.

  - noise / c: the length of the noise on a round's mean, over the longest that
    a clipped update can be.
  - noise / signal: that of the sum of T rounds, over T of the longest clipped
    updates; of model clipping, over those of difference clipping. It is missing
    where the noise is correlated between rounds.
  - bits: of an element that a client sends.

  A system that was run at another η_l than its row's has those runs alone;
  docs/reproduction/rates.csv says why.
  """
  rate = r',?client_rate_[\d.]+'
  table = found.table
  variants = table['variants'].str.replace(rate, '', regex=True)
  data = table['row'].map(_DATA)
  table = table.assign(
    has_other_rate=table['variants'].str.contains(rate),
    data=pd.Categorical(data, [*_SCALES]),
    system=_in_order(table.assign(variants=variants), _SYSTEMS),
    budget=table['target_epsilon'].fillna(0),
  )
  table = table[table['is_complete'] & table['scale'].eq(data.map(_SCALES))]
  keys = ['data', 'budget', 'system']
  with_rate = table.groupby(keys, observed=True)['has_other_rate']
  is_shown = table['has_other_rate'].eq(with_rate.transform('any'))
  lines = _over_seeds(table[is_shown], keys)
  is_distributed = lines['aggregation'] == 'distributed'
  told = pd.DataFrame.from_dict(
    _SYSTEMS, 'index', columns=['title', 'protects', 'against']
  )
  lines = lines.join(told, on='system').assign(
    neighbours=lines['relation'].str.replace('_', '-'),
    bits=lines.get('sum_bits', is_distributed).where(is_distributed, 32),
  )
  return cells(_with_noise(lines), _SYSTEM_COLUMNS)


def _in_order(table: pd.DataFrame, ways: Mapping[str, Any]) -> pd.Categorical:
  """The algorithm and the variants of runs, but another ε, in an order.

  It is missing for runs that are none of `ways`.
  """
  variants = table['variants'].str.replace('smooth_cifar10', 'smooth')
  variants = variants.str.replace('epsilon_5', '').str.strip(',')
  names = (table['algorithm'] + ',' + variants).str.strip(',')
  return pd.Categorical(names, [*ways])


def _over_seeds(table: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
  """The first run of each group, in the order of the keys, and its figures."""
  groups = [part for _, part in table.groupby([*keys], observed=True)]
  firsts = pd.DataFrame(
    [part.iloc[0] for part in groups], columns=table.columns
  )
  return firsts.assign(
    accuracy=[stats.estimate(part['final_score']) for part in groups],
    drop=[stats.estimate(part['dp_drop']) for part in groups],
    seeds=[len(part) for part in groups],
  )


def systems_by_budget(found: Evidence) -> pd.DataFrame:
  """The accuracies of `systems`, with a column for each data and ε.

  What has no noise has the same accuracy at each ε. Systems that protect an
  example are left out: the learning rates of their runs were not searched for,
  and docs/reproduction/rates.csv has those that were.
  """
  table = systems(found)
  table = table[table['protects'] != _EXAMPLE]
  if table.empty:
    return table
  server = table['against'].map({_SERVER: ', from the server too'}).fillna('')
  table = table.assign(protects=table['protects'] + server)
  is_private = table['ε'] != stats.MISSING
  budgets = table.loc[is_private, ['data', 'ε']].drop_duplicates()
  plain = table[~is_private].drop(columns='ε').merge(budgets)
  each = pd.concat([plain, table[is_private]])
  columns = each['data'] + ', ε = ' + each['ε'] + ' (%)'
  titles = pd.Categorical(each['system'], [it for it, *_ in _SYSTEMS.values()])
  wide = each.assign(column=columns, system=titles).pivot(
    index=['system', 'protects', 'neighbours', 'accountant'],
    columns='column',
    values='accuracy (%)',
  )
  wide = wide[columns.unique()].fillna(stats.MISSING)
  return wide.rename_axis(columns=None).reset_index()


def _with_noise(lines: pd.DataFrame) -> pd.DataFrame:
  """Adds how long the noise is, over a round's update and over the signal."""
  cohort, algorithm = (
    lines['clients_per_round'].astype(float),
    lines['algorithm'],
  )
  # A local step has η_l z C / B of the noise, and moves by η_l C at most.
  steps = lines['batch_size'] * (lines['local_steps'] * cohort) ** 0.5
  divisor = cohort.mask(algorithm == 'local_dp_fed_avg', cohort**0.5)
  divisor = divisor.mask(algorithm == 'dp_steps_fed_avg', steps)
  length = lines['noise_multiplier'] * lines['num_parameters'] ** 0.5
  over_norm = length / divisor
  # What difference clipping lets through.
  difference = lines['row'].map(experiments.SYSTEM_ROWS).astype(float)
  ratio = (lines['clipping_norm'] / difference).where(
    lines['clips'] == 'models', 1
  )
  over_signal = over_norm * ratio / lines['num_rounds'] ** 0.5
  is_correlated = lines['mechanism'].isin(['banded', 'blt'])
  return lines.assign(
    noise_over_norm=over_norm,
    noise_over_signal=over_signal.mask(is_correlated),
  )
