"""Checkpoints of a learning process: complete states on the disk.

An older file is removed only when a new one is durably on the disk. So a
program that is killed, or a machine that loses power, leaves the older file.

A file has a line of JSON, with the texts of the state; its arrays, one after
the other; and the CRC-32 of both, which reveals a file that is cut short or
damaged.
"""

import contextlib
import json
import logging
import os
import pathlib
import re
import secrets
import zlib
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import tree

from tff_clipping import atomic_files, file_locks, storage_errors

_LOGGER = logging.getLogger(__name__)
_FORMAT = 1
_SUFFIX = '.state'
_NAME = re.compile(r'[0-9]+_round_[0-9]+\.state')
_CHECKSUM_BYTES = 4
_BLOCK = 2**20


class DamagedCheckpointError(storage_errors.StorageError):
  """A checkpoint is damaged."""


class Charge(NamedTuple):
  """The ledger, the release and the draw to which a private outcome belongs.

  Attributes:
    run_id: The `run_id` of the ledger.
    after: The id of the ledger's last release when the round began; '' for
      none.
    draw: How often the round was charged before.
  """

  run_id: str
  after: str
  draw: int


class Outcome(NamedTuple):
  """A checkpoint without its state.

  Attributes:
    path: The file.
    id: A random text, which a ledger charges.
    round_num: The number of rounds that the state has.
    charge: In a private run, to what the outcome belongs; else `None`.
    released: In a private run, the measurements that may be released, by name.
  """

  path: pathlib.Path
  id: str
  round_num: int
  charge: Charge | None
  released: Mapping[str, Any]


