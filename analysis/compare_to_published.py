"""Prints runs of one's own beside the published ones of the same setting.

Command: `python -m analysis.compare_to_published RUN...`. The exit code is 1
where a figure is outside of what the spread of the published seeds allows, or
nothing is published of a run's setting.
"""

import math
import sys
from collections.abc import Sequence

import pandas as pd
from absl import app, flags

from analysis import markup, stats

_PUBLISHED = flags.DEFINE_string(
  'published', 'results', 'The folder of the published runs.'
)

# What one published seed cannot say; in points.
_WITHOUT_SPREAD = 1.0
# What two runs share that differ in the seed alone. The threshold on updates is
# no part of it: it is taken from the FedAvg run of its seed.
_KEYS = ['series', 'algorithm', 'sampling', 'target_epsilon', 'delta']
_KEYS += ['model_norm', 'is_audited', 'variants']


def compare(table: pd.DataFrame, published: pd.DataFrame) -> pd.DataFrame:
  """Returns each run beside the published runs of its setting.

  Args:
    table: The rows of the runs to compare.
    published: The rows of the published runs; those that are not finished do
      not count.

  Returns:
    With the names of the runs as index, columns algorithm, accuracy (percent),
    published (an `Estimate`, or None), limit (how far a new seed may be from
    the published mean, in points: the 95 % prediction interval, and one point
    from one published seed) and is_within (whether it is finished and within
    the limit).
  """
  finished = published[published['is_complete']]
  keys = _keys(finished)
  lines = []
  for key, (_, run) in zip(_keys(table), table.iterrows(), strict=True):
    same = finished[[each == key for each in keys]]
    found = stats.estimate(same['final_score'])
    limit = math.nan
    if found is not None:
      limit = stats.prediction_margin(found)
      limit = _WITHOUT_SPREAD if math.isnan(limit) else limit
    mean = math.nan if found is None else found.mean
    # A figure is printed with two decimals.
    is_near = abs(run['final_score'] - mean) <= limit + 0.005
    lines.append(
      {
        'algorithm': run['algorithm_name'],
        'accuracy': run['final_score'],
        'published': found,
        'limit': limit,
        'is_within': bool(run['is_complete'] and is_near),
      }
    )
  return pd.DataFrame(lines, table.index)


def _keys(table: pd.DataFrame) -> list[tuple]:
  norms = table['clipping_norm'].where(table['clips'] == 'models')
  keyed = table.assign(model_norm=norms)[_KEYS].astype(object)
  return list(keyed.where(keyed.notna(), None).itertuples(index=False))


def main(argv: Sequence[str]) -> None:
  if len(argv) < 2:
    raise app.UsageError('Give at least one run folder.')
  try:
    found = stats.read_folders(argv[1:])
    if found.table.empty:
      raise ValueError('no folder of a run was given.')
    published = stats.read_results(_PUBLISHED.value).table
  except (ValueError, OSError) as error:
    markup.show(f'error: {error}', sys.stderr)
    sys.exit(2)
  compared = compare(found.table, published)
  shown = pd.DataFrame(
    {
      'run': compared.index,
      'algorithm': compared['algorithm'],
      'this run (%)': [
        stats.number(value, '.2f') for value in compared['accuracy']
      ],
      'published (%)': [
        str(found or stats.MISSING) for found in compared['published']
      ],
      'may differ by': [
        stats.number(limit, '.2f') for limit in compared['limit']
      ],
      'within': compared['is_within'].map({True: 'yes', False: 'NO'}),
    }
  )
  left_out = [f'left out: {name}: {why}' for name, why in found.left_out]
  markup.show('\n'.join([markup.text_table(shown), *left_out]))
  if left_out or not compared['is_within'].all():
    sys.exit(1)


if __name__ == '__main__':
  app.run(main)
