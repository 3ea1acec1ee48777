"""Runs of the table of experiments beside those that they are compared with.

A run is compared with the run of another algorithm that has its row, scale,
seed and variants: `NamedRun.beside`.
"""

import dataclasses
import math

import pandas as pd

_COLUMNS = (
  'row scale algorithm variants seed num_rounds client_learning_rate '
  'clipping_norm target_epsilon plain accuracy drop dp_drop gain path_ratio'
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
    without variants), and path_ratio (how far it moved in all rounds over how
    far FedAvg did); NaN where the other run is not there. The columns of
    `privacy.json` are there as in `frame.Frames`.

  Raises:
    ValueError: Two runs are the same one of the table.
  """
  known = runs[runs['is_complete'] & runs['named'].notna()]
  names = [named.name for named in known['named']]
  places = pd.Series(known.index, index=names)
  for name, same in places.groupby(level=0):
    if len(same) > 1:
      raise ValueError(
        f'`runs` must have each run of the table once, found {name} in '
        f'{" and ".join(same)}.'
      )
  accuracies = dict(zip(names, known['final_accuracy'], strict=True))
  lengths = {
    name: path[-1] if path else math.nan
    for name, path in zip(names, known['path'], strict=True)
  }
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
        'path_ratio': lengths[named.name] / lengths.get(fed_avg, math.nan),
      }
    )
  return pd.DataFrame(lines, names, None if lines else _COLUMNS)