class Checkpoints:
  """The last two states of a learning process in a folder.

  A private run keeps the outcome of each round: only `run_private_round` and
  `resume` call `save` and `outcomes`. A run without privacy keeps a state from
  time to time.
  """

  def __init__(self, folder: str | os.PathLike):
    """Initializes the checkpoints.

    Args:
      folder: Where they are; made if it is missing, for its owner alone.

    Raises:
      StorageError: If the folder cannot be written, or has checkpoints of
        version 0.2.
    """
    self.folder = pathlib.Path(folder)
    # What `outcomes` found, with a message each.
    self.damaged: dict[pathlib.Path, str] = {}
    with storage_errors.writing('The folder of the checkpoints'):
      # A state may hold the key of the noise: it is its owner's alone.
      self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
      old = [path.name for path in self.folder.glob('round_*') if path.is_dir()]
    if old:
      raise storage_errors.StorageError(
        f'The checkpoints in {self.folder}, such as {min(old)}, are of version '
        '0.2, whose runs version 0.2 (commit 44967cd3) continues: begin in '
        'another folder.'
      )

  @contextlib.contextmanager
  def locked(self) -> Iterator[None]:
    """Keeps every other program that locks them out while the body runs.

    Raises:
      StorageError: If another program has locked them, or their folder is gone.
        On a disk without locks nothing tells of another program.
    """
    taken = storage_errors.StorageError(
      f'The checkpoints in {self.folder} are in use by another program: give '
      'each run a folder of its own.'
    )
    with contextlib.ExitStack() as stack:
      with storage_errors.writing('The checkpoints'):
        stack.enter_context(file_locks.locked(self.folder, taken))
      yield

  def rounds(self) -> list[int]:
    """Returns the rounds of the checkpoints, in the order of writing."""
    return [int(path.stem.split('_')[-1]) for path in self._paths()]

  def save(
    self,
    state: Any,
    round_num: int,
    *,
    outcome_id: str | None = None,
    charge: Charge | None = None,
    released: Mapping[str, Any] | None = None,
  ) -> Outcome:
    """Saves the state after some rounds; it is on the disk when this returns.

    Args:
      state: A structure of arrays, numbers and strings.
      round_num: The number of rounds that it has.
      outcome_id: A random text; `None` draws one.
      charge: Of a private run, to what the outcome belongs.
      released: Of a private run, what was measured and may be released: JSON.

    Returns:
      What was saved.

    Raises:
      StorageError: If it could not be written. Earlier checkpoints do not
        change.
    """
    place = max((_place(path) for path in self._paths()), default=0) + 1
    outcome = Outcome(
      path=self.folder / f'{place:08d}_round_{round_num}{_SUFFIX}',
      id=secrets.token_hex(16) if outcome_id is None else outcome_id,
      round_num=int(round_num),
      charge=charge,
      released=dict(released or {}),
    )
    with storage_errors.writing(f'The checkpoint of round {round_num}'):
      with (
        atomic_files.replacing(outcome.path, is_secret=True) as new,
        open(new, 'wb') as file,
      ):
        _write(file, outcome, tree.flatten(state))
      # And what a program that was killed has left.
      for path in (*self._paths()[:-2], *self.folder.glob('.*.new')):
        path.unlink()
    return outcome

  def outcomes(self) -> list[Outcome]:
    """Returns each checkpoint without its state, in the order of writing.

    A damaged checkpoint is not returned; it stays, and `damaged` names it.

    Raises:
      DamagedCheckpointError: If there are checkpoints and all are damaged.
      StorageError: If somebody has renamed a checkpoint, or put a copy there.
    """
    for path in self._files():
      if not _NAME.fullmatch(path.name):
        raise storage_errors.StorageError(
          f'The file {path} has not the name of a checkpoint: somebody has '
          'renamed or copied it. Move it to another folder.'
        )
    found, damaged = [], {}
    for path in self._paths():
      try:
        found.append(_read(path)[0])
      except DamagedCheckpointError as e:
        damaged[path] = str(e)
    self.damaged = damaged
    if damaged and not found:
      raise DamagedCheckpointError(
        f'No checkpoint in {self.folder} can be read: '
        f'{" ".join(damaged.values())} Restore them from a copy, or start in '
        'another folder.'
      )
    return found

  def load(self, outcome: Outcome, structure: Any) -> Any:
    """Returns the state of a checkpoint.

    Args:
      outcome: One of `outcomes`.
      structure: A state of the same process, such as its initial one.

    Raises:
      DamagedCheckpointError: If the checkpoint is damaged.
      ValueError: If the checkpoint is of another process.
    """
    _, leaves = _read(outcome.path, with_leaves=True)
    expected = [np.asarray(leaf) for leaf in tree.flatten(structure)]
    if [_kind(leaf) for leaf in leaves] != [_kind(leaf) for leaf in expected]:
      raise ValueError(
        f'The checkpoint of round {outcome.round_num} is of another process: '
        'its state has other tensors. Use another folder for another model, '
        'aggregator or optimizer.'
      )
    return tree.unflatten_as(structure, leaves)

  def latest(self) -> Outcome | None:
    """Returns the latest checkpoint of a run without a ledger, or `None`.

    Raises:
      StorageError: If it is of a private run, or all are damaged.
    """
    found = self.outcomes()
    if found and found[-1].charge is not None:
      raise storage_errors.StorageError(
        f'The checkpoints in {self.folder} are of a private run, which goes on '
        'with its ledger: give it, or another folder.'
      )
    for path, message in self.damaged.items():
      self.set_aside(path, message, prefix='damaged')
    return found[-1] if found else None

  def set_aside(
    self, path: pathlib.Path, reason: str, *, prefix: str = 'set_aside'
  ) -> None:
    """Renames a file that is not used any more, and logs why, a sentence."""
    aside = path.with_name(
      f'{prefix}_{path.stem}_{secrets.token_hex(4)}{_SUFFIX}'
    )
    _LOGGER.warning('%s It is kept as %s.', reason, aside.name)
    with storage_errors.writing(f'The file {aside}'):
      os.rename(path, aside)
      atomic_files.sync(self.folder)

  def _paths(self) -> list[pathlib.Path]:
    """Returns the files of the checkpoints, in the order of writing."""
    own = [path for path in self._files() if _NAME.fullmatch(path.name)]
    return sorted(own, key=_place)

  def _files(self) -> list[pathlib.Path]:
    """Returns the checkpoints, and copies that somebody has renamed."""
    return sorted(self.folder.glob(f'[0-9]*{_SUFFIX}'))


