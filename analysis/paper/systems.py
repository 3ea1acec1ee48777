"""The systems that the paper speaks of, side by side by data and ε.

`<!--=systems.NAME(ARGUMENTS)-->` in a page stands for `NAME(found, ARGUMENTS)`.
"""

import dataclasses
import math

import pandas as pd

from analysis.paper import pivoting
from analysis.paper.evidence import Evidence
from analysis.runs import experiments, margins

# What is compared on which data: their name and the scale.
_DATA = {
  'mnist': ('MNIST', 'paper_96_rounds'),
  'cifar10': ('CIFAR-10', 'paper_40_rounds'),
}
_CLIENTS = ('half', 'disjoint', 'examples')
_READERS = 'who sees the models'
_FLOAT_BITS = 32


@dataclasses.dataclass(frozen=True)
class _System:
  """What a system is in words.

  Attributes:
    title: How it is called.
    protects: The unit of its promise.
    against: From whom.
  """

  title: str
  protects: str = 'a client'
  against: str = _READERS


# By algorithm and what else is changed, in the order of the table.
_SYSTEMS = {
  ('fed_avg', ''): _System('FedAvg', 'nobody', margins.MISSING),
  ('ce_fed_avg', ''): _System('CE-FedAvg', 'nobody', margins.MISSING),
  ('dp_fed_avg', ''): _System('DP-FedAvg, Poisson'),
  ('dp_fed_avg', 'pld'): _System('DP-FedAvg, Poisson, by pld'),
  **{
    ('dp_fed_avg', way): _System(f'DP-FedAvg, {title}')
    for way, title in {
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
  ('dp_model_clipping_fed_avg', 'half_model_norm'): _System('model clipping'),
  ('local_dp_fed_avg', ''): _System('local DP', against='the server too'),
  ('dp_steps_fed_avg', ''): _System(
    'noise in each local step', 'an example', 'the server too'
  ),
  ('dp_fed_avg', 'dp_sgd'): _System('DP-SGD', 'an example'),
}
# By data, ε and what else is changed. Commit 44967cd3 computed them from the
# exact norms of the clients' updates.
_TYPICAL_LOSSES = {
  ('mnist', 1.5): {'': '1.84', 'pld': '2.07'},
  ('mnist', 5.0): {'': '5.80', 'pld': '7.14'},
  ('cifar10', 1.5): {'': '1.89', 'pld': '2.32'},
  ('cifar10', 5.0): {'': '6.37', 'pld': '7.06'},
}
_PLACES = {key: place for place, key in enumerate(_SYSTEMS)}
TITLES = tuple(system.title for system in _SYSTEMS.values())


def table(found: Evidence) -> pd.DataFrame:
  """A row for each system, data and ε.

  - noise / c: the length of the noise on a round's mean, over the longest that
    a clipped update can be.
  - noise / signal: that of the sum of T rounds, over T of the longest clipped
    updates; of model clipping, over those of difference clipping. It is missing
    where the noise is correlated between rounds.
  - bits: of an element that a client sends.
  - typical loss: the ε of Bayesian DP, which is no guarantee, by the norms of
    CE-FedAvg with the same seed; the mean over seeds, as published.
  """
  runs = _runs(found)
  keys = pd.Series(
    [*zip(runs['algorithm'], runs['way'], strict=True)], runs.index
  )
  shown = runs.assign(
    place=keys.map(_PLACES),
    budget=runs['target_epsilon'].astype(float).fillna(0),
    data_place=runs['data'].map([*_DATA].index),
  )[keys.isin([*_SYSTEMS])]

  def system(part: pd.DataFrame) -> _System:
    return [*_SYSTEMS.values()][int(part['place'].iloc[0])]

  by = ['data_place', 'budget', 'place']
  return pivoting.pivot(
    shown.sort_values(by, kind='stable'),
    by,
    {
      'data': lambda part: _DATA[part['data'].iloc[0]][0],
      'T': pivoting.first('num_rounds'),
      'system': lambda part: system(part).title,
      'ε': pivoting.first('target_epsilon', 'g'),
      'accuracy (%)': pivoting.over_seeds('final_score'),
      'protects': lambda part: system(part).protects,
      'against': lambda part: system(part).against,
      'neighbours': lambda part: str(
        part['privacy_relation'].iloc[0] or margins.MISSING
      ).replace('_', '-'),
      'accountant': lambda part: (
        part['privacy_accountant'].iloc[0] or margins.MISSING
      ),
      'z': pivoting.first('privacy_noise_multiplier', '.3f'),
      'noise / c': lambda part: margins.number(
        _noise_over_norm(part.iloc[0]), '.1f'
      ),
      'noise / signal': lambda part: margins.number(
        _noise_over_signal(part.iloc[0]), '.2g'
      ),
      'bits': lambda part: margins.number(_bits(part.iloc[0]), 'g'),
      'typical loss': lambda part: _typical_loss(part.iloc[0]),
      'seeds': len,
    },
  )


def geyer(found: Evidence) -> pd.DataFrame:
  """A row for each number of clients of Geyer's experiment."""
  runs = found.systems.runs
  runs = runs[runs['is_complete'] & runs['row'].str.startswith('geyer_')]
  return pivoting.pivot(
    runs.sort_values('num_clients', kind='stable'),
    ['num_clients'],
    {
      'N': pivoting.first('num_clients', 'g'),
      'P': pivoting.first('clients_per_round'),
      'T': pivoting.first('num_rounds'),
      'ε': pivoting.first('target_epsilon', 'g'),
      'δ': pivoting.first('target_delta', 'g'),
      'z': pivoting.first('privacy_noise_multiplier', '.3f'),
      'accuracy (%)': pivoting.over_seeds('final_score'),
      'seeds': len,
    },
  )


def accuracy(
  found: Evidence, data: str, epsilon: str, algorithm: str, *way: str
) -> str:
  """The accuracy of one system over seeds, in percent.

  Args:
    found: The evidence.
    data: 'mnist' or 'cifar10'.
    epsilon: The ε that is aimed at; 0 without noise.
    algorithm: The algorithm.
    *way: The variants, but for that of another ε.
  """
  own = _of(found, data, epsilon, algorithm, ','.join(way))
  return pivoting.over_seeds('final_score', margins.MISSING)(own)


def _of(
  found: Evidence, data: str, epsilon: str, algorithm: str, way: str
) -> pd.DataFrame:
  """The runs of one system on some data at one ε."""
  runs = _runs(found)
  return runs[
    runs['data'].eq(data)
    & runs['algorithm'].eq(algorithm)
    & runs['way'].eq(way)
    & runs['target_epsilon'].astype(float).fillna(0).eq(float(epsilon))
  ]


def _runs(found: Evidence) -> pd.DataFrame:
  """The finished runs that are compared.

  With the columns `data`, a key of `_DATA`, and `way`, the variants but those
  that are of the ε or the data.
  """
  runs = found.systems.runs
  names = runs['row'].str.extract('mlp_([a-z0-9]+)_(.*)')
  scales = names[0].map(lambda data: _DATA.get(data, ('', ''))[1])
  shown = runs['is_complete'] & runs['scale'].eq(scales)
  shown &= names[1].isin(_CLIENTS)
  ways = pivoting.without_budget(runs).str.removesuffix('_cifar10')
  return runs.assign(data=names[0], way=ways)[shown]


def _noise_over_norm(run: pd.Series) -> float:
  """How long the noise on a round's mean is, over the longest update."""
  noise = run['privacy_noise_multiplier'] * math.sqrt(run['num_parameters'])
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
  if run.get('mechanism') in ('banded', 'blt', 'tree'):
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
  if run.get('aggregation') != 'distributed':
    return _FLOAT_BITS
  return run['sum_bits']


def _typical_loss(run: pd.Series) -> str:
  """The typical ε of a run of DP-FedAvg with Poisson cohorts."""
  if run['algorithm'] != 'dp_fed_avg':
    return margins.MISSING
  losses = _TYPICAL_LOSSES.get((run['data'], run['target_epsilon']), {})
  return losses.get(run['way'], margins.MISSING)
