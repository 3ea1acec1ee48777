"""Prints runs of one's own beside the published ones of the same setting.

Command: `python -m analysis.compare_to_published RUN...`. The exit code is 1
where a figure is outside of what the spread of the published seeds allows, or
nothing is published of a run's setting.
"""

import math
import sys
from collections.abc import Sequence

import numpy as np
import pandas as pd
from absl import app, flags

from analysis import markup, stats, tables

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
  """Returns each run of a table beside the finished published runs like it.

  Returns:
    With the names of the runs as index, columns algorithm, accuracy (percent),
    published (an `Estimate`, or None), limit (how far a new seed may be from
    the published mean, in points: the 95 % prediction interval, and one point
    from one published seed) and is_within (whether it is finished and within
    the limit).
  """
  finished = published[published['is_complete']]
  known = finished['final_score'].groupby(_keys(finished)).agg(list)
  found = [stats.estimate(known.get(key, ())) for key in _keys(table)]
  means = [each.mean if each else math.nan for each in found]
  limits = [
    math.nan
    if each is None
    else stats.prediction_margin(each)
    if each.num_seeds > 1
    else _WITHOUT_SPREAD
    for each in found
  ]
  # A figure is printed with two decimals.
  is_near = (table['final_score'] - means).abs() <= np.array(limits) + 0.005
  return pd.DataFrame(
    {
      'algorithm': table['algorithm_name'],
      'accuracy': table['final_score'],
      'published': pd.Series(found, table.index, dtype=object),
      'limit': limits,
      'is_within': table['is_complete'] & is_near,
    }
  )


def _keys(table: pd.DataFrame) -> pd.Series:
  norms = table['clipping_norm'].where(table['clips'] == 'models')
  keyed = table.assign(model_norm=norms)[_KEYS]
  return keyed.astype(object).where(keyed.notna(), '').agg(tuple, axis=1)


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
  shown = tables.cells(
    compared.reset_index().replace({'is_within': {True: 'yes', False: 'NO'}}),
    {
      'run': ('run', ''),
      'algorithm': ('algorithm', ''),
      'this run (%)': ('accuracy', '.2f'),
      'published (%)': ('published', '±'),
      'may differ by': ('limit', '.2f'),
      'within': ('is_within', ''),
    },
  )
  left_out = [f'left out: {name}: {why}' for name, why in found.left_out]
  markup.show('\n'.join([markup.text_table(shown), *left_out]), sys.stdout)
  if left_out or not compared['is_within'].all():
    sys.exit(1)


if __name__ == '__main__':
  app.run(main)
