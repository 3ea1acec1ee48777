"""The row of a run: what its files say, and what follows from them."""

import dataclasses
import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from analysis import run_files, titles
from tasks.experiments import named_runs
from tasks.experiments.experiment_table import ALGORITHMS, DEFAULTS
from tff_clipping.privacy.plans import plan_text

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
  *SEED_KEYS,
)

# What the clients and rounds of a run are like; drops of accuracy at different
# ones are not compared.
SCALE = ('clients_per_round', 'local_steps', 'batch_size', 'num_rounds')

# The paper's quantity skew: 5 examples of each of 10 classes a client.
_QUANTITY_SKEW_EXAMPLES = 50


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunRow:
  """What a row holds of a run beside its settings, privacy and constants.

  What is missing is NaN, None or an empty text. Accuracies are in percent, of
  the whole test set or the part of it that the run evaluates.

  Attributes:
    algorithm: One of `experiment_table.ALGORITHMS`, or another's name.
    algorithm_name: The same for people, with what is changed in it.
    is_audited: Whether there are canaries among the clients.
    has_own_aggregator: Whether the aggregator is a user's own.
    named: The run of the table of experiments that it is; None if none.
    variants: The names of that one's variants, with commas.
    model: The name of the model.
    model_name: The same for people.
    num_parameters: The number of parameters of the model, d.
    data: The data, for people.
    is_iid: Whether the paper would call the clients' data IID.
    split: The same in a word.
    num_clients: The number of clients, N; of a natural partition that of the
      data.
    num_test_examples: The number of test examples there are.
    partition_summary: A line on the partition.
    tff_version: The version of TFF.
    target_epsilon: The ε that was asked for.
    setting: All of `SETTING_KEYS` as text: runs with the same may be compared.
    series: The same without the seeds: runs with the same repeat each other.
    scale: The values of `SCALE`.
    clipping_norm: The threshold c, on updates or on models.
    clips: What c bounds: `updates`, `models` or `nothing`.
    is_private: Whether there is noise, and a plan of it.
    has_simulation_figures: Whether a private run shows exact figures of its
      clients.
    has_caveats: Whether the ε of its plan does not hold for it as it was run.
    rounds_done: The number of rounds that were done.
    is_complete: Whether that is T.
    final_accuracy: Of the last evaluation.
    best_accuracy: The highest of any.
    clipped_fraction: The share of clipped updates of a round, mean over rounds.
    relative_spread: The standard deviation of the clients' update norms over
      their mean, mean over rounds.
    path: How far the model has moved after each round, from 0 to T: the sum of
      the lengths of its steps; empty where no updates were recorded.
    median_round_seconds: The median time of a round.
    seconds: The time of all rounds.
    epsilon_spent: The ε of the rounds that were done, by the plan's accounting.
  """

  algorithm: str
  algorithm_name: str
  is_audited: bool
  has_own_aggregator: bool
  named: named_runs.NamedRun | None
  variants: str
  model: str
  model_name: str
  num_parameters: float
  data: str
  is_iid: bool
  split: str
  num_clients: float
  num_test_examples: float
  partition_summary: str | None
  tff_version: str | None
  target_epsilon: float
  setting: str
  series: str
  scale: tuple
  clipping_norm: float
  clips: str
  is_private: bool
  has_simulation_figures: bool
  has_caveats: bool
  rounds_done: int
  is_complete: bool
  final_accuracy: float
  best_accuracy: float
  clipped_fraction: float
  relative_spread: float
  path: tuple[float, ...]
  median_round_seconds: float
  seconds: float
  epsilon_spent: float


# Of the settings that make an algorithm another, what older runs do not say is
# as by default.
_NAMED_SETTINGS = ('clipping', 'aggregation', 'compute_dtype')
# Why an ε does not hold, of runs whose files do not say it.
_KNOWN_COHORTS = (
  'the seed of the cohorts is in its config.json, and sampling hides no client '
  'from whoever knows it'
)
_EXACT_CLIPPING_NORM = (
  "the clipping norm is an exact figure of the clients' data"
)
# Who takes part is no secret there.
_OPEN_SAMPLINGS = ('min_separation', 'shuffled_epochs')

# Of a run that is not private.
_NO_PRIVACY = {
  **dict.fromkeys(
    ('noise_multiplier', 'epsilon', 'actual_epsilon', 'target_delta'), math.nan
  ),
  **dict.fromkeys(('sampling', 'accountant', 'description')),
}


def build_row(
  config: Mapping[str, Any],
  privacy: Mapping[str, Any],
  constants: Mapping[str, float],
  rounds: pd.DataFrame,
  updates: pd.DataFrame,
) -> dict[str, Any]:
  """Returns the row of a run.

  Args:
    config: What `config.json` holds.
    privacy: What `privacy.json` holds; empty where there is none.
    constants: What `constants.json` holds; empty where there is none.
    rounds: The rounds of the run, as in `frame.Frames`.
    updates: Its updates.

  Returns:
    By column: every setting, what `RunRow` names, and the keys of privacy and
    constants, after `privacy_` and `constant_`.
  """
  settings = config['experiment']
  named = _named_run(config)
  privacy = _with_unsaid_caveats(privacy, config, named)
  row = _build(config, settings, privacy, named, rounds, updates)
  plan = _NO_PRIVACY | {**privacy}
  return {
    **dict.fromkeys(SETTING_KEYS),
    # Of older runs, which do not say it.
    'mechanism': DEFAULTS['mechanism'],
    **settings,
    **vars(row),
    **{f'privacy_{k}': x for k, x in plan.items()},
    **{f'constant_{k}': x for k, x in constants.items()},
  }


