"""The searches for learning rates."""

import pathlib

import pandas as pd

from analysis import margins


def search_table(folder: pathlib.Path, runs: pd.DataFrame) -> pd.DataFrame:
  """The searches for learning rates, as their tables have them.

  Args:
    folder: Where there is a folder with a `sweep.csv` for each.
    runs: The runs, which say what rate is used.
  """
  lines = []
  for path in sorted(folder.glob('*/sweep.csv')):
    sweep = pd.read_csv(path).dropna(subset=['final_accuracy'])
    rates, accuracies = sweep['client_learning_rate'], sweep['final_accuracy']
    own = runs['model'] + '_' + runs['task'] == path.parent.name
    used = sorted(set(runs.loc[own, 'client_learning_rate']))
    lines.append(
      {
        'model and data': path.parent.name.replace('_', ' '),
        'T': int(sweep['rounds'].max()),
        'η_l: accuracy (%)': ', '.join(
          f'{rate:g}: {100 * accuracy:.1f}'
          for rate, accuracy in zip(rates, accuracies, strict=True)
        ),
        'highest': f'{rates[accuracies.idxmax()]:g}',
        'used': ', '.join(f'{rate:g}' for rate in used) or margins.MISSING,
      }
    )
  return pd.DataFrame(lines)
