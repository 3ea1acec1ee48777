"""Local steps in bfloat16 beside those in float32."""

import pandas as pd

from analysis import margins, tables, titles

_VARIANT = 'bfloat16'


def accuracy_table(paired: pd.DataFrame) -> pd.DataFrame:
  """What local steps in bfloat16 change of the accuracy, seed by seed.

  Args:
    paired: From `pairs.paired_runs`.

  Returns:
    Columns for a table; a row for each row, scale and algorithm that was run in
    both.
  """
  found = paired[(paired['variants'] == _VARIANT) & paired['gain'].notna()]
  return pd.DataFrame(
    [
      {
        'row': row,
        'scale': scale,
        'algorithm': titles.ALGORITHM_NAMES[algorithm],
        'float32 (%)': tables.cell(
          margins.estimate(part['accuracy'] - part['gain'])
        ),
        'bfloat16 (%)': tables.cell(margins.estimate(part['accuracy'])),
        'difference (points)': tables.cell(margins.estimate(part['gain'])),
        'seeds': len(part),
      }
      for (row, scale, algorithm), part in found.groupby(
        ['row', 'scale', 'algorithm'], sort=False
      )
    ]
  )
