"""What `tasks.reproduce` makes and results/ does not have."""

import pandas as pd

from analysis import titles
from tasks.experiments.reproduction_runs import REPRODUCTION, plan_runs


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
