"""The tables of docs/related.md: the systems that the paper speaks of."""

import math

import pandas as pd

from analysis import experiments, stats
from analysis.tables import Evidence, over_seeds, without_budget

# What is compared on which data: their name and the scale.
_DATA = {
  'mnist': ('MNIST', 'paper_96_rounds'),
  'cifar10': ('CIFAR-10', 'paper_40_rounds'),
}
_CLIENTS = ('half', 'disjoint', 'examples')
_READERS, _SERVER = 'who sees the models', 'the server too'
_NOBODY = ('nobody', stats.MISSING)
_CLIENT = ('a client', _READERS)

# The name of a system, what its ε protects, and from whom; by algorithm and
# what else is changed, in the order of the table.
_SYSTEMS = {
  ('fed_avg', ''): ('FedAvg', *_NOBODY),
  ('ce_fed_avg', ''): ('CE-FedAvg', *_NOBODY),
  **{
    ('dp_fed_avg', way): (f'DP-FedAvg, {title}', *_CLIENT)
    for way, title in {
      '': 'Poisson',
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
  ('dp_model_clipping_fed_avg', 'half_model_norm'): (
    'model clipping',
    *_CLIENT,
  ),
  ('local_dp_fed_avg', ''): ('local DP', 'a client', _SERVER),
  ('dp_steps_fed_avg', ''): ('noise in each local step', 'an example', _SERVER),
  ('dp_fed_avg', 'dp_sgd'): ('DP-SGD', 'an example', _READERS),
}


def systems(found: Evidence) -> pd.DataFrame:
  """A row for each system, data and ε.

  - noise / c: the length of the noise on a round's mean, over the longest that
    a clipped update can be.
  - noise / signal: that of the sum of T rounds, over T of the longest clipped
    updates; of model clipping, over those of difference clipping. It is missing
    where the noise is correlated between rounds.
  - bits: of an element that a client sends.
  """
  table = found.found.table
  names = table['row'].str.extract('mlp_([a-z0-9]+)_(.*)')
  ways = without_budget(table).str.removesuffix('_cifar10')
  table = table.assign(
    of_data=names[0],
    key=list(zip(table['algorithm'], ways, strict=True)),
    budget=table['target_epsilon'].astype(float).fillna(0),
  )[
    table['is_complete']
    & names[1].isin(_CLIENTS)
    & table['scale'].eq(names[0].map(lambda it: _DATA.get(it, ('', ''))[1]))
  ]
  table = table[table['key'].isin([*_SYSTEMS])]
  table = table.assign(
    place=table['key'].map([*_SYSTEMS].index),
    data_place=table['of_data'].map([*_DATA].index),
  )
  by = ['data_place', 'budget', 'place']
  lines = []
  for _, part in table.sort_values(by, kind='stable').groupby(by, sort=False):
    run = part.iloc[0]
    title, protects, against = _SYSTEMS[run['key']]
    lines.append(
      {
        'data': _DATA[run['of_data']][0],
        'T': run['num_rounds'],
        'system': title,
        'ε': stats.number(run['target_epsilon'], 'g'),
        'accuracy (%)': over_seeds(part, 'final_score'),
        'protects': protects,
        'against': against,
        'neighbours': (run['relation'] or stats.MISSING).replace('_', '-'),
        'accountant': run['accountant'] or stats.MISSING,
        'z': stats.number(run['noise_multiplier'], '.3f'),
        'noise / c': stats.number(_noise_over_norm(run), '.1f'),
        'noise / signal': stats.number(_noise_over_signal(run), '.2g'),
        'bits': f'{_bits(run):g}',
        'seeds': len(part),
      }
    )
  return pd.DataFrame(lines)


def systems_by_budget(found: Evidence) -> pd.DataFrame:
  """The accuracies of `systems`, with a column for each data and ε.

  What has no noise has the same accuracy at each ε.
  """
  table = systems(found)
  if table.empty:
    return table
  server = table['against'].map({_SERVER: ', from the server too'}).fillna('')
  table = table.assign(protects=table['protects'] + server)
  is_private = table['ε'] != stats.MISSING
  budgets = table.loc[is_private, ['data', 'ε']].drop_duplicates()
  plain = table[~is_private].drop(columns='ε').merge(budgets)
  keys = ['system', 'protects', 'neighbours', 'accountant']
  each = pd.concat([plain, table[is_private]])
  columns = each['data'] + ', ε = ' + each['ε'] + ' (%)'
  wide = each.assign(column=columns).set_index([*keys, 'column'])
  wide = wide['accuracy (%)'].unstack()[columns.unique()]
  wide = wide.fillna(stats.MISSING).rename_axis(columns=None).reset_index()
  titles = [title for title, _, _ in _SYSTEMS.values()]
  places = wide['system'].map(titles.index)
  return wide.iloc[places.argsort(kind='stable')]


def _noise_over_norm(run: pd.Series) -> float:
  """How long the noise on a round's mean is, over the longest update."""
  noise = run['noise_multiplier'] * math.sqrt(run['num_parameters'])
  cohort = run['clients_per_round']
  if run['algorithm'] == 'local_dp_fed_avg':
    return noise / math.sqrt(cohort)
  if run['algorithm'] == 'dp_steps_fed_avg':
    # A step has η_l z C / B of it, and moves by η_l C at most.
    steps = run['local_steps'] * cohort
    return noise / (run['batch_size'] * math.sqrt(steps))
  return noise / cohort


def _noise_over_signal(run: pd.Series) -> float:
  """The same over all rounds, by what difference clipping lets through."""
  if run['mechanism'] in ('banded', 'blt'):
    return math.nan
  ratio = 1.0
  if run['clips'] == 'models':
    of_updates = experiments.SYSTEM_ROWS[run['row']]
    if of_updates is None:
      return math.nan
    ratio = run['clipping_norm'] / of_updates
  return _noise_over_norm(run) * ratio / math.sqrt(run['num_rounds'])


def _bits(run: pd.Series) -> float:
  """The bits of an element that a client sends."""
  return run['sum_bits'] if run['aggregation'] == 'distributed' else 32
