"""How a table is made of groups of runs that differ in the seed alone."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pandas as pd

from analysis.paper.tables import cell
from analysis.runs import margins

_OTHER_BUDGET = 'epsilon_5'

# What a cell says of a group of runs.
Read = Callable[[pd.DataFrame], Any]


def pivot(
  runs: pd.DataFrame, keys: Sequence[Any], columns: Mapping[str, Read]
) -> pd.DataFrame:
  """A row for each group of runs, in the order of the first of each."""
  return pd.DataFrame(
    [
      {title: read(part) for title, read in columns.items()}
      for _, part in runs.groupby(keys, sort=False)
    ]
  )


def first(column: str, spec: str | None = None) -> Read:
  """That of the first run, as a number in text with a format."""

  def read(part: pd.DataFrame) -> Any:
    value = part[column].iloc[0]
    return value if spec is None else margins.number(value, spec)

  return read


def over_seeds(column: str, missing: str = cell(None)) -> Read:
  """The mean over seeds and its margin."""
  return lambda part: str(margins.estimate(part[column]) or missing)


def without_budget(runs: pd.DataFrame) -> pd.Series:
  """The variants of runs but that of another ε."""
  return runs['variants'].map(
    lambda names: ','.join(x for x in names.split(',') if x != _OTHER_BUDGET)
  )
