"""What is kept of the clients' updates: a summary a round, and some in full.

The numbers are exact, so they are for simulations alone: a private deployment
releases none of them.
"""

import collections
import csv
import os
import pathlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from tff_clipping.programs import storage

SUMMARY_FIELDS = (
  'update_norm_mean',
  'update_norm_std',
  'update_norm_max',
  'clipped_fraction',
)


class UpdateRecords:
  """Summaries of `build_fed_avg`'s update measurements, and files of them.

  For each chosen round t (from 0, as in the paper's figures) there is a file
  `round_0000t.csv` with a row for each client: its id, the norm of its update
  before clipping, the angle to the last global update in degrees, and the
  factor alpha = min(1, c / norm) that clipping scales it by. A last row, with
  the id 'mean' and no factor, is of the aggregate.
  """

  def __init__(
    self,
    folder: str | os.PathLike,
    *,
    rounds: Collection[int],
    clipping_norm: float | None,
  ):
    """Initializes the records.

    Args:
      folder: Where the files are; made when the first is written.
      rounds: The rounds t to write, from 0.
      clipping_norm: The clipping threshold c, `None` without clipping.
    """
    self._folder = pathlib.Path(folder)
    self._rounds = frozenset(rounds)
    self._clipping_norm = clipping_norm

  def record(
    self, round_num: int, cohort: Sequence[str], metrics: Mapping[str, Any]
  ) -> collections.OrderedDict[str, float]:
    """Writes a round if it is chosen, and returns its summary.

    Args:
      round_num: The number of the round, from 1: the paper's t + 1.
      cohort: The ids of the clients, in the order of the measurements.
      metrics: The metrics of the process, with `update_norm` and `update_angle`
        under `client_work` and `aggregate`.

    Returns:
      A value for each of `SUMMARY_FIELDS`; NaN where there is none.
    """
    norms = np.asarray(metrics['client_work']['update_norm'], np.float64)
    angles = np.asarray(metrics['client_work']['update_angle'], np.float64)
    if round_num - 1 in self._rounds:
      self._write(round_num - 1, cohort, norms, angles, metrics['aggregate'])
    clipped = (
      np.mean(~(norms <= self._clipping_norm))
      if self._clipping_norm is not None and len(norms)
      else np.nan
    )
    values = (
      (np.mean(norms), np.std(norms), np.max(norms), clipped)
      if len(norms)
      else (np.nan,) * 4
    )
    return collections.OrderedDict(
      zip(SUMMARY_FIELDS, map(float, values), strict=True)
    )

  def _write(self, t: int, cohort, norms, angles, aggregate) -> None:
    self._folder.mkdir(parents=True, exist_ok=True)
    factors = np.ones_like(norms)
    if self._clipping_norm is not None:
      factors = np.minimum(
        1.0, self._clipping_norm / np.maximum(norms, np.finfo(np.float64).tiny)
      )
    path = self._folder / f'round_{t:05d}.csv'
    with (
      storage.replacing(path) as new,
      open(new, 'w', newline='') as file,
    ):
      writer = csv.writer(file)
      writer.writerow(
        ['client_id', 'update_norm', 'angle_degrees', 'clip_factor']
      )
      for row in zip(cohort, norms, angles, factors, strict=True):
        writer.writerow(row)
      writer.writerow(
        ['mean', aggregate['update_norm'], aggregate['update_angle'], '']
      )
