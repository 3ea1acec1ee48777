"""Prints runs of one's own beside the published ones of the same setting.

Command: `python -m analysis.compare_to_published RUN...`. The exit code is 1
where a figure is outside of what the spread of the published seeds allows, or
nothing is published of a run's setting.
"""

import pathlib
import sys
from collections.abc import Sequence

import numpy as np
import pandas as pd
from absl import app, flags

from analysis import markup, stats

_PUBLISHED = flags.DEFINE_string(
  'published', 'results', 'The folder of the published runs.'
)

# What two runs share that differ in the seed alone. A threshold that is taken
# from the FedAvg run of its seed is no part of it.
_KEYS = ['series', 'algorithm', 'sampling', 'target_epsilon', 'delta']
_KEYS += ['aggregator', 'clipping', 'aggregation', 'mechanism', 'accountant']
_KEYS += ['given_norm', 'is_audited', 'variants']


def compare(table: pd.DataFrame, published: pd.DataFrame) -> pd.DataFrame:
  """Sets each run of a table beside the finished published runs like it.

  Returns:
    The table with published (an `Estimate`), limit (see
    `stats.prediction_margin`) and is_within (whether the run is finished and
    its figure within the limit).
  """
  finished = published[published['is_complete']]
  known = finished['final_score'].groupby(_keys(finished)).agg(list)
  found = [stats.estimate(known.get(key, ())) for key in _keys(table)]
  limits = np.array([stats.prediction_margin(each) for each in found])
  differences = (table['final_score'] - [each.mean for each in found]).abs()
  return table.assign(
    published=pd.Series(found, table.index, dtype=object),
    limit=limits,
    # A figure is printed with two decimals.
    is_within=table['is_complete'] & (differences <= limits + 0.005),
  )


def _keys(table: pd.DataFrame) -> pd.Series:
  norms = table['clipping_norm'].mask(table['is_norm_from_run'])
  # Of runs without noise too.
  sampling = table['settings'].map(lambda settings: settings.get('sampling'))
  keyed = table.assign(given_norm=norms, sampling=sampling)
  keyed = keyed.reindex(columns=_KEYS)
  return keyed.astype(object).where(keyed.notna(), '').agg(tuple, axis=1)


def main(argv: Sequence[str]) -> None:
  if len(argv) < 2:
    raise app.UsageError('Give at least one run folder.')
  with markup.errors_shown():
    found = stats.read_folders(argv[1:])
    if found.table.empty:
      reasons = '; '.join(f'{name}: {why}' for name, why in found.left_out)
      raise ValueError(f'no folder of a run was given: {reasons}.')
    if not pathlib.Path(_PUBLISHED.value).is_dir():
      raise ValueError(
        '`published` must be the folder of the published runs, found no '
        f'folder {_PUBLISHED.value}.'
      )
    published = stats.read_results(_PUBLISHED.value).table
  compared = compare(found.table, published)
  within = compared['is_within'].map({True: 'yes', False: 'NO'})
  is_known = compared['published'].map(bool)
  compared['within'] = within.where(is_known, 'nothing to compare with')
  shown = stats.cells(
    compared.reset_index(),
    {
      'run': ('run', ''),
      'algorithm': ('algorithm_name', ''),
      'this run (%)': ('final_score', '.2f'),
      'published (%)': ('published', ''),
      'may differ by': ('limit', '.2f'),
      'within': ('within', ''),
    },
  )
  left_out = [f'left out: {name}: {why}' for name, why in found.left_out]
  markup.show('\n'.join([shown.to_string(index=False), *left_out]), sys.stdout)
  if left_out or not compared['is_within'].all():
    sys.exit(1)


if __name__ == '__main__':
  app.run(main)
