"""All that the pages on the reproduction are made of."""

import dataclasses
import functools
import pathlib

import pandas as pd

from analysis.paper import findings, rows
from analysis.runs import experiments, frame


@dataclasses.dataclass(frozen=True, eq=False)
class Evidence:
  """The runs, and the paper's rows and findings by them.

  Attributes:
    frames: All runs but those of `systems`.
    systems: The runs of `experiments.SYSTEM_ROWS`, which have a table.
    lines: From `rows.paper_rows`, of the rows that are in the paper's tables.
    noisy: From `rows.noise_rows`.
  """

  frames: frame.Frames
  systems: frame.Frames
  lines: pd.DataFrame
  noisy: pd.DataFrame

  @property
  def runs(self) -> pd.DataFrame:
    """The finished runs."""
    return self.frames.runs[self.frames.runs['is_complete']]

  @functools.cached_property
  def compared(self) -> pd.DataFrame:
    """Every comparison, from `findings.with_counted`."""
    return findings.with_counted(
      pd.concat(
        [
          findings.comparisons(self.lines),
          findings.comparisons(self.noisy, findings.OF_NOISE),
        ],
        ignore_index=True,
      )
    )

  @property
  def counted(self) -> pd.DataFrame:
    """The comparisons that count: one for each pair of rows."""
    return self.compared[self.compared['counts']]


def read(results_dir: pathlib.Path) -> Evidence:
  """Reads the runs in a folder.

  Raises:
    ValueError: There is a run that cannot be read, or none of a row of the
      paper.
  """
  found = frame.read_results(results_dir)
  is_system = found.runs['row'].isin(experiments.SYSTEM_ROWS)
  frames = found.of(found.runs.index[~is_system])
  lines = rows.paper_rows(frames)
  if lines.empty or lines['table'].isna().all():
    raise ValueError(
      '`results_dir` must hold a finished run of a row of the paper, found '
      f'none in {results_dir}.'
    )
  return Evidence(
    frames,
    found.of(found.runs.index[is_system]),
    lines[lines['table'].notna()],
    rows.noise_rows(frames),
  )
