"""Checkpoints of a learning process, by TFF's own program state manager."""

import asyncio
import os
from typing import Any

import numpy as np
import tensorflow_federated as tff
import tree


class Checkpoints:
  """The last few states of a learning process, each whole or not there.

  `tff.program.FileProgramStateManager` writes a state beside its place and
  renames it, so a program that is killed leaves the one before.
  """

  def __init__(self, folder: str | os.PathLike, *, keep: int):
    """Initializes the checkpoints.

    Args:
      folder: Where they are; made if it is missing.
      keep: How many to keep, at least 1.
    """
    self._manager = tff.program.FileProgramStateManager(
      os.fspath(folder), prefix='round_', keep_total=keep, keep_first=False
    )

  def latest(self) -> int | None:
    """Returns the round of the latest checkpoint, or `None` without any."""
    versions = asyncio.run(self._manager.get_versions())
    return versions[-1] if versions else None

  def save(self, state: Any, round_num: int) -> None:
    """Saves the state after `round_num` rounds, unless that is there already."""
    if self.latest() == round_num:
      return
    leaves = [np.asarray(leaf) for leaf in tree.flatten(state)]
    asyncio.run(self._manager.save(leaves, round_num))

  def load(self, round_num: int, structure: Any) -> Any:
    """Returns the state after `round_num` rounds.

    Args:
      round_num: The round of an existing checkpoint.
      structure: A state of the same process, such as its initial one.

    Raises:
      ValueError: If the checkpoint is damaged, or one of another process.
    """
    expected = [np.asarray(leaf) for leaf in tree.flatten(structure)]
    try:
      leaves = asyncio.run(self._manager.load(round_num, expected))
    except Exception as e:
      raise ValueError(
        f'The checkpoint of round {round_num} cannot be read: {e}'
      ) from e
    for leaf, like in zip(leaves, expected, strict=True):
      if np.shape(leaf) != like.shape or np.asarray(leaf).dtype != like.dtype:
        raise ValueError(
          f'The checkpoint of round {round_num} is of another model.'
        )
    return tree.unflatten_as(structure, leaves)
