"""CE-FedAvg beside FedAvg at the round by which that one has moved as far.

Clipping makes steps shorter, so that a part of a drop is training that is still
to come. FedAvg, once its steps add up to those of CE-FedAvg at T, has had as
much of it.
"""

import math

import numpy as np
import pandas as pd


def with_equal_path(runs: pd.DataFrame, rounds: pd.DataFrame) -> pd.DataFrame:
  """Adds how good FedAvg was where it had moved as far as each run at T.

  Args:
    runs: A row for each run, from `baselines.with_baselines`.
    rounds: Their rounds, as in `frame.Frames`.

  Returns:
    The rows with the columns `equal_path_accuracy`, that of `fed_avg_run`, with
    straight lines between its evaluations, and `equal_path_lead`, the run's own
    final accuracy less that; NaN where no updates were recorded.
  """
  evaluated = rounds[rounds['accuracy'].notna()].groupby('run')
  accuracies = []
  for _, run in runs.iterrows():
    name = run['fed_avg_run']
    fed_avg_path = runs.at[name, 'path'] if name else ()
    if not (run['path'] and fed_avg_path):
      accuracies.append(math.nan)
      continue
    known = evaluated.get_group(name)
    equal_round = np.interp(
      run['path'][-1], fed_avg_path, np.arange(len(fed_avg_path))
    )
    accuracies.append(
      float(np.interp(equal_round, known['round_num'], known['accuracy']))
    )
  return runs.assign(
    equal_path_accuracy=accuracies,
    equal_path_lead=runs['final_accuracy'] - np.array(accuracies, float),
  )
