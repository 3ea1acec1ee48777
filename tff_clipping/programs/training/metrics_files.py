"""The metrics of a run, for CSV, TensorBoard, the log and release managers."""

import asyncio
import collections
import concurrent.futures
import contextlib
import csv
import io
import logging
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff
from tensorflow.core.framework import summary_pb2

from tff_clipping import atomic_files, storage_errors
from tff_clipping.programs.training.watchers import Round, RoundWatcher

_KEY = 'round_num'
_LOGGER = logging.getLogger(__name__)


class MetricsFiles(RoundWatcher):
  """Keeps the metrics of every round in files.

  The CSV file has the format of `tff.program.CSVFileReleaseManager`, which
  writes all rows again for each new row. A row survives a kill once the round
  is recorded, and a power cut once its checkpoint is written. A line that a
  crash cut short is dropped when the file is opened again.

  A round that comes again replaces all rows from this round on. But round 0
  never replaces rows of later rounds: it belongs to another run. And where a
  run goes on and only records its last round again, what was not measured anew
  stays in the row.

  The log shows the metrics from the verbosity of INFO on.
  """

  def __init__(
    self,
    metrics_path: str | os.PathLike,
    *,
    tensorboard_dir: str | os.PathLike | None = None,
  ):
    """Opens the files, or makes them.

    Args:
      metrics_path: The CSV file; a run that is resumed adds to it.
      tensorboard_dir: The folder of TensorBoard's files; there are none by
        default.

    Raises:
      StorageError: If the CSV file is not one of these, or a file could not be
        written.
    """
    self._path = pathlib.Path(metrics_path)
    self._fields: list[str] = [_KEY]
    self._rows: list[dict[str, Any]] = []
    # The bytes of the file as it was written: one of another size is replaced.
    self._size = 0
    self._writer: tf.summary.SummaryWriter | None = None
    with storage_errors.writing('The metrics'):
      if self._path.exists():
        self._read()
      else:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._replace(self._fields, [])
      if tensorboard_dir is not None:
        # With no queue, each round is there when it is recorded.
        self._writer = tf.summary.create_file_writer(
          os.fspath(tensorboard_dir), max_queue=0
        )

  def record(self, done: Round) -> None:
    """Writes the metrics of a round; see the base class.

    Raises:
      StorageError: If a file could not be written, or round 0 comes after rows
        of rounds.
    """
    with storage_errors.writing(f'The metrics of round {done.round_num}'):
      self._write_row(done)
      _LOGGER.info('Round %d: %s', done.round_num, dict(done.metrics))
      if self._writer is not None:
        with self._writer.as_default():
          tf.summary.experimental.write_raw_pb(
            _to_record(done.metrics), step=done.round_num
          )

  def sync(self) -> None:
    """Syncs the CSV file; see the base class.

    Raises:
      StorageError: If the file system refuses.
    """
    with storage_errors.writing('The metrics'):
      atomic_files.sync(self._path)

  def _write_row(self, done: Round) -> None:
    round_num = done.round_num
    last = self._rows[-1][_KEY] if self._rows else 0
    if round_num == 0 and last > 0:
      raise storage_errors.StorageError(
        f'The metrics {self._path} are of another run, up to round {last}, or '
        'of this one, whose checkpoints are gone: it begins anew. Give each '
        'run a folder of its own, for its checkpoints and its metrics, or '
        'move the file away.'
      )
    row: dict[str, Any] = {_KEY: round_num}
    if done.model_before is None:
      row = next((each for each in self._rows if each[_KEY] == round_num), row)
    # In the order of TFF's managers.
    for name in sorted(done.metrics.keys() - {_KEY}):
      value = np.array(done.metrics[name])
      if name not in row or not np.isnan(value).all():
        row = {**row, name: value.tolist()}
    rows = [before for before in self._rows if before[_KEY] < round_num]
    fields = [*dict.fromkeys([*self._fields, *row])]
    # Somebody else may have changed the file.
    is_as_written = (
      self._path.exists() and self._path.stat().st_size == self._size
    )
    if is_as_written and rows == self._rows and fields == self._fields:
      self._append(row)
    else:
      self._replace(fields, [*rows, row])
    self._fields, self._rows = fields, [*rows, row]

  def _append(self, row: Mapping[str, Any]) -> None:
    line = _to_lines(self._fields, [row])
    try:
      with open(self._path, 'ab') as file:
        file.write(line)
    except BaseException:
      with contextlib.suppress(OSError):
        os.truncate(self._path, self._size)
      raise
    self._size += len(line)

  def _replace(
    self, fields: Sequence[str], rows: Sequence[Mapping[str, Any]]
  ) -> None:
    heading = dict(zip(fields, fields, strict=True))
    with atomic_files.replacing(self._path) as new:
      size = new.write_bytes(_to_lines(fields, [heading, *rows]))
    self._size = size

  def _read(self) -> None:
    """Takes up the rows of an earlier program."""
    data = self._path.read_bytes()
    whole = data[: data.rfind(b'\n') + 1]
    try:
      reader = csv.DictReader(
        io.StringIO(whole.decode(), newline=''), strict=True
      )
      self._fields = list(reader.fieldnames or [])
      if _KEY not in self._fields:
        raise ValueError(f'there is no column {_KEY}.')
      for row in reader:
        if None in row or None in row.values():
          raise ValueError(f'line {reader.line_num} is not of its columns.')
        self._rows.append({**row, _KEY: int(row[_KEY])})
    except (ValueError, csv.Error) as e:
      raise storage_errors.StorageError(
        f'The metrics {self._path} are damaged. Move the file away to go on '
        f'without the rounds in it: {e}'
      ) from e
    self._size = len(whole)
    if whole != data:
      _LOGGER.warning(
        'The last line of %s was cut short and is left out: %r',
        self._path,
        data[len(whole) :],
      )