def _build(
  config: Mapping[str, Any],
  settings: Mapping[str, Any],
  privacy: Mapping[str, Any],
  named: named_runs.NamedRun | None,
  rounds: pd.DataFrame,
  updates: pd.DataFrame,
) -> RunRow:
  task = config.get('task') or {}
  algorithm = config['algorithm']
  known = ALGORITHMS.get(algorithm)
  is_private = bool(privacy) or (known is not None and known.is_private)
  exact = bool(len(updates)) or bool(
    rounds[list(run_files.CLIENT_METRICS)].notna().any(axis=None)
  )
  accuracies = rounds['accuracy'].dropna()
  rounds_done = int(rounds['round_num'].max()) if len(rounds) else 0
  spent = rounds['epsilon'].dropna()
  values = [settings.get(key, DEFAULTS.get(key)) for key in SETTING_KEYS]
  without_seed = [
    None if key in SEED_KEYS else value
    for key, value in zip(SETTING_KEYS, values, strict=True)
  ]
  is_iid = _is_iid(settings)
  is_audited = settings.get('audit_canaries') is not None
  name = titles.ALGORITHM_NAMES.get(algorithm, algorithm)
  if settings.get('aggregator'):
    name = f'{name} by {titles.own_name(settings["aggregator"])}'
  for key in _NAMED_SETTINGS:
    if settings.get(key, DEFAULTS[key]) != DEFAULTS[key]:
      name = f'{name}, {settings[key]}'.replace('_', '-')
  return RunRow(
    algorithm=algorithm,
    # Canaries are among its clients: it is no run of the algorithm alone.
    algorithm_name=f'{name}, audited' if is_audited else name,
    is_audited=is_audited,
    has_own_aggregator=bool(settings.get('aggregator')),
    named=named,
    variants=','.join(v.name for v in named.variants) if named else '',
    model=config['model']['name'],
    model_name=titles.MODEL_NAMES.get(
      config['model']['name'], titles.own_name(config['model']['name'])
    ),
    num_parameters=_number(config['model'].get('num_parameters')),
    data=titles.DATA_NAMES.get(
      settings['task'], titles.own_name(settings['task'])
    ),
    is_iid=is_iid,
    split='IID' if is_iid else 'non-IID',
    num_clients=_number(settings.get('num_clients') or task.get('num_clients')),
    num_test_examples=_number(task.get('num_test_examples')),
    partition_summary=task.get('partition'),
    tff_version=(config.get('versions') or {}).get('tensorflow_federated'),
    target_epsilon=_number(settings.get('target_epsilon')),
    setting=json.dumps(values),
    series=json.dumps(without_seed),
    scale=tuple(settings.get(key) for key in SCALE),
    clipping_norm=_number(settings.get('clipping_norm')),
    clips=known.clips if known is not None else 'updates',
    is_private=is_private,
    has_simulation_figures=is_private and exact,
    has_caveats=bool(privacy.get('caveats')),
    rounds_done=rounds_done,
    is_complete=rounds_done >= settings['num_rounds'],
    final_accuracy=_last(accuracies),
    best_accuracy=accuracies.max(),
    clipped_fraction=rounds['clipped_fraction'].mean(),
    relative_spread=_relative_spread(rounds, updates),
    path=_path(updates, settings),
    median_round_seconds=rounds['round_seconds'].dropna().median(),
    seconds=rounds['round_seconds'].sum(),
    epsilon_spent=(
      _last(spent) if len(spent) else _number(privacy.get('epsilon'))
    ),
  )


def _named_run(config: Mapping[str, Any]) -> named_runs.NamedRun | None:
  """The run of the table of experiments with the settings of a run.

  Of two rows that share it, the first. A threshold that was given by hand where
  the table takes it from a run is none of the table's.
  """
  settings = config['experiment'] | {'algorithm': config['algorithm']}
  found = named_runs.find_runs(dict.fromkeys(SETTING_KEYS) | settings)
  if not found:
    return None
  is_given = config.get('clipping_norm_source') == 'given'
  return None if is_given and found[0].threshold_run else found[0]


def _with_unsaid_caveats(
  privacy: Mapping[str, Any],
  config: Mapping[str, Any],
  named: named_runs.NamedRun | None,
) -> Mapping[str, Any]:
  """A plan with why its ε does not hold for a run, if its files do not say it.

  Files of older versions say none of it, or the one and not the other.
  """
  if not privacy:
    return privacy
  said = list(privacy.get('caveats', []))
  text = ' '.join(said)
  settings = config['experiment']
  # The seed of a run of the table is that of its name.
  is_known = named is not None and settings.get('sampling_seed') == named.seed
  reasons = {
    _KNOWN_COHORTS: (
      is_known
      and privacy.get('sampling') not in _OPEN_SAMPLINGS
      and 'seed of the cohorts' not in text
    ),
    _EXACT_CLIPPING_NORM: (
      config.get('clipping_norm_source') not in (None, 'given')
      and 'clipping norm' not in text
    ),
  }
  caveats = said + [reason for reason, applies in reasons.items() if applies]
  if caveats == said:
    return privacy
  described = (privacy.get('description') or '').removeprefix(
    plan_text.add_caveats('', said)
  )
  return {
    **privacy,
    'caveats': caveats,
    'description': plan_text.add_caveats(described, caveats),
  }


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
  """How far the model has moved after each round.

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
