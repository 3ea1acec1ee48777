"""Checkpoints of a learning process, by TFF's own program state manager."""

import contextlib
import gc
import hashlib
import json
import logging
import os
import pathlib
import shutil
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow_federated as tff
import tree

from tff_clipping import argument_checks, atomic_files, storage_errors
from tff_clipping.programs.training import coroutines

_LOGGER = logging.getLogger(__name__)
_PREFIX = 'round_'
_UNFINISHED = 'unfinished'
_DIGESTS = 'sha256.json'


class DamagedCheckpointError(storage_errors.StorageError):
  """A checkpoint is not what was written."""


class Checkpoints:
  """The last few states of a learning process, each whole or not there.

  `tff.program.FileProgramStateManager` writes a state into a folder beside its
  place. The digests of its files are added, everything is synced, and only then
  is the folder renamed; older checkpoints are removed after that. So a program
  that is killed, or a machine that loses power, leaves the one before, and a
  file that was cut off or changed is found.
  """

  def __init__(self, folder: str | os.PathLike, *, keep: int = 2):
    """Initializes the checkpoints.

    Args:
      folder: Where they are; made if it is missing, for its owner alone.
      keep: How many to keep, at least 1.

    Raises:
      TypeError: If `keep` is not an integer.
      ValueError: If `keep` is less than 1.
    """
    self._folder = pathlib.Path(folder)
    self._keep = argument_checks.check_integer('keep', keep, at_least=1)
    with storage_errors.writing('The folder of the checkpoints'):
      # A state may hold the key of the noise: it is its owner's alone.
      self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
      self._manager = _create_manager(self._folder)

  def rounds(self) -> list[int]:
    """Returns the rounds of the checkpoints, the latest last."""
    return coroutines.run(self._manager.get_versions()) or []

  def latest(self) -> int | None:
    """Returns the round of the latest checkpoint, or `None` without any."""
    return next(reversed(self.rounds()), None)

  def save(self, state: Any, round_num: int) -> None:
    """Saves the state after `round_num` rounds, unless that is there already.

    Raises:
      StorageError: If it could not be written. Those before it are as they
        were.
    """
    if round_num in self.rounds():
      return
    leaves = [np.asarray(leaf) for leaf in tree.flatten(state)]
    with (
      storage_errors.writing(f'The checkpoint of round {round_num}'),
      _garbage_collected(),
      self._unfinished() as unfinished,
    ):
      coroutines.run(_create_manager(unfinished).save(leaves, round_num))
      written = unfinished / f'{_PREFIX}{round_num}'
      # A folder that was there before may be open to others.
      written.chmod(0o700)
      (written / _DIGESTS).write_text(json.dumps(_digests(written)))
      atomic_files.sync_tree(written)
      os.rename(written, self._path(round_num))
      atomic_files.sync(self._folder)
      self._remove_old()

  def load(self, round_num: int, structure: Any) -> Any:
    """Returns the state after `round_num` rounds.

    Args:
      round_num: The round of an existing checkpoint.
      structure: A state of the same process, such as its initial one.

    Raises:
      DamagedCheckpointError: If the checkpoint is not what was written.
      ValueError: If the checkpoint is one of another process.
    """
    expected = [np.asarray(leaf) for leaf in tree.flatten(structure)]
    self._check_digests(round_num)
    try:
      leaves = coroutines.run(self._manager.load(round_num, expected))
    except (TypeError, ValueError) as e:  # TFF counts the leaves.
      raise _another_process(round_num) from e
    except Exception as e:
      raise ValueError(
        f'The checkpoint of round {round_num} cannot be read: {e}'
      ) from e
    for leaf, like in zip(leaves, expected, strict=True):
      if np.shape(leaf) != like.shape or np.asarray(leaf).dtype != like.dtype:
        raise _another_process(round_num)
    return tree.unflatten_as(structure, leaves)

  def load_latest(self, structure: Any) -> tuple[int, Any] | None:
    """Returns the latest state that is not damaged, and its round.

    Damaged ones after it are put aside, under the name `damaged_round_N`, with
    a warning: their rounds have to be run again.

    Args:
      structure: As for `load`.

    Returns:
      The round and the state; `None` if there are no checkpoints.

    Raises:
      DamagedCheckpointError: If there are checkpoints and all are damaged.
        Nothing has been moved.
      ValueError: If the checkpoint is one of another process.
    """
    damaged = {}
    for round_num in reversed(self.rounds()):
      try:
        state = self.load(round_num, structure)
      except DamagedCheckpointError as e:
        damaged[round_num] = str(e)
        continue
      for other, message in damaged.items():
        aside = self._folder / f'damaged_{_PREFIX}{other}'
        _LOGGER.warning(
          '%s It is kept as %s. Going on from the checkpoint of round %d: the '
          'rounds after it are run again.',
          message,
          aside.name,
          round_num,
        )
        with storage_errors.writing(f'The folder {aside}'):
          shutil.rmtree(aside, ignore_errors=True)
          os.rename(self._path(other), aside)
      with (
        storage_errors.writing(f'The folder {self._folder}'),
        self._unfinished(),
      ):
        self._remove_old()  # What a program that was killed could not.
      return round_num, state
    if damaged:
      raise DamagedCheckpointError(
        f'No checkpoint in {self._folder} can be read: '
        f'{" ".join(damaged.values())} Restore them from a copy, or start in '
        'another folder.'
      )
    return None

  def _path(self, round_num: int) -> pathlib.Path:
    return self._folder / f'{_PREFIX}{round_num}'

  def _remove_old(self) -> None:
    for round_num in self.rounds()[: -self._keep]:
      shutil.rmtree(self._path(round_num))

  @contextlib.contextmanager
  def _unfinished(self) -> Iterator[pathlib.Path]:
    """Gives an empty folder, which is removed at the end."""
    folder = self._folder / _UNFINISHED
    # A program that was killed may have left one.
    shutil.rmtree(folder, ignore_errors=True)
    try:
      yield folder
    finally:
      shutil.rmtree(folder, ignore_errors=True)

  def _check_digests(self, round_num: int) -> None:
    folder = self._path(round_num)
    try:
      expected = json.loads((folder / _DIGESTS).read_text())
      if not isinstance(expected, dict):
        raise ValueError(f'{_DIGESTS} holds no digests')
      found = _digests(folder)
    except (OSError, ValueError) as e:
      raise DamagedCheckpointError(
        f'The checkpoint of round {round_num} is damaged: {e}.'
      ) from e
    if found != expected:
      names = sorted(
        name
        for name in {*found, *expected}
        if found.get(name) != expected.get(name)
      )
      raise DamagedCheckpointError(
        f'The checkpoint of round {round_num} is damaged: {", ".join(names)} '
        'is not as it was written.'
      )


@contextlib.contextmanager
def _garbage_collected() -> Iterator[None]:
  """Collects the garbage that is made meanwhile.

  TensorFlow saves by graphs that refer to themselves, and to the weights.
  While they are young they are found in a millisecond; later they pile up
  until Python looks at everything.
  """
  was_enabled = gc.isenabled()
  gc.disable()
  try:
    yield
  finally:
    gc.collect(0)
    if was_enabled:
      gc.enable()


def _create_manager(
  folder: pathlib.Path,
) -> tff.program.FileProgramStateManager:
  # It would remove the old ones before the new one is safe on the disk.
  return tff.program.FileProgramStateManager(
    os.fspath(folder), prefix=_PREFIX, keep_total=0
  )


def _digests(folder: pathlib.Path) -> dict[str, str]:
  """Returns the SHA-256 digest of each file but the digests'."""
  return {
    str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
    for path in sorted(folder.rglob('*'))
    if path.is_file() and path.name != _DIGESTS
  }


def _another_process(round_num: int) -> ValueError:
  return ValueError(
    f'The checkpoint of round {round_num} is of another process: its state has '
    'other tensors. Use another folder for another model, aggregator or '
    'optimizer.'
  )
