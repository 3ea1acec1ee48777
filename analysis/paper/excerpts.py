"""What a page shows of tables that it has in full in a file.

`<!--=excerpts.NAME-->` in a page stands for `NAME(found)`.
"""

import dataclasses

import pandas as pd

from analysis.paper import pivots, systems
from analysis.paper.evidence import Evidence
from analysis.runs import margins


def mechanisms(found: Evidence) -> pd.DataFrame:
  """The accuracies of `pivots.mechanisms`, with a column for each data and ε.

  Of the rows of the paper's tables: others have the same data.

  A row says which T and accountant it has where others of its data and cohorts
  have another.
  """
  runs = found.frames.runs
  of_paper = runs[runs['row'].isin(found.lines['row'])]
  frames = dataclasses.replace(found.frames, runs=of_paper)
  table = pivots.mechanisms(dataclasses.replace(found, frames=frames))
  if table.empty:
    return table
  usual = table.groupby('data')['T'].transform(lambda each: each.mode()[0])
  others = [
    '' if rounds == most else f', T = {rounds}'
    for rounds, most in zip(table['T'], usual, strict=True)
  ]
  ways = table['cohorts, noise']
  accountants = table.groupby(ways)['accountant'].transform('nunique')
  ways = ways + (' (' + table['accountant'] + ')').where(accountants > 1, '')
  ways = ways + others
  columns = table['data'] + ', ε = ' + table['ε'] + ' (%)'
  # Two models on the same data would share a cell.
  wide = table.assign(way=ways, column=columns).pivot_table(
    'accuracy (%)', 'way', 'column', aggfunc=' and '.join
  )
  wide = wide.reindex(index=ways.unique(), columns=columns.unique())
  wide = wide.fillna(margins.MISSING)
  return wide.rename_axis(index='cohorts, noise', columns=None).reset_index()


def systems_by_budget(found: Evidence) -> pd.DataFrame:
  """The accuracies of `systems.table`, with a column for each data and ε.

  What has no noise has the same accuracy at each ε.
  """
  table = systems.table(found)
  if table.empty:
    return table
  protects = table['protects'] + table['against'].map(
    lambda whom: ', from the server too' if 'server' in whom else ''
  )
  table = table.assign(protects=protects)
  keys = ['system', 'protects', 'neighbours', 'accountant']
  private = table[table['ε'] != margins.MISSING]
  budgets = private[['data', 'ε']].drop_duplicates()
  each = pd.concat(
    [
      table[table['ε'] == margins.MISSING].drop(columns='ε').merge(budgets),
      private,
    ]
  )
  columns = each['data'] + ', ε = ' + each['ε'] + ' (%)'
  wide = each.assign(column=columns).set_index([*keys, 'column'])
  wide = wide['accuracy (%)'].unstack()[columns.unique()]
  wide = wide.fillna(margins.MISSING).rename_axis(columns=None).reset_index()
  places = wide['system'].map(systems.TITLES.index)
  return wide.iloc[places.argsort(kind='stable')]


def noise_of_systems(found: Evidence, data: str, epsilon: str) -> pd.DataFrame:
  """The noise in `systems.table` on some data, such as MNIST, at one ε.

  Of systems with the same noise there is the first.
  """
  table = systems.table(found)
  if table.empty:
    return table
  shown = table[table['data'].eq(data) & table['ε'].eq(epsilon)]
  noise = ['accountant', 'z', 'noise / c', 'noise / signal']
  return shown.drop_duplicates(noise)[['system', *noise[1:]]]
