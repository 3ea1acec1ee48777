"""What may explain the perceptron's drops beside the paper's.

The paper does not state the client's learning rate, and its threshold might be
read as half of the norm of the averaged update.
"""

from typing import Any

import pandas as pd

from analysis import evidence, margins, tables, titles
from tasks import experiment_table

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


def explanation_table(paired: pd.DataFrame) -> pd.DataFrame:
  """What other step sizes and thresholds make of the perceptron's rows.

  Args:
    paired: From `pairs.paired_runs`.

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
        'seeds': tables.num_seeds(found['ours'][0]),
      }
      for found in _explanations(paired)
    ]
  )


def nearest_explanations(paired: pd.DataFrame) -> str:
  """For each row of the perceptron, what comes nearest to its two drops.

  Near is the sum of the distances of the two drops from the paper's. Where,
  with nothing changed, both of the paper's may be those of one more seed of
  ours, no explanation is needed. In words; empty where no row has two
  explanations to choose from.
  """
  found = [f for f in _explanations(paired) if None not in f['ours']]
  words = []
  for data in dict.fromkeys(f['data'] for f in found):
    own = [f for f in found if f['data'] == data]
    best = min(own, key=_distance)
    if len(own) > 1 and any(
      f['is_plain'] and _is_as_in_the_paper(f) for f in own
    ):
      words.append(
        f"on {data} neither of the paper's drops is outside of the range in "
        'which one more run of ours is expected, so that none is needed'
      )
    elif len(own) > 1:
      words.append(
        f'on {data} η_l = {best["rate"]:g} with c = {best["norm"]:.3f}'
        f'{best["mark"]}, which is {_distance(best):.2f} points away in sum'
      )
  return '; '.join(words)


def covered_drops(paired: pd.DataFrame) -> str:
  """For each way to choose c, the data on which it has the paper's two drops.

  It has them where, at some η_l and T that were run with three seeds, both may
  be those of one more seed of ours. In words; empty where no way was run on two
  data.
  """
  found = [f for f in _explanations(paired) if None not in f['ours']]
  words = []
  for mark, way in _WAYS.items():
    own = [f for f in found if f['mark'] == mark]
    data = dict.fromkeys(f['data'] for f in own)
    if len(data) > 1:
      covered = [
        name
        for name in data
        if any(f['data'] == name and _is_as_in_the_paper(f) for f in own)
      ]
      words.append(f'with {way} on {" and ".join(covered) or "none"}')
  return '; '.join(words)


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
        'row': name,
        'data': titles.DATA_NAMES[experiment_table.ROWS[name].split.task],
        'rate': part['client_learning_rate'].iloc[0],
        'norm': part['clipping_norm'].mean(),
        'mark': _AVERAGE_MARK if of_average else '',
        'is_plain': variants == '',
        'T': part['num_rounds'].iloc[0],
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


def _is_as_in_the_paper(found: dict[str, Any]) -> bool:
  """Whether both of the paper's drops are where a new seed of ours may be."""
  return all(
    ours.num_seeds >= margins.MIN_SEEDS
    and abs(ours.mean - paper) <= margins.prediction_margin(ours)
    for ours, paper in zip(found['ours'], found['paper'], strict=True)
  )


def _distance(found: dict[str, Any]) -> float:
  return sum(
    abs(ours.mean - paper)
    for ours, paper in zip(found['ours'], found['paper'], strict=True)
  )
