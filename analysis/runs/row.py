"""The row of a run: what its files say, and what follows from them."""

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from analysis.runs import files, titles
from analysis.runs.experiments import ALGORITHMS, DEFAULTS

SEED_KEYS = ('seed', 'model_seed')

# Runs are compared only when all of these are equal. What may differ is what is
# being compared: the algorithm, its threshold, its noise and its privacy; and
# the seed of the cohorts, which a private run draws for itself.
SETTING_KEYS = (
  'task',
  'partition',
  'model',
  'examples_per_client',
  'num_clients',
  'dirichlet_alpha',
  'shards_per_client',
  'clients_per_round',
  'local_steps',
  'batch_size',
  'num_rounds',
  'client_learning_rate',
  'server_learning_rate',
  'server_optimizer',
  'compute_dtype',
  'local_step',
  'local_momentum',
  'proximal_mu',
  'sharpness_rho',
  'fed_pd_penalty',
  'client_rate_decay',
  'loss',
  *SEED_KEYS,
)

# The paper's quantity skew: 5 examples of each of 10 classes a client.
_QUANTITY_SKEW_EXAMPLES = 50

# Of the settings that make an algorithm another, what a run does not say is as
# by default.
_NAMED_SETTINGS = ('clipping', 'aggregation', 'compute_dtype', 'local_step')

# Of a run that is not private.
_NO_PRIVACY = {
  **dict.fromkeys(
    ('noise_multiplier', 'epsilon', 'actual_epsilon', 'target_delta'), math.nan
  ),
  **dict.fromkeys(
    ('sampling', 'accountant', 'relation', 'description', 'aggregation')
  ),
  # What plans protect that do not say it.
  'unit': 'client',
}


def build_row(
  run: files.RunFiles, rounds: pd.DataFrame, updates: pd.DataFrame
) -> dict[str, Any]:
  """Returns the row of a run: the columns of `frame.Frames.runs` but drops.

  Args:
    run: Its files.
    rounds: Its rounds, as in `frame.Frames`.
    updates: Its updates, as there.
  """
  return {
    **dict.fromkeys(SETTING_KEYS),
    'mechanism': DEFAULTS['mechanism'],
    **run.config['experiment'],
    **_read_name(run.config.get('run')),
    **_describe(run),
    **_measure(run, rounds, updates),
    **{f'privacy_{k}': x for k, x in (_NO_PRIVACY | {**run.privacy}).items()},
    'ledger': run.ledger,
    'notes': run.notes,
  }


def _read_name(names: Mapping[str, Any] | None) -> dict[str, Any]:
  """Which experiment a run is of; empty texts where it is of none."""
  names = names or {}
  return {
    'row': names.get('row', ''),
    'scale': names.get('scale', ''),
    'variants': ','.join(names.get('variants', ())),
  }


def _describe(run: files.RunFiles) -> dict[str, Any]:
  """What a run is, for people and to compare it."""
  config, metric = run.config, run.metric
  settings, task = config['experiment'], config.get('task') or {}
  algorithm, model = config['algorithm'], config['model']['name']
  known = ALGORITHMS.get(algorithm)
  name = titles.ALGORITHM_NAMES.get(algorithm, algorithm)
  name = config.get('program', name)
  own = settings.get('aggregator')
  if own:
    name = f'{name} by {titles.own_name(own)}'
  for key in _NAMED_SETTINGS:
    if settings.get(key, DEFAULTS[key]) != DEFAULTS[key]:
      name = f'{name}, {settings[key]}'.replace('_', '-')
  is_audited = settings.get('audit_canaries') is not None
  values = {key: settings.get(key, DEFAULTS.get(key)) for key in SETTING_KEYS}
  # Runs that are judged by different figures are not compared.
  values['metric'] = metric.name
  is_iid = _is_iid(settings)
  return {
    'algorithm': algorithm,
    'metric': metric,
    # Canaries are among its clients: it is no run of the algorithm alone.
    'algorithm_name': f'{name}, audited' if is_audited else name,
    'is_audited': is_audited,
    'has_own_aggregator': bool(own),
    'clips': known.clips if known is not None else 'updates',
    'model': model,
    'model_name': titles.MODEL_NAMES.get(model, titles.own_name(model)),
    'num_parameters': _number(config['model'].get('num_parameters')),
    'data': titles.DATA_NAMES.get(
      settings['task'], titles.own_name(settings['task'])
    ),
    'is_iid': is_iid,
    'split': 'IID' if is_iid else 'non-IID',
    'num_clients': _number(
      settings.get('num_clients') or task.get('num_clients')
    ),
    'num_test_examples': _number(task.get('num_test_examples')),
    'partition_summary': task.get('partition'),
    'tff_version': (config.get('versions') or {}).get('tensorflow_federated'),
    'versions': config.get('versions') or {},
    'target_epsilon': _number(settings.get('target_epsilon')),
    'clipping_norm': _number(
      settings.get('clipping_norm') or config.get('estimated_clipping_norm')
    ),
    'setting': json.dumps([*values.values()]),
    'series': json.dumps([*(values | dict.fromkeys(SEED_KEYS)).values()]),
  }


