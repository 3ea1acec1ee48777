"""The store of what clients keep between rounds, on the trusted side's disk.

For each client the store has a structure of tensors, zeros until its first
round, with a version for each round in which it took part. Round t reads the
newest versions before t, so that a round that is run again reads the same. The
versions of a round are all there or all absent. Versions that no checkpoint
needs are dropped.

Nothing of the store is ever released: it is exact data of single clients.
"""

import collections
import contextlib
import hashlib
import json
import os
import pathlib
import re
import shutil
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow_federated as tff

from tff_clipping import atomic_files, storage_errors

_CONTENTS = 'states.json'
_ROUND = 'round.json'
# The last round before which versions were dropped.
_DROPPED = 'dropped'
_PREFIX = 'round_'
_NAME = re.compile(f'{_PREFIX}[0-9]+')
_UNFINISHED = 'unfinished'
_FORMAT = 1
_DIGEST_BYTES = 32


class DamagedStatesError(storage_errors.StorageError):
  """The store of what clients keep is damaged, or is of another run."""


def kept_type(process: Any) -> tff.Type | None:
  """Returns the type of what each client keeps; `None` if they keep nothing.

  If clients keep something, the process takes for each client a structure of
  `client` and `kept`, as `build_fed_avg` with a `KeepingStep` does.
  """
  signature = getattr(process.next, 'type_signature', None)
  if signature is None:
    return None
  client = getattr(signature.parameter[1], 'member', None)
  return getattr(client, 'kept', None)


