"""Runs of the table of experiments that a variant changes, by seed.

A run is compared with the run of another algorithm that has its row, scale,
seed and variants: `NamedRun.beside`.
"""

import dataclasses
import math
from typing import Any

import pandas as pd

from analysis import evidence, margins, tables, titles
from tasks import experiment_table
from tasks.reproduction_runs import REPRODUCTION, plan_runs

_MATCHED = 'matched_steps'

# Variants that may explain the drops of the perceptron, beside none.
_EXPLANATIONS = ('client_rate_', 'half_averaged_norm_')

# The scales at which a round is that of the paper.
_FULL_SCALES = ('paper', 'paper_40_rounds')
# Stands at a c that is half of the norm of the averaged update.
_AVERAGE_MARK = ' *'

_OTHER_BUDGET = 'epsilon_5'
# How cohorts are drawn, and the noise, by what else is changed.
_MECHANISMS = {
  '': 'Poisson cohorts, independent noise',
  'paper_sampling': 'fixed P of N, charged as Poisson (the paper)',
  'fixed_size': 'fixed P of N, independent noise',
  'banded': 'clients take turns, banded noise',
  'blt': 'clients take turns, BLT noise',
}
_SHORT = {
  '': 'Poisson cohorts',
  'fixed_size': 'fixed cohorts',
  'banded': 'banded noise',
  'blt': 'BLT noise',
}
# Those whose ε needs no secret draw of the cohorts.
_WITHOUT_DRAW = ('banded', 'blt')

_COLUMNS = (
  'row scale algorithm variants seed num_rounds client_learning_rate '
  'clipping_norm target_epsilon plain accuracy drop dp_drop gain step_ratio'
).split()


def paired_runs(runs: pd.DataFrame) -> pd.DataFrame:
  """The finished runs of the table of experiments, and what each lost.

  Args:
    runs: A row for each run, as in `frame.Frames`.

  Returns:
    A row for each, under its name there, with columns row, scale, algorithm,
    variants (names, with commas), seed, num_rounds, client_learning_rate,
    clipping_norm, target_epsilon, plain (the name of the run without variants),
    accuracy (percent) and, in points, drop (FedAvg's accuracy less its own),
    dp_drop (CE-FedAvg's less its own) and gain (its own less that of the run
    without variants), and step_ratio (its `step_length` over FedAvg's); NaN
    where the other run is not there. The columns of
    `privacy.json` are there as in `frame.Frames`.
  """
  known = runs[runs['is_complete'] & runs['named'].notna()]
  names = [named.name for named in known['named']]
  accuracies, steps = (
    dict(zip(names, known[column], strict=True))
    for column in ('final_accuracy', 'step_length')
  )
  lines = []
  for run in known.to_dict('records'):
    named, own = run['named'], run['final_accuracy']
    plain = dataclasses.replace(named, variants=()).name
    fed_avg, ce_fed_avg = (
      named.beside(algorithm).name for algorithm in ('fed_avg', 'ce_fed_avg')
    )
    lines.append(
      {key: value for key, value in run.items() if key.startswith('privacy_')}
      | {key: run[key] for key in _COLUMNS if key in run}
      | {
        'row': named.row.name,
        'scale': named.scale.name,
        'plain': plain,
        'accuracy': own,
        'drop': accuracies.get(fed_avg, math.nan) - own,
        'dp_drop': accuracies.get(ce_fed_avg, math.nan) - own,
        'gain': own - accuracies.get(plain, math.nan),
        'step_ratio': run['step_length'] / steps.get(fed_avg, math.nan),
      }
    )
  return pd.DataFrame(lines, names, None if lines else _COLUMNS)


def with_matched_steps(
  lines: pd.DataFrame, paired: pd.DataFrame
) -> pd.DataFrame:
  """Adds what CE-FedAvg loses where its steps are as long as FedAvg's.

  Args:
    lines: From `evidence.paper_lines`.
    paired: From `paired_runs`.

  Returns:
    The lines with the columns `matched_drop` and `matched_gain` (by how much
    the longer steps raise the accuracy of CE-FedAvg, seed by seed), `Estimate`s
    or None; and `step_ratio` and `matched_step_ratio` (CE-FedAvg's steps over
    FedAvg's, the means over seeds), NaN where they were not recorded.
  """
  clipped = paired[paired['algorithm'] == 'ce_fed_avg']
  plain, matched = (
    [same[same['plain'].isin(names)] for names in lines['runs']]
    for same in (
      clipped[clipped['variants'] == variants] for variants in ('', _MATCHED)
    )
  )
  return lines.assign(
    matched_drop=[margins.estimate(part['drop']) for part in matched],
    matched_gain=[margins.estimate(part['gain']) for part in matched],
    step_ratio=[part['step_ratio'].mean() for part in plain],
    matched_step_ratio=[part['step_ratio'].mean() for part in matched],
  )


