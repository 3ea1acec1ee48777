"""What may explain the perceptron's drops beside the paper's.

The paper does not state the client's learning rate, and its threshold might be
read as half of the norm of the averaged update.
"""

import math
from collections.abc import Sequence
from typing import Any

import pandas as pd

from analysis import evidence, margins, tables, titles
from tasks.experiments import experiment_table

# Variants that may explain the drops of the perceptron, beside none.
_EXPLANATIONS = ('client_rate_', 'half_averaged_norm_')

# The scales at which a round is that of the paper.
_FULL_SCALES = ('paper', 'paper_40_rounds')
# Stands at a c that is half of the norm of the averaged update.
_AVERAGE_MARK = ' *'
_WAYS = {
  '': "half of the mean norm of the clients' updates",
  _AVERAGE_MARK: 'half of the norm of the averaged update (*)',
}


def find_explanations(paired: pd.DataFrame) -> list[dict[str, Any]]:
  """The runs with other step sizes and thresholds, and those without.

  Args:
    paired: From `pairs.paired_runs`.

  Returns:
    An entry for each row of the paper, scale, η_l and way to choose c; none
    where no explanation was run. `ours` are the two drops, `Estimate`s or None.
  """
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
        'row': name,
        'data': titles.DATA_NAMES[experiment_table.ROWS[name].split.task],
        'rate': part['client_learning_rate'].iloc[0],
        'norm': part['clipping_norm'].mean(),
        'mark': _AVERAGE_MARK if of_average else '',
        'is_plain': variants == '',
        'T': part['num_rounds'].iloc[0],
        # CE-FedAvg's and what it lost.
        'fed_avg': margins.estimate(part['accuracy'] + part['drop']),
        'paper': (row.clipping_drop, row.dp_drop),
        'ours': tuple(
          margins.estimate(drops)
          for drops in (part['drop'], private['dp_drop'])
        ),
      }
    )
  # Of a row, from the paper's c and the largest T and η_l on.
  return sorted(found, key=lambda f: (f['row'], -f['T'], f['mark'], -f['rate']))


def explanation_table(found: Sequence[dict[str, Any]]) -> pd.DataFrame:
  """What other step sizes and thresholds make of the perceptron's rows.

  Args:
    found: From `find_explanations`.
  """
  return pd.DataFrame(
    [
      {
        'data': each['data'],
        'η_l': f'{each["rate"]:g}',
        'c': f'{each["norm"]:.3f}{each["mark"]}',
        'T': each['T'],
        'FedAvg (%)': str(each['fed_avg']),
        'clipping drop, paper': f'{each["paper"][0]:.2f}',
        'clipping drop, ours': tables.cell(each['ours'][0]),
        'DP drop, paper': f'{each["paper"][1]:.2f}',
        'DP drop, ours': tables.cell(each['ours'][1]),
        'seeds': tables.num_seeds(each['ours'][0]),
      }
      for each in found
    ]
  )


def nearest_explanations(found: Sequence[dict[str, Any]]) -> str:
  """For each row of the perceptron, what comes nearest to its two drops.

  Near is the sum of the distances of the two drops from the paper's. Where,
  with nothing changed, both of the paper's may be those of one more seed of
  ours, nothing is to be explained. In words; empty where no row has two
  explanations to choose from.

  Args:
    found: From `find_explanations`.
  """
  words = []
  for data, own in _by_data(found).items():
    best = min(own, key=_distance)
    same = [f for f in own if f['is_plain'] and not _miss(f) > 0]
    if len(own) > 1 and same:
      words.append(
        f'on {data}, with nothing changed and T = {same[0]["T"]}, both of the '
        "paper's drops lie where one more run of ours might, so that our "
        'figures do not tell them apart there'
      )
    elif len(own) > 1:
      words.append(
        f'on {data} η_l = {best["rate"]:g} with c = {best["norm"]:.3f}'
        f'{best["mark"]}, which is {_distance(best):.2f} points away in sum'
      )
  return '; '.join(words)


def covered_drops(found: Sequence[dict[str, Any]]) -> str:
  """For each way to choose c, the data on which it has the paper's two drops.

  It has them where, at some η_l and T that were run with three seeds, both may
  be those of one more seed of ours. In words, with how far it misses the others
  at best; empty where no way was run on two data.

  Args:
    found: From `find_explanations`.
  """
  words = []
  for mark, way in _WAYS.items():
    of_way = _by_data([f for f in found if f['mark'] == mark])
    if len(of_way) < 2:
      continue
    misses = {data: min(map(_miss, own)) for data, own in of_way.items()}
    covered = [data for data, miss in misses.items() if not miss > 0]
    missed = [
      f'{margins.number(miss, ".2f")} on {data}'
      for data, miss in misses.items()
      if miss > 0
    ]
    words.append(
      f'with {way} on {" and ".join(covered) or "none"}'
      + (f' (it misses by {" and ".join(missed)})' if missed else '')
    )
  return '; '.join(words)


def _by_data(
  found: Sequence[dict[str, Any]],
) -> dict[str, list[dict[str, Any]]]:
  """The entries that have both drops, by their data."""
  by_data: dict[str, list[dict[str, Any]]] = {}
  for each in found:
    if None not in each['ours']:
      by_data.setdefault(each['data'], []).append(each)
  return by_data


def _miss(found: dict[str, Any]) -> float:
  """How far the paper's drops are out of the range of one more seed of ours.

  In points, of the one that is farther; not above 0 where both are in it, and
  infinite without the seeds for a range.
  """
  return max(
    math.inf
    if ours.num_seeds < margins.MIN_SEEDS
    else abs(ours.mean - paper) - margins.prediction_margin(ours)
    for ours, paper in zip(found['ours'], found['paper'], strict=True)
  )


def _distance(found: dict[str, Any]) -> float:
  return sum(
    abs(ours.mean - paper)
    for ours, paper in zip(found['ours'], found['paper'], strict=True)
  )
