"""What TFF's own training loops need around a `PrivateProcess`."""

import struct
from typing import Any

import numpy as np
import tensorflow_federated as tff

from tff_clipping.privacy.ledger.ledger import PrivacyLedger
from tff_clipping.programs.training import private_rounds
from tff_clipping.programs.training.checkpoints import Checkpoints


class OutcomeStates(tff.program.ProgramStateManager):
  """The charged outcomes of a private run, as the program states of TFF.

  `PrivateProcess.next` saves the outcome of each round before the round is
  charged. So `save` does nothing: a state that TFF would save later could be
  lost, and with it a round that was paid for. The latest version is the last
  round that was charged, and what is pending is charged first.

  For `tff.learning.programs.train_model`, with `RoundNumbers`, and for
  `tff.simulation.run_training_process`.
  """

  def __init__(self, ledger: PrivacyLedger, store: Checkpoints):
    """Initializes the manager.

    Args:
      ledger: What is charged.
      store: Where the outcomes of its rounds are.
    """
    self._ledger = ledger
    self._store = store

  async def get_versions(self) -> list[int] | None:
    """Returns the last round that was charged, in a list; `None` before it.

    Raises:
      StorageError, OSError: As `resume`.
    """
    last = private_rounds.settle(self._ledger, self._store)
    return None if last is None else [last.round_num]

  async def load(self, version: int, structure: Any) -> Any:
    """Returns the state after the last round that was charged.

    Args:
      version: The number of that round.
      structure: A state of the process, or what `train_model` keeps with it.

    Raises:
      tff.program.ProgramStateNotFoundError: If it is another round.
      ValueError: If the outcome is of another process.
    """
    last = private_rounds.settle(self._ledger, self._store)
    if last is None or last.round_num != version:
      raise tff.program.ProgramStateNotFoundError(version)
    if not hasattr(structure, 'data_iterator'):
      return self._store.load(last, structure)
    return structure._replace(
      state=self._store.load(last, structure.state),
      round_number=version,
      next_evaluation_timestamp_seconds=None,
      data_iterator=RoundNumbersIterator(version),
    )

  async def save(self, program_state: Any, version: int) -> None:
    """Does nothing: the outcome of a round was saved before its charge.

    Args:
      program_state: The state.
      version: The number of the round.
    """
    del program_state, version


class RoundNumbers(tff.program.FederatedDataSource):
  """Gives the number of each round where TFF's programs ask for data."""

  @property
  def federated_type(self) -> tff.FederatedType:
    """The type of a number, at the server."""
    return _NUMBER

  def iterator(self) -> 'RoundNumbersIterator':
    """Returns an iterator that begins with round 1."""
    return RoundNumbersIterator()


class RoundNumbersIterator(tff.program.FederatedDataSourceIterator):
  """The numbers of the rounds that are still to be run.

  Attributes:
    num_done: The number of those that were given.
  """

  def __init__(self, num_done: int = 0):
    """Initializes the iterator.

    Args:
      num_done: The number of the rounds that are done.
    """
    self.num_done = num_done

  @classmethod
  def from_bytes(cls, buffer: bytes) -> 'RoundNumbersIterator':
    """Returns the iterator that `to_bytes` described."""
    return cls(*struct.unpack('!Q', buffer))

  def to_bytes(self) -> bytes:
    """Returns the iterator as bytes, for `tff.program.ProgramStateManager`."""
    return struct.pack('!Q', self.num_done)

  @property
  def federated_type(self) -> tff.FederatedType:
    """The type of a number, at the server."""
    return _NUMBER

  def select(self, k: int | None = None) -> int:
    """Returns the number of the next round.

    Args:
      k: How many clients TFF's program asks for; the plan decides on that.
    """
    del k
    self.num_done += 1
    return self.num_done


_NUMBER = tff.FederatedType(np.int64, tff.SERVER)