def matched_table(lines: pd.DataFrame) -> pd.DataFrame:
  """The drops by clipping with the paper's steps and with matched ones.

  Args:
    lines: From `with_matched_steps`.

  Returns:
    Columns for a table; a row for each row and scale that was run both ways.
  """
  lines = _matched_lines(lines)
  return pd.DataFrame(
    {
      'row': lines['row'],
      'scale': lines['scale_name'],
      'drop, paper': lines['paper_clipping_drop'].map('{:.2f}'.format),
      'drop, η_g = 1': lines['clipping_drop'].map(tables.cell),
      'drop, η_g = 2': lines['matched_drop'].map(tables.cell),
      'gained by η_g = 2': lines['matched_gain'].map(tables.cell),
      "steps over FedAvg's, η_g = 1 and 2": [
        f'{margins.number(one, ".2f")} and {margins.number(two, ".2f")}'
        for one, two in zip(
          lines['step_ratio'], lines['matched_step_ratio'], strict=True
        )
      ],
      'seeds': lines['matched_drop'].map(tables.num_seeds),
    }
  )


def matched_counts(lines: pd.DataFrame) -> dict[str, Any]:
  """What is left of the drops with matched steps.

  Args:
    lines: From `with_matched_steps`.

  Returns:
    In how many rows and scales with three seeds, of `matched_tested`, a drop is
    left (`matched_left`), CE-FedAvg is above FedAvg (`matched_above`), and 0 is
    in the interval (`matched_none`); and all of them in words, beside the drops
    with the paper's steps (`matched_words`).
  """
  lines = _matched_lines(lines)
  has_margin = [
    drop.num_seeds >= margins.MIN_SEEDS for drop in lines['matched_drop']
  ]
  lines = lines.loc[has_margin]
  signs = [margins.sign(drop) for drop in lines['matched_drop']]
  return {
    'matched_words': '; '.join(
      f'{line["model"]} on {line["data"]}, {line["split"]}: '
      f'{line["matched_drop"]} of {line["clipping_drop"]} points'
      for line in lines.to_dict('records')
    ),
    'matched_left': signs.count(1),
    'matched_above': signs.count(-1),
    'matched_none': signs.count(0),
    'matched_tested': len(signs),
  }


def explanation_table(paired: pd.DataFrame) -> pd.DataFrame:
  """What other step sizes and thresholds make of the perceptron's rows.

  Args:
    paired: From `paired_runs`.

  Returns:
    Columns for a table; a row for each row of the paper, scale, η_l and way to
    choose c; none where no explanation was run.
  """
  return pd.DataFrame(
    [
      {
        'data': found['data'],
        'η_l': f'{found["rate"]:g}',
        'c': f'{found["norm"]:.3f}{found["mark"]}',
        'T': found['T'],
        'FedAvg (%)': str(found['fed_avg']),
        'clipping drop, paper': f'{found["paper"][0]:.2f}',
        'clipping drop, ours': tables.cell(found['ours'][0]),
        'DP drop, paper': f'{found["paper"][1]:.2f}',
        'DP drop, ours': tables.cell(found['ours'][1]),
        'seeds': found['ours'][0].num_seeds,
      }
      for found in _explanations(paired)
    ]
  )


def nearest_explanations(paired: pd.DataFrame) -> str:
  """For each row of the perceptron, what comes nearest to its two drops.

  Near is the sum of the distances of the two drops from the paper's. In words;
  empty where no row has two explanations to choose from.
  """
  found = [f for f in _explanations(paired) if f['ours'][1] is not None]
  words = []
  for data in dict.fromkeys(f['data'] for f in found):
    own = [f for f in found if f['data'] == data]
    best = min(own, key=_distance)
    if len(own) > 1:
      words.append(
        f'on {data} η_l = {best["rate"]:g} with c = {best["norm"]:.3f}'
        f'{best["mark"]}, which is {_distance(best):.2f} points away in sum'
      )
  return '; '.join(words)