class ReleaseMetrics(RoundWatcher):
  """Gives the metrics of every round to release managers of TFF."""

  def __init__(self, *managers: tff.program.ReleaseManager):
    """Initializes the watcher.

    Args:
      *managers: Take the metrics, by column, with the number of the round as
        the key. A key that comes again takes the place of the one before.

    Raises:
      TypeError: If one is no release manager.
    """
    for manager in managers:
      if not isinstance(manager, tff.program.ReleaseManager):
        raise TypeError(
          '`managers` must be of `tff.program.ReleaseManager`, found '
          f'{type(manager).__name__}.'
        )
    self._managers = managers
    # A thread of its own, since the caller's may have a running loop, as in a
    # notebook. It is always the same: each new one keeps memory.
    self._thread = concurrent.futures.ThreadPoolExecutor(1)
    self._loop = asyncio.new_event_loop()
    self._loop.set_default_executor(concurrent.futures.ThreadPoolExecutor(1))

  def record(self, done: Round) -> None:
    """Releases the metrics of a round; see the base class.

    Raises:
      StorageError: If a file could not be written.
    """
    values = collections.OrderedDict(done.metrics)
    del values[_KEY]

    async def release() -> None:
      for manager in self._managers:
        await manager.release(values, done.round_num)

    with storage_errors.writing(f'The metrics of round {done.round_num}'):
      self._thread.submit(self._loop.run_until_complete, release()).result()


def _to_lines(
  fields: Sequence[str], rows: Sequence[Mapping[str, Any]]
) -> bytes:
  text = io.StringIO(newline='')
  csv.DictWriter(text, fields, restval='').writerows(rows)
  return text.getvalue().encode()


def _to_record(metrics: Mapping[str, Any]) -> bytes:
  """Returns one record of TensorBoard with all metrics of a round.

  `tff.program.TensorBoardReleaseManager` writes a record for each metric, which
  takes a hundredth of a round of a small model.
  """
  record = summary_pb2.Summary()
  for name, number in metrics.items():
    if name != _KEY:
      entry = record.value.add(
        tag=name, tensor=tf.make_tensor_proto(number, tf.float32)
      )
      entry.metadata.plugin_data.plugin_name = 'scalars'
  return record.SerializeToString()