def _place(path: pathlib.Path) -> int:
  return int(path.name.split('_')[0])


def _kind(array: np.ndarray) -> tuple[Any, ...]:
  """Returns what an array has in common with those in its place."""
  # The length of a text is part of its type in NumPy.
  name = 'text' if array.dtype.kind in 'SUO' else array.dtype.name
  return name, array.shape


def _write(file: BinaryIO, outcome: Outcome, leaves: list[Any]) -> None:
  """Writes the line, the arrays and the checksum."""
  arrays = [
    np.asarray(leaf, object if isinstance(leaf, (bytes, str)) else None)
    for leaf in leaves
  ]
  header = {
    'format': _FORMAT,
    'id': outcome.id,
    'round_num': outcome.round_num,
    'charge': outcome.charge and outcome.charge._asdict(),
    'released': outcome.released,
    'arrays': [[_described(array), list(array.shape)] for array in arrays],
  }
  checksum = 0
  line = json.dumps(header).encode() + b'\n'
  contents = (
    np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
    for array in arrays
    if not array.dtype.hasobject
  )
  for data in (line, *contents):
    checksum = zlib.crc32(data, checksum)
    file.write(data)
  file.write(checksum.to_bytes(_CHECKSUM_BYTES, 'big'))


def _described(array: np.ndarray) -> str | list[str]:
  """Returns what the line says of an array: its type, or all of its texts.

  TensorFlow's texts are objects; NumPy's own lose zeros at their end.
  """
  if array.dtype.hasobject:
    texts = [x.encode() if isinstance(x, str) else x for x in array.flat]
    return [text.hex() for text in texts]
  # The name of a type of texts has no length.
  return array.dtype.str if array.dtype.kind in 'SU' else array.dtype.name


def _read(
  path: pathlib.Path, *, with_leaves: bool = False
) -> tuple[Outcome, list[np.ndarray]]:
  """Returns what a file holds, the arrays only if they are asked for.

  Raises:
    DamagedCheckpointError: If it is not what was written.
  """
  leaves: list[np.ndarray] = []
  try:
    with open(path, 'rb') as file:
      line = file.readline()
      checksum = zlib.crc32(line)
      header = json.loads(line)
      if header['format'] != _FORMAT:
        raise ValueError(f'its format is {header["format"]}')
      for described, shape in header['arrays']:
        if isinstance(described, list):
          texts = [bytes.fromhex(text) for text in described]
          leaves.append(np.array(texts, object).reshape(shape))
          continue
        dtype = np.dtype(described)
        size = dtype.itemsize * int(np.prod(shape))
        data = bytearray(size) if with_leaves else bytearray(min(size, _BLOCK))
        view = memoryview(data)
        while size:
          part = view[: min(size, len(view))]
          if file.readinto(part) != len(part):
            raise ValueError('it is cut short')
          checksum = zlib.crc32(part, checksum)
          size -= len(part)
        if with_leaves:
          leaves.append(np.frombuffer(data, dtype).reshape(shape))
      if file.read() != checksum.to_bytes(_CHECKSUM_BYTES, 'big'):
        raise ValueError('it is not as it was written')
    charge = header['charge']
    outcome = Outcome(
      path=path,
      id=header['id'],
      round_num=header['round_num'],
      charge=None if charge is None else Charge(**charge),
      released=header['released'],
    )
  except (OSError, ValueError, KeyError, TypeError) as e:
    raise DamagedCheckpointError(
      f'The checkpoint {path.name} is damaged: {e}.'
    ) from e
  return outcome, leaves
