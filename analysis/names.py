"""The order of runs, and their names: the algorithm and the settings that vary.

A name is made for some runs beside each other. Runs that differ in the seed
alone have one label.
"""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from analysis import runs as run_files
from analysis import stats
from analysis.experiments import ALGORITHMS, DATA_NAMES, MODEL_NAMES

SYMBOLS = {
  'num_clients': 'N',
  'clients_per_round': 'P',
  'local_steps': 'Q',
  'batch_size': 'batch',
  'num_rounds': 'T',
  'client_learning_rate': 'η_l',
  'server_learning_rate': 'η_g',
  'dirichlet_alpha': 'α',
  'proximal_mu': 'μ',
  'clipping_norm': 'c',
  'target_epsilon': 'ε',
  'target_delta': 'δ',
  'noise_multiplier': 'z',
}
# What changes no figure, or is told in another way.
_NOT_TOLD = (
  *('algorithm', 'aggregator', 'sampling_seed', 'noise_seed', 'audit_seed'),
  *('rounds_per_evaluation', 'rounds_per_checkpoint', 'update_rounds'),
  *('estimate_repeats', 'simulation_diagnostics', *stats.SEED_KEYS),
)
# The settings behind a quantity that is an axis of a figure.
_BEHIND = {
  'epsilon': ('target_epsilon', 'noise_multiplier'),
  'clipping_norm': ('clipping_norm',),
}


def labels(table: pd.DataFrame, by: str = '') -> pd.Series:
  """A label for each run: its algorithm, and the settings that vary.

  A setting of an algorithm, such as its noise, is told where runs differ in it
  that are else the same but for the seed. A threshold that is taken from a run
  of the same seed is told where runs of one seed differ in it. Runs that differ
  in the quantity `by` which they are drawn, 'epsilon' or 'clipping_norm', have
  one label.
  """
  texts = _texts(table).drop(columns=[*_BEHIND.get(by, ())], errors='ignore')
  found = table['algorithm_name']
  for key in sorted(texts, key=lambda key: key not in stats.SETTING_KEYS):
    if key in stats.SETTING_KEYS:
      # Nothing is known of a program of one's own.
      is_told = texts.loc[table['data'] != '', key].nunique() > 1
    else:
      same = table['series']
      if key == 'clipping_norm':
        same = same.mask(table['is_norm_from_run'], table['setting'])
      varies = (
        texts[key].groupby([table['algorithm_name'], same]).transform('nunique')
        > 1
      )
      # All seeds of a label stay together.
      is_told = varies.groupby(found).transform('any')
    found = found + (', ' + texts[key]).where(is_told & texts[key].ne(''), '')
  rounds = table['rounds_done'].astype(str) + ' of '
  rounds = ', ' + rounds + table['num_rounds'].astype(str) + ' rounds'
  found = found + rounds.where(~table['is_complete'], '')
  point = table[by].astype(str) if by else ''
  same = (found + table['setting'] + point).duplicated(keep=False)
  # What differs in something that no name tells, such as the test set.
  same |= table['series'].groupby(found).transform('nunique') > 1
  return found.where(~same, found + ' (' + table['folder'] + ')')


def run_names(table: pd.DataFrame) -> list[str]:
  """A name for each run, no two alike: its label and, of several, its seed."""
  names = labels(table)
  if table['seed'].nunique() > 1:
    seeds = table['seed'].map(lambda seed: stats.number(seed, '.0f'))
    names += (', seed ' + seeds).where(table['seed'].notna(), '')
  return [*names.where(~names.duplicated(keep=False), table['folder'])]


def by_setting(table: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
  """The runs of each setting, which differ in the seed alone, with a title.

  It is `problems`, and what settings differ in.
  """
  firsts = table.drop_duplicates('series')
  found, texts = problems(firsts), _texts(firsts)
  for key in stats.SETTING_KEYS:
    if key in texts and key not in ('task', 'model', 'partition'):
      differ = texts[key].groupby(found).transform('nunique') > 1
      found = found + (', ' + texts[key]).where(differ & texts[key].ne(''), '')
  same = found.duplicated(keep=False)
  found = found.where(~same, found + ' (' + firsts['folder'] + ')')
  groups = dict(iter(table.groupby('series')))
  return [(found[name], groups[key]) for name, key in firsts['series'].items()]


def problems(table: pd.DataFrame) -> pd.Series:
  """The model, the data and the split of each run."""
  titles = table['model_name'] + ' on ' + table['data'] + ', ' + table['split']
  partition = ' (' + table['partition'].str.replace('_', ' ') + ')'
  is_told = table['is_iid'] | table['partition'].eq('class_balanced')
  titles = titles + partition.where(~is_told, '')
  return titles.where(table['data'] != '', 'programs of your own')


def ordered(table: pd.DataFrame) -> pd.DataFrame:
  """Runs by setting, in it by algorithm, then by falling ε and by c.

  Models are in the paper's order, and IID data come first; other settings are
  by value. Runs with an aggregator of a user's own follow those of their
  algorithm.
  """
  models = [*MODEL_NAMES.values(), *table['model_name'].sort_values()]
  algorithms = [*ALGORITHMS, *table['algorithm'].sort_values()]
  places = table.assign(
    model_name=table['model_name'].map(models.index),
    is_iid=~table['is_iid'],
    metric=table['metric'].map(lambda metric: metric.name),
    algorithm=table['algorithm'].map(algorithms.index),
    epsilon=-table['epsilon'].fillna(0.0),
    clipping_norm=table['clipping_norm'].fillna(0.0),
    name=table.index,
  )
  settings = [key for key in stats.SETTING_KEYS if key not in stats.SEED_KEYS]
  keys = ['model_name', 'is_iid', *settings, 'metric', 'algorithm']
  keys += ['own_aggregator', 'epsilon', 'clipping_norm', *stats.SEED_KEYS]
  places = places.sort_values([*keys, 'name'], na_position='first')
  return table.loc[places.index]


def _texts(table: pd.DataFrame) -> pd.DataFrame:
  """The settings of runs as texts; empty where a run has none."""
  return pd.DataFrame(
    [
      {
        key: _text(key, value, settings)
        for key, value in settings.items()
        if key not in _NOT_TOLD and settings['task']
      }
      for settings in table['settings']
    ],
    table.index,
  ).fillna('')


def _text(key: str, value: Any, settings: Mapping[str, Any]) -> str:
  if value in (None, '', []):
    return ''
  if key in ('task', 'model'):
    known = DATA_NAMES if key == 'task' else MODEL_NAMES
    return known.get(value, run_files.own_name(value))
  text = f'{value:.4g}' if isinstance(value, float) else str(value)
  name = SYMBOLS.get(key, key.replace('_', ' '))
  if key == 'target_epsilon' and settings.get('noise_clients_per_round'):
    # It sets the noise, and is promised to nobody.
    name = 'noise of ε'
  elif key == 'target_epsilon' and settings.get('sampling') == 'paper':
    name = 'the paper’s ε'
  return f'{name} = {run_files.own_name(text).replace("_", " ")}'