class ClientStates:
  """The store of what the clients of one run keep.

  The versions of a round have the id of its outcome, which the saved state has
  too. So a store of another run, or of another draw of a round, is refused.
  """

  def __init__(
    self,
    folder: str | os.PathLike,
    process: tff.learning.templates.LearningProcess,
    client_ids: Sequence[str],
  ):
    """Opens a store, which is empty at first.

    Args:
      folder: Where it is; made if it is missing, for its owner alone.
      process: The process whose clients keep something.
      client_ids: The ids of all clients.

    Raises:
      TypeError: If an id is no string.
      ValueError: If clients keep nothing for `process`.
      StorageError: If the folder cannot be written, or holds a store of other
        clients or another process.
    """
    found = kept_type(process)
    if found is None:
      raise ValueError(
        '`process` must be one whose clients keep something, such as '
        '`build_fed_avg` with `local_step=steps.Scaffold(...)`, found one '
        f'whose clients are {process.next.type_signature.parameter[1]}.'
      )
    self._tensors = [
      (np.dtype(t.dtype.type), tuple(t.shape))
      for t in tff.structure.flatten(found)
    ]
    self._folder = pathlib.Path(folder)
    self._client_ids = frozenset(client_ids)
    for client_id in self._client_ids:
      if not isinstance(client_id, str):
        raise TypeError(f'`client_ids` must be strings, found {client_id!r}.')
    # Until `begin` or `resume`, nothing tells which versions are the run's.
    self._has_begun = False
    # By client, the rounds of its versions, in order.
    self._versions: dict[str, list[int]] = collections.defaultdict(list)
    with storage_errors.writing(f'The folder {self._folder}'):
      self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
      # A program that was killed may have left it.
      shutil.rmtree(self._folder / _UNFINISHED, ignore_errors=True)
    self._contents = self._read_contents()

  def begin(self, outcome_id: str) -> None:
    """Begins with zeros for all clients, under the id of round 0.

    Raises:
      DamagedStatesError: If the store has rounds of another run.
      StorageError: If it could not be written.
    """
    rounds = self._rounds()
    if rounds and self._contents.get('id') != outcome_id:
      raise DamagedStatesError(
        f'The states of clients in {self._folder} are of another run, which '
        f'has {len(rounds)} rounds there, and there is no checkpoint: use '
        'another folder.'
      )
    self._contents = self._expected_contents() | {'id': outcome_id}
    with storage_errors.writing('What the clients keep'):
      # Of a program that was killed before its first outcome was saved.
      self._remove_from(0)
      (self._folder / _DROPPED).unlink(missing_ok=True)
      with atomic_files.replacing(self._folder / _CONTENTS) as path:
        path.write_text(json.dumps(self._contents))
    self._has_begun = True

  def resume(self, round_num: int, outcome_id: str) -> None:
    """Goes on from a checkpoint, of this round and with this id.

    Raises:
      DamagedStatesError: If the store is not the one that was written with it.
    """
    found, dropped = self._contents.get('id'), 0
    with contextlib.suppress(OSError, ValueError):
      dropped = int((self._folder / _DROPPED).read_text())
    if round_num:
      found = self._read_round(round_num).get('id')
    if found != outcome_id:
      raise DamagedStatesError(
        f'The states of clients in {self._folder} are not those that were '
        f'written with the checkpoint of round {round_num}: they are of '
        'another run, or lost. Restore them from a copy, or start in another '
        'folder.'
      )
    if dropped > round_num:
      raise DamagedStatesError(
        f'The states of clients in {self._folder} are newer than the '
        f'checkpoint of round {round_num}: those before round {dropped} were '
        'dropped. Restore them from the same copy as the checkpoint.'
      )
    self._versions.clear()
    newest: dict[str, int] = {}
    for each in self._rounds():
      for path in self._path(each).iterdir():
        if path.name != _ROUND:
          self._versions[path.name].append(each)
      if each <= round_num:
        written = self._read_round(each).get('clients', ())
        newest.update(dict.fromkeys(written, each))
    for name, each in newest.items():
      # Only what a newer version has replaced is ever dropped.
      if each not in self._versions[name]:
        raise DamagedStatesError(
          f'{self._path(each) / name} is lost: restore the states of clients '
          'from the same copy as the checkpoint.'
        )
    self._has_begun = True

  def read(self, client_id: str, round_num: int) -> list[np.ndarray]:
    """Returns what a client keeps before a round.

    Raises:
      RuntimeError: Before `begin` or `resume`.
      KeyError: If there is no such client.
      DamagedStatesError: If it is not what was written.
    """
    self._check_begun()
    if client_id not in self._client_ids:
      raise KeyError(
        f'`client_id` must be one of the store, found {client_id!r}.'
      )
    name = _file_name(client_id)
    rounds = [r for r in self._versions[name] if r < round_num]
    if not rounds:
      return [np.zeros(shape, dtype) for dtype, shape in self._tensors]
    path = self._path(rounds[-1]) / name
    try:
      content = path.read_bytes()
    except OSError as e:
      raise DamagedStatesError(f'{path} cannot be read: {e.strerror}.') from e
    data = content[_DIGEST_BYTES:]
    if hashlib.sha256(data).digest() != content[:_DIGEST_BYTES]:
      raise DamagedStatesError(f'{path} is not as it was written.')
    values, start = [], 0
    for dtype, shape in self._tensors:
      count = int(np.prod(shape))
      values.append(
        np.frombuffer(data, dtype, count, offset=start).reshape(shape)
      )
      start += count * dtype.itemsize
    return values

  def write(
    self,
    round_num: int,
    outcome_id: str,
    cohort: Sequence[str],
    kept: Any,
  ) -> None:
    """Writes what the cohort of a round keeps, under the id of its outcome.

    Versions of this round and later ones, of a program that was killed, are
    dropped first. `kept` is `metrics['client_work']['kept']` of the round:
    tensors whose leading dimension is the cohort.

    Raises:
      RuntimeError: Before `begin` or `resume`.
      StorageError: If it could not be written. The versions of the rounds
        before are as they were.
    """
    self._check_begun()
    stacked = [
      np.asarray(values, dtype)
      for values, (dtype, _) in zip(
        tff.structure.flatten(tff.structure.from_container(kept)),
        self._tensors,
        strict=True,
      )
    ]
    unfinished = self._folder / _UNFINISHED
    with storage_errors.writing(f'What the clients keep of round {round_num}'):
      self._remove_from(round_num)
      shutil.rmtree(unfinished, ignore_errors=True)
      unfinished.mkdir(mode=0o700)
      names = [_file_name(client_id) for client_id in cohort]
      for place, name in enumerate(names):
        data = b''.join(values[place].tobytes() for values in stacked)
        (unfinished / name).write_bytes(hashlib.sha256(data).digest() + data)
      (unfinished / _ROUND).write_text(
        json.dumps({'id': outcome_id, 'clients': names})
      )
      atomic_files.sync_tree(unfinished)
      os.rename(unfinished, self._path(round_num))
      atomic_files.sync(self._folder)
    for name in names:
      self._versions[name].append(round_num)

  def drop_before(self, round_num: int) -> None:
    """Drops the versions that no round after `round_num` reads.

    That is the round of the oldest checkpoint that a run may go on from.

    Raises:
      StorageError: If the file system refuses.
    """
    with storage_errors.writing(f'The folder {self._folder}'):
      # Not synced: a crash does not restore older checkpoints.
      (self._folder / _DROPPED).write_text(str(round_num))
      for name, rounds in self._versions.items():
        last = max((r for r in rounds if r <= round_num), default=0)
        for each in rounds:
          if each < last:
            (self._path(each) / name).unlink(missing_ok=True)
        rounds[:] = [r for r in rounds if r >= last]
      for each in self._rounds():
        if each < round_num and len(os.listdir(self._path(each))) <= 1:
          shutil.rmtree(self._path(each))

  def _check_begun(self) -> None:
    if not self._has_begun:
      raise RuntimeError(
        'What the clients keep must be that of a run: a program calls `begin` '
        'or `resume` first, as `resume` of a private run does with '
        '`client_states`.'
      )

  def _remove_from(self, first: int) -> None:
    """Removes the versions of a round and of all after it, the last first."""
    for each in reversed(self._rounds()):
      if each >= first:
        shutil.rmtree(self._path(each))
    for rounds in self._versions.values():
      rounds[:] = [r for r in rounds if r < first]

  def _rounds(self) -> list[int]:
    """Returns the rounds that have versions, in order."""
    return sorted(
      int(path.name.removeprefix(_PREFIX))
      for path in self._folder.iterdir()
      # Somebody may have put a copy there.
      if _NAME.fullmatch(path.name)
    )

  def _read_round(self, round_num: int) -> dict[str, Any]:
    """Returns the id of a round's outcome and whose versions were written."""
    with contextlib.suppress(OSError, ValueError):
      return json.loads((self._path(round_num) / _ROUND).read_text())
    return {}

  def _path(self, round_num: int) -> pathlib.Path:
    return self._folder / f'{_PREFIX}{round_num}'

  def _expected_contents(self) -> dict[str, Any]:
    ids = hashlib.sha256(json.dumps(sorted(self._client_ids)).encode())
    return {
      'format': _FORMAT,
      'clients': ids.hexdigest(),
      'tensors': [[dtype.name, list(shape)] for dtype, shape in self._tensors],
    }

  def _read_contents(self) -> dict[str, Any]:
    """Returns what the store is of; nothing for a new one."""
    path = self._folder / _CONTENTS
    if not path.exists():
      return {}
    try:
      contents = json.loads(path.read_text())
    except (OSError, ValueError) as e:
      raise DamagedStatesError(f'{path} cannot be read: {e}.') from e
    expected = self._expected_contents()
    if not contents.items() >= expected.items():
      raise DamagedStatesError(
        f'The states of clients in {self._folder} are of other clients or '
        'another model: use another folder.'
      )
    return contents


def _file_name(client_id: str) -> str:
  """Returns the name of a client's file: an id may have any characters."""
  return hashlib.sha256(client_id.encode()).hexdigest()
