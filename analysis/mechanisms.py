"""DP-FedAvg by how cohorts are drawn, the noise, and ε."""

from typing import Any

import pandas as pd

from analysis import margins, tables, titles
from tasks.experiments import experiment_table

_OTHER_BUDGET = 'epsilon_5'
# How cohorts are drawn, and the noise, by what else is changed.
_MECHANISMS = {
  '': 'Poisson cohorts, independent noise',
  'paper_sampling': 'fixed P of N, charged as Poisson (the paper)',
  'fixed_size': 'fixed P of N, independent noise',
  'fixed_size,pld': 'fixed P of N, independent noise',
  'banded': 'clients take turns, banded noise',
  'blt': 'clients take turns, BLT noise',
}
# Those whose ε needs no secret draw of the cohorts, and which lost less, by the
# sign of the second one's drop less the first one's.
_WITHOUT_DRAW = {'banded': 'banded noise', 'blt': 'BLT noise'}
_BETTER = {
  1: _WITHOUT_DRAW['banded'],
  -1: _WITHOUT_DRAW['blt'],
  0: 'not decided',
}


def mechanism_table(paired: pd.DataFrame) -> pd.DataFrame:
  """DP-FedAvg by how cohorts are drawn, the noise, and ε.

  Args:
    paired: From `pairs.paired_runs`.

  Returns:
    Columns for a table; a row for each row of the paper, scale, ε that is aimed
    at and way that was run. Empty where only one way was run.
  """
  lines = []
  for found in _mechanisms(paired):
    private = found['runs'].iloc[0]
    lines.append(
      {
        'row': found['row'],
        'T': private['num_rounds'],
        'cohorts and noise': _MECHANISMS[found['way']],
        'ε': f'{private["target_epsilon"]:g}',
        'ε as drawn': margins.at_most(private['privacy_actual_epsilon']),
        'relation': (
          # What the ε as drawn is for, not the one that is charged.
          'replace-one'
          if found['way'] == 'paper_sampling'
          else str(private['privacy_relation']).replace('_', '-')
        ),
        'accountant': str(private['privacy_accountant']),
        'z': margins.number(private['privacy_noise_multiplier'], '.3f'),
        'accuracy (%)': str(margins.estimate(found['runs']['accuracy'])),
        'drop from CE-FedAvg': tables.cell(
          margins.estimate(found['runs']['dp_drop'])
        ),
        'seeds': len(found['runs']),
      }
    )
  return pd.DataFrame(lines)


def rdp_over_pld(paired: pd.DataFrame) -> str:
  """How much more noise RDP asks for than PLD, for fixed cohorts; or empty."""
  noises: dict[tuple, dict[str, float]] = {}
  for found in _mechanisms(paired):
    place = tuple(found[key] for key in ('row', 'scale', 'epsilon'))
    noise = found['runs']['privacy_noise_multiplier'].iloc[0]
    noises.setdefault(place, {})[found['way']] = noise
  ratios = [
    own['fixed_size'] / own['fixed_size,pld']
    for own in noises.values()
    if {'fixed_size', 'fixed_size,pld'} <= own.keys()
  ]
  return f'{min(ratios):.2f} to {max(ratios):.2f}' if ratios else ''


def paper_sampling(paired: pd.DataFrame) -> dict[str, str]:
  """What the paper's ε is for its own cohorts, a fixed P of N.

  Args:
    paired: From `pairs.paired_runs`.

  Returns:
    `paper_epsilon`, as it charges, `paper_actual_epsilon` and `paper_rounds`,
    of the first such runs; empty where there are none.
  """
  runs = paired[paired['variants'] == 'paper_sampling']
  if runs.empty:
    return dict.fromkeys(
      ('paper_epsilon', 'paper_actual_epsilon', 'paper_rounds'), ''
    )
  run = runs.iloc[0]
  return {
    'paper_epsilon': f'{run["target_epsilon"]:g}',
    'paper_actual_epsilon': margins.at_most(run['privacy_actual_epsilon']),
    'paper_rounds': str(run['num_rounds']),
  }


def without_draw(paired: pd.DataFrame) -> dict[str, str]:
  """What is there for those who cannot draw secret, uniform cohorts.

  Args:
    paired: From `pairs.paired_runs`.

  Returns:
    In words, `turns`: for each data set and ε at which runs without such a
    draw have three seeds, from what to what points they lose against CE-FedAvg,
    and beside it Poisson cohorts, where they have as many; and
    `better_noise`: how often which of the two kinds of noise has the smaller
    drop, seed by seed, where both were run so. Empty where there is no such
    thing.
  """
  places: dict[tuple[str, str, float], dict[str, pd.Series]] = {}
  for found in _mechanisms(paired):
    drops_by_seed = found['runs'].set_index('seed')['dp_drop'].dropna()
    if len(drops_by_seed) >= margins.MIN_SEEDS:
      place = tuple(found[key] for key in ('row', 'scale', 'epsilon'))
      places.setdefault(place, {})[found['way']] = drops_by_seed
  turns, better = [], []
  for (row, _, epsilon), drops in places.items():
    own = [drops[way].mean() for way in _WITHOUT_DRAW if way in drops]
    if not own:
      continue
    data = titles.DATA_NAMES[experiment_table.ROWS[row].split.task]
    text = f'{margins.span(own)} on {data} at ε = {epsilon:g}'
    if '' in drops:
      text += f' (Poisson cohorts {margins.number(drops[""].mean(), ".2f")})'
    turns.append(text)
    if drops.keys() >= set(_WITHOUT_DRAW):
      banded, blt = (drops[way] for way in _WITHOUT_DRAW)
      # Of the seeds that both have.
      lead = margins.estimate(blt - banded)
      if lead is not None and lead.num_seeds >= margins.MIN_SEEDS:
        better.append(_BETTER[margins.sign(lead)])
  return {
    'turns': '; '.join(turns),
    'better_noise': ', '.join(
      f'{noise} in {better.count(noise)} of {len(better)}'
      for noise in dict.fromkeys(better)
    ),
  }


def _mechanisms(paired: pd.DataFrame) -> list[dict[str, Any]]:
  """The groups of runs of `mechanism_table`."""
  private = paired[paired['algorithm'] == 'dp_fed_avg']
  ways = (
    private['variants']
    .str.split(',')
    .map(
      lambda names: ','.join(name for name in names if name != _OTHER_BUDGET)
    )
  )
  private = private.assign(way=ways)[ways.isin(list(_MECHANISMS))]
  found = []
  for place, part in private.groupby(['row', 'scale'], sort=False):
    if part['way'].nunique() < 2:
      continue
    for epsilon, same in part.groupby('target_epsilon', sort=True):
      found += [
        dict(zip(('row', 'scale'), place, strict=True))
        | {'epsilon': epsilon, 'way': way, 'runs': same[same['way'] == way]}
        for way in _MECHANISMS
        if (same['way'] == way).any()
      ]
  return found
