"""What is kept of the clients' updates: a summary a round, and some in full.

The numbers are exact, so they are for simulations alone: a private deployment
releases none of them.
"""

import collections
import csv
import math
import os
import pathlib
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tff_clipping import atomic_files

SUMMARY_FIELDS = (
  'update_norm_mean',
  'update_norm_std',
  'update_norm_max',
  'clipped_fraction',
)

EstimateFn = Callable[[Any, int, Sequence[str]], ArrayLike]


class UpdateRecords:
  """Summaries of `build_fed_avg`'s update measurements, and files of them.

  For each chosen round t (from 0, as in the paper's figures) there is a file
  `round_0000t.csv` with a row for each client: its id, the norm of its update
  before clipping, the angle to the last global update in degrees, and the
  factor alpha = min(1, c / norm) that clipping scales it by. Where the process
  clips models and so measures `model_norm`, the factor is that of the model.
  With estimates there is one more column, `expected_norm`: ||E[Delta x_i]||, of
  which the theorem's alpha~ is made. The last row, with the id 'mean', is that
  of the aggregate; it has neither factor nor expected norm.
  """

  def __init__(
    self,
    folder: str | os.PathLike,
    *,
    rounds: Collection[int],
    clipping_norm: float | None,
    clips_otherwise: bool = False,
    expected_norms: EstimateFn | None = None,
  ):
    """Initializes the records.

    Args:
      folder: Where the files are; made when the first is written.
      rounds: The rounds t to write, from 0.
      clipping_norm: The clipping norm c, `None` without clipping.
      clips_otherwise: Whether the process does something else to an update than
        cutting it to c, or nothing if there is no c. The factors are NaN then.
      expected_norms: Returns the `expected_norm` of each client of a cohort, in
        its order, from the model weights x^t, t and the ids; for example by
        `tff_clipping.learning.build_update_estimates`. `None` for no estimates.
    """
    self._folder = pathlib.Path(folder)
    self._rounds = frozenset(rounds)
    self._clipping_norm = clipping_norm
    self._clips_otherwise = clips_otherwise
    self._expected_norms = expected_norms

  def estimate(
    self, round_num: int, cohort: Sequence[str], weights: Any
  ) -> np.ndarray | None:
    """Returns the expected norms of a chosen round's clients.

    Args:
      round_num: The number of the round, from 1.
      cohort: The ids of the clients.
      weights: The model weights before the round, x^t.

    Returns:
      A value for each client, in order; `None` for other rounds and without
      estimates. It takes as long as some rounds, so it is not part of `record`.
    """
    if self._expected_norms is None or round_num - 1 not in self._rounds:
      return None
    return np.asarray(
      self._expected_norms(weights, round_num - 1, cohort), np.float64
    )

  def record(
    self,
    round_num: int,
    cohort: Sequence[str],
    metrics: Mapping[str, Any],
    expected_norms: np.ndarray | None = None,
  ) -> collections.OrderedDict[str, float]:
    """Writes a round if it is chosen, and returns its summary.

    Args:
      round_num: The number of the round, from 1: the paper's t + 1.
      cohort: The ids of the clients, in the order of the measurements.
      metrics: The metrics of the process, with `update_norm` and
        `angle_degrees` under `client_work` and `aggregate`.
      expected_norms: What `estimate` returned for the round.

    Returns:
      A value for each of `SUMMARY_FIELDS`; NaN where there is none.
    """
    measured = {
      name: np.asarray(values, np.float64)
      for name, values in metrics['client_work'].items()
    }
    norms = measured['update_norm']
    to_clip = measured.get('model_norm', norms)
    if round_num - 1 in self._rounds:
      columns: dict[str, Sequence[Any] | np.ndarray] = dict(
        client_id=cohort,
        update_norm=norms,
        angle_degrees=measured['angle_degrees'],
        clip_factor=self._clip_factors(to_clip),
      )
      if expected_norms is not None:
        columns['expected_norm'] = expected_norms
      self._write(round_num - 1, columns, metrics['aggregate'])
    clipped = (
      float(np.mean(~(to_clip <= self._clipping_norm)))
      if self._clipping_norm is not None
      and not self._clips_otherwise
      and len(norms)
      else math.nan
    )
    values = (
      (float(norms.mean()), float(norms.std()), float(norms.max()), clipped)
      if len(norms)
      else (math.nan,) * 4
    )
    return collections.OrderedDict(zip(SUMMARY_FIELDS, values, strict=True))

  def _clip_factors(self, norms: np.ndarray) -> np.ndarray:
    if self._clips_otherwise:
      return np.full_like(norms, np.nan)
    if self._clipping_norm is None:
      return np.ones_like(norms)
    return np.minimum(
      1.0, self._clipping_norm / np.maximum(norms, np.finfo(np.float64).tiny)
    )

  def _write(
    self,
    t: int,
    columns: Mapping[str, Sequence[Any] | np.ndarray],
    aggregate: Mapping[str, Any],
  ) -> None:
    self._folder.mkdir(parents=True, exist_ok=True)
    path = self._folder / f'round_{t:05d}.csv'
    with (
      atomic_files.replacing(path) as new,
      open(new, 'w', newline='') as file,
    ):
      writer = csv.writer(file)
      writer.writerow(columns)
      for row in zip(*columns.values(), strict=True):
        writer.writerow(row)
      mean = ['mean', aggregate['update_norm'], aggregate['angle_degrees']]
      writer.writerow(mean + [''] * (len(columns) - len(mean)))