def mechanism_table(paired: pd.DataFrame) -> pd.DataFrame:
  """DP-FedAvg by how cohorts are drawn, the noise, and ε.

  Args:
    paired: From `paired_runs`.

  Returns:
    Columns for a table; a row for each row of the paper, scale, ε that is aimed
    at and way that was run. None where but one way was run.
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
        'ε that holds': f'{private["privacy_actual_epsilon"]:.2f}',
        'relation': (
          # What the ε that holds is for, not the one that is charged.
          'replace-one'
          if found['way'] == 'paper_sampling'
          else str(private['privacy_relation']).replace('_', '-')
        ),
        'accuracy (%)': str(margins.estimate(found['runs']['accuracy'])),
        'drop from CE-FedAvg': tables.cell(
          margins.estimate(found['runs']['dp_drop'])
        ),
        'seeds': len(found['runs']),
      }
    )
  return pd.DataFrame(lines)


def without_draw(paired: pd.DataFrame) -> dict[str, str]:
  """What is there for those who cannot draw secret, uniform cohorts.

  Args:
    paired: From `paired_runs`.

  Returns:
    In words, `turns`: for each data set and ε that was run with three seeds
    without such a draw, the drop from CE-FedAvg by every mechanism; and
    `better_noise`: how often which of the two kinds of noise has the smaller
    mean drop, where both were run so. Empty where there is no such thing.
  """
  places: dict[tuple[str, str, float], dict[str, margins.Estimate]] = {}
  for found in _mechanisms(paired):
    drop = margins.estimate(found['runs']['dp_drop'])
    # What the paper's way claims does not hold.
    honest = found['way'] in _SHORT
    if honest and drop is not None and drop.num_seeds >= margins.MIN_SEEDS:
      place = tuple(found[key] for key in ('row', 'scale', 'epsilon'))
      places.setdefault(place, {})[found['way']] = drop
  turns, better = [], []
  for (row, _, epsilon), drops in places.items():
    if drops.keys().isdisjoint(_WITHOUT_DRAW):
      continue
    figures = ', '.join(f'{_SHORT[way]} {drops[way]}' for way in drops)
    data = titles.DATA_NAMES[experiment_table.ROWS[row].split.task]
    turns.append(f'on {data} at ε = {epsilon:g}, {figures}')
    if drops.keys() >= set(_WITHOUT_DRAW):
      best = min(_WITHOUT_DRAW, key=lambda way: drops[way].mean)
      better.append(_SHORT[best])
  return {
    'turns': '; '.join(turns),
    'better_noise': ', '.join(
      f'{noise} in {better.count(noise)} of {len(better)}'
      for noise in dict.fromkeys(better)
    ),
  }


def missing_runs(runs: pd.DataFrame) -> list[str]:
  """The runs of `tasks.reproduce` that are not there, or not finished.

  Returns:
    A phrase for each row, scale and variants, with their algorithms and seeds.
  """
  done = {
    named.name for named in runs.loc[runs['is_complete'], 'named'].dropna()
  }
  missing: dict[tuple[str, ...], dict[str, list]] = {}
  for run in plan_runs(REPRODUCTION):
    if run.name not in done:
      names = ','.join(variant.name for variant in run.variants)
      place = (run.row.name, run.scale.name, names)
      seeds = missing.setdefault(place, {}).setdefault(run.algorithm, [])
      seeds.append(str(run.seed))
  return [
    f'`{row}`, {scale}{", " if names else ""}{names}: '
    + '; '.join(
      f'{titles.ALGORITHM_NAMES[algorithm]}, '
      f'seed{"s" * (len(seeds) > 1)} {", ".join(seeds)}'
      for algorithm, seeds in algorithms.items()
    )
    for (row, scale, names), algorithms in missing.items()
  ]


def _matched_lines(lines: pd.DataFrame) -> pd.DataFrame:
  return evidence.once(lines[lines['matched_drop'].notna()])


def _explanations(paired: pd.DataFrame) -> list[dict[str, Any]]:
  """The groups of runs of `explanation_table`; `ours` are two `Estimate`s."""
  clipped = paired[paired['algorithm'] == 'ce_fed_avg']
  is_explanation = clipped['variants'].str.startswith(_EXPLANATIONS)
  tried = clipped.loc[is_explanation, 'row'].unique()
  shown = clipped[
    clipped['row'].isin(tried)
    & (is_explanation | (clipped['variants'] == ''))
    & clipped['scale'].isin(_FULL_SCALES)
  ]
  found = []
  for (name, _, variants), part in shown.groupby(['row', 'scale', 'variants']):
    row = evidence.published(name)
    private = paired[
      (paired['algorithm'] == 'dp_fed_avg')
      & (paired['variants'] == variants)
      & (paired['row'] == name)
      & paired['scale'].isin(part['scale'])
    ]
    of_average = variants.startswith(_EXPLANATIONS[1])
    found.append(
      {
        'data': titles.DATA_NAMES[experiment_table.ROWS[name].split.task],
        'rate': part['client_learning_rate'].iloc[0],
        'norm': part['clipping_norm'].mean(),
        'mark': _AVERAGE_MARK if of_average else '',
        'T': part['num_rounds'].iloc[0],
        'fed_avg': margins.estimate(part['accuracy'] + part['drop']),
        'paper': (row.clipping_drop, row.dp_drop),
        'ours': tuple(
          margins.estimate(drops)
          for drops in (part['drop'], private['dp_drop'])
        ),
      }
    )
  return found


def _distance(found: dict[str, Any]) -> float:
  return sum(
    abs(ours.mean - paper)
    for ours, paper in zip(found['ours'], found['paper'], strict=True)
  )


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
