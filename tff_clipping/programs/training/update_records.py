"""Files with the update of each client, of chosen rounds.

The numbers are exact, so they are for simulations alone: a private deployment
releases none of them.
"""

import csv
import math
import os
import pathlib
from collections.abc import Collection, Mapping

import numpy as np

from tff_clipping import atomic_files, storage_errors
from tff_clipping.programs.training import watchers


class UpdateRecords(watchers.RoundWatcher):
  """Files of what `build_fed_avg` measures with `measure_updates`.

  For each chosen round t (from 0, as in the paper's figures) there is a file
  `round_0000t.csv` with a row for each client: its id, the norm of its update
  before clipping, the angle to the last global update in degrees, and the
  factor alpha = min(1, c / norm) that clipping scales it by. Where the process
  clips models and so measures `model_norm`, the factor is that of the model.
  The last row, with the id 'mean', is that of the aggregate; it has no factor.

  The metrics of every round get `clipped_fraction`, the share of the clients
  with a factor below 1, where there is a c to compare with. What is not finite
  counts as clipped.
  """

  sees_clients = True

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
      clipping_norm: The clipping norm c; `None` without clipping, and NaN where
        updates are clipped by another rule: then the factors are NaN too.
    """
    self._folder = pathlib.Path(folder)
    self._rounds = frozenset(rounds)
    self._clipping_norm = math.inf if clipping_norm is None else clipping_norm

  def measure(self, done: watchers.Round) -> Mapping[str, float]:
    """Returns the share of clipped clients; see the base class.

    Raises:
      ValueError: If the process does not measure updates.
    """
    if done.work and 'aggregate' not in done.work.measured:
      raise ValueError(
        '`process` must measure updates for `UpdateRecords`: '
        '`build_fed_avg(..., measure_updates=True)`.'
      )
    if not math.isfinite(self._clipping_norm) or not done.work:
      return {}
    norms = _norms_to_clip(done.work)
    if not norms.size:
      return {}
    return {'clipped_fraction': float(np.mean(~(norms <= self._clipping_norm)))}

  def record(self, done: watchers.Round) -> None:
    """Writes the file of a chosen round; see the base class.

    Raises:
      StorageError: If it cannot be written.
    """
    t = done.round_num - 1
    if done.work is None or t not in self._rounds:
      return
    clients = done.work.measured['client_work']
    mean = done.work.measured['aggregate']
    norms = np.maximum(_norms_to_clip(done.work), np.finfo(np.float64).tiny)
    columns = (
      done.work.cohort,
      np.asarray(clients['update_norm'], np.float64),
      np.asarray(clients['angle_degrees'], np.float64),
      np.minimum(1.0, self._clipping_norm / norms),
    )
    path = self._folder / f'round_{t:05d}.csv'
    with storage_errors.writing(f'The updates of round {done.round_num}'):
      self._folder.mkdir(parents=True, exist_ok=True)
      with (
        atomic_files.replacing(path) as new,
        open(new, 'w', newline='') as file,
      ):
        writer = csv.writer(file)
        writer.writerow(
          ['client_id', 'update_norm', 'angle_degrees', 'clip_factor']
        )
        writer.writerows(zip(*columns, strict=True))
        writer.writerow(
          ['mean', mean['update_norm'], mean['angle_degrees'], '']
        )


def _norms_to_clip(work: watchers.ClientsWork) -> np.ndarray:
  """Returns the norms of what is clipped: of models, or else of updates."""
  measured = work.measured['client_work']
  norms = measured.get('model_norm', measured['update_norm'])
  return np.asarray(norms, np.float64)
