"""DP-FedAvg of a small cohort with the noise on the mean that P = 80 has.

At one ε and one P / N a smaller cohort has more noise on its mean update. These
runs have the noise of the paper's P there, and so a larger ε, which holds.
"""

import dataclasses

import pandas as pd

from analysis import baselines, evidence, frame
from tasks.experiments import experiment_table

_VARIANTS = tuple(
  f'noise_{noise_multiplier}'
  for noise_multiplier, _, _ in experiment_table.PAPERS_NOISE
)
_TITLE = '{}, the noise of P = 80'


def noise_lines(frames: frame.Frames) -> pd.DataFrame:
  """Each row of the paper at each scale that was run with that noise.

  Args:
    frames: All runs.

  Returns:
    As from `evidence.paper_lines`, with these runs in place of DP-FedAvg's, and
    scales that are named for the noise; empty where there are none.
  """
  runs = frames.runs
  kept = runs['variants'].isin(_VARIANTS) | (
    (runs['variants'] == '') & ~runs['is_private']
  )
  lines = evidence.paper_lines(
    dataclasses.replace(frames, runs=baselines.with_baselines(runs[kept]))
  )
  if lines.empty:
    return lines
  lines = lines[lines['table'].notna() & lines['dp_fed_avg'].notna()]
  return lines.assign(scale_name=lines['scale_name'].map(_TITLE.format))
