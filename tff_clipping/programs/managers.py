"""The release managers of a run: CSV, TensorBoard and the log."""

import os
import pathlib
from typing import Any

import tensorflow_federated as tff

from tff_clipping.programs import storage


def create_release_managers(
  *, metrics_path: str | os.PathLike, tensorboard_dir: str | os.PathLike
) -> list[tff.program.ReleaseManager]:
  """Returns managers that keep the metrics of every round.

  A row of the CSV file is on the disk when its release returns. The log shows
  the metrics from the verbosity of INFO on.

  Args:
    metrics_path: The CSV file; a run that is resumed goes on with it.
    tensorboard_dir: The folder of TensorBoard's files.

  Raises:
    StorageError: If the CSV file is not one of these, or a file could not be
      written.
  """
  metrics_path = pathlib.Path(metrics_path)
  with storage.writing('The metrics'):
    return [
      SyncedCSVReleaseManager(metrics_path),
      tff.program.TensorBoardReleaseManager(os.fspath(tensorboard_dir)),
      tff.program.LoggingReleaseManager(),
    ]


class SyncedCSVReleaseManager(tff.program.ReleaseManager):
  """`tff.program.CSVFileReleaseManager`, with rows that survive a power cut.

  The file is written anew for each row, so that it is never half a line. A
  release with a key that was released before takes the place of all rows from
  that key on: those of rounds that are run again.
  """

  def __init__(self, path: pathlib.Path):
    """Initializes the manager.

    Args:
      path: The CSV file, with the key in the column `round_num`.

    Raises:
      StorageError: If there is a file that is not one of these.
    """
    self._path = path
    # A program that was killed may have left some.
    self._remove_unfinished()
    try:
      self._manager = tff.program.CSVFileReleaseManager(
        os.fspath(path),
        save_mode=tff.program.CSVSaveMode.WRITE,
        key_fieldname='round_num',
      )
    except (
      ValueError,
      TypeError,
      tff.program.CSVKeyFieldnameNotFoundError,
    ) as e:
      raise storage.StorageError(
        f'The metrics {path} are damaged. Move the file away to go on without '
        f'the rounds in it: {e}'
      ) from e

  async def release(self, value: Any, key: int) -> None:
    """Releases the metrics of a round.

    Args:
      value: A structure of numbers.
      key: The number of the round.
    """
    try:
      await self._manager.release(value, key)
    except BaseException:
      self._remove_unfinished()
      raise
    storage.sync(self._path)
    storage.sync(self._path.parent)

  def _remove_unfinished(self) -> None:
    for path in self._path.parent.glob(f'{self._path.name}_temp*'):
      path.unlink()