def _measure(
  run: files.RunFiles, rounds: pd.DataFrame, updates: pd.DataFrame
) -> dict[str, Any]:
  """What a run came to."""
  settings, privacy = run.config['experiment'], run.privacy
  known = ALGORITHMS.get(run.config['algorithm'])
  is_private = bool(privacy) or (known is not None and known.is_private)
  is_exact = bool(len(updates)) or bool(
    rounds[list(files.CLIENT_METRICS)].notna().any(axis=None)
  )
  rounds_done = int(rounds['round_num'].max()) if len(rounds) else 0
  spent = rounds['epsilon'].dropna()
  return {
    'is_private': is_private,
    'has_simulation_figures': is_private and is_exact,
    'has_caveats': bool(privacy.get('caveats')),
    'rounds_done': rounds_done,
    'is_complete': rounds_done >= settings['num_rounds'],
    'final_score': _last(rounds['score']),
    'best_score': run.metric.best(rounds['score']),
    'other_scores': _other_scores(run),
    'clipped_fraction': rounds['clipped_fraction'].mean(),
    'relative_spread': _relative_spread(rounds, updates),
    'path': _path(updates, settings),
    'median_round_seconds': rounds['round_seconds'].dropna().median(),
    'seconds': rounds['round_seconds'].sum(),
    'epsilon_spent': (
      _last(spent) if len(spent) else _number(privacy.get('epsilon'))
    ),
  }


def _other_scores(run: files.RunFiles) -> dict[str, float]:
  """The last values of metrics that do not decide, by their names."""
  known = {*files.METRIC_COLUMNS, run.metric.column}
  found = {
    column.removeprefix('test_'): _last(values)
    for column, values in run.rounds.items()
    if column.startswith('test_') and column not in known
  }
  return {name: value for name, value in found.items() if not math.isnan(value)}


def _last(values: pd.Series) -> float:
  """The last value that is there; NaN where none is."""
  found = values.dropna()
  return float(found.iloc[-1]) if len(found) else math.nan


def _relative_spread(rounds: pd.DataFrame, updates: pd.DataFrame) -> float:
  """Spread of the clients' update norms: standard deviation over mean.

  The ratio, and not the variance, because the threshold is itself a multiple of
  the mean norm: scaling all updates changes neither the ratio nor what is cut.

  Returns:
    The mean over rounds, from `metrics.csv` where it is measured there, else
    from the recorded updates; NaN where neither has it.
  """
  ratios = rounds['update_norm_std'] / rounds['update_norm_mean']
  ratios = ratios[np.isfinite(ratios)]
  if ratios.empty:
    norms = updates[~updates['is_mean']].groupby('t')['update_norm']
    ratios = norms.std(ddof=0) / norms.mean()
  return float(ratios.mean())


def _path(
  updates: pd.DataFrame, settings: Mapping[str, Any]
) -> tuple[float, ...]:
  """How far the model has moved after each round; empty if not recorded.

  A step is η_g times the norm of the averaged update. Most of the recorded ones
  are early: between them, logarithms are taken to be linear.
  """
  means = updates[updates['is_mean']].sort_values('t')
  norms = means['update_norm'].astype(float)
  usable = np.isfinite(norms) & (norms > 0)
  if not usable.any():
    return ()
  logs = np.interp(
    np.arange(settings['num_rounds']),
    means.loc[usable, 't'],
    np.log(norms[usable]),
  )
  steps = _number(settings.get('server_learning_rate')) * np.exp(logs)
  return (0.0, *np.cumsum(steps).tolist())


def _is_iid(settings: Mapping[str, Any]) -> bool:
  """Whether the paper would call the clients' data IID (Sec. 2.2).

  Clients with equally many examples of every class are, except for the few
  examples a client that the paper calls the non-IID case of CIFAR-10.
  """
  if settings['partition'] == 'class_balanced':
    size = settings.get('examples_per_client')
    return size is None or size > _QUANTITY_SKEW_EXAMPLES
  return settings['partition'] == 'iid'


def _number(value: Any) -> float:
  """A number of a JSON file; NaN where it is none."""
  is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
  return float(value) if is_number else math.nan
