"""What watches the rounds of a training program, and changes none of them."""

import collections
import dataclasses
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tff_clipping import storage_errors

_LOGGER = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class ClientsWork:
  """What the clients of a round did, which tells of single clients.

  Attributes:
    cohort: Their ids, in the order of what was measured of them.
    measured: The metrics of the process, as `next` returned them.
  """

  cohort: Sequence[str]
  measured: Any


@dataclasses.dataclass(frozen=True)
class Round:
  """A round that is done, or the initial model as round 0.

  Attributes:
    round_num: The number of the round.
    metrics: The row of the round, with a number for each column: those that
      docs/training.md lists, what the process measured, and what `evaluate`
      and the watchers added.
    model: The model weights after the round.
    model_before: Returns those before it. `None` in round 0, and for a round
      that is recorded again.
    work: What its clients did. `None` in round 0, for a round that is recorded
      again, and for watchers that do not see clients.
    released: What was measured and a private run may release: numbers and
      vectors by their paths.
  """

  round_num: int
  metrics: collections.OrderedDict[str, float]
  model: Any
  model_before: Callable[[], Any] | None = None
  work: ClientsWork | None = None
  released: Mapping[str, Any] = dataclasses.field(default_factory=dict)


class RoundWatcher:
  """Is shown each round of a training program; by itself it does nothing.

  A round is charged and evaluated first. Then all watchers `measure`, all
  `record`, if a checkpoint is due all `sync` before it is written, and `after`
  is called of all; each time in the order in which the program has them. The
  initial model, as round 0, is only recorded, and synced.

  Attributes:
    sees_clients: Whether rounds are shown with the work of their clients. With
      a ledger that takes a caveat: what such a watcher writes, no plan covers.
  """

  sees_clients = False

  def measure(self, done: Round) -> Mapping[str, float]:
    """Returns numbers for the metrics of a round, by the names of columns.

    Anything but numbers ends the run with an error.

    It may take long: a signal interrupts it. Without a ledger, the round is
    then run again; with one it is kept, without these numbers.

    Args:
      done: The round, whose metrics do not have these numbers yet.
    """
    return {}

  def record(self, done: Round) -> None:
    """Keeps what is to be kept of a round; a signal waits for it.

    A round that is recorded again, after a crash, takes the place of the one
    before.

    Args:
      done: The round, whose metrics are complete.
    """

  def sync(self) -> None:
    """Waits until what was recorded survives a power cut.

    The rounds before a checkpoint are not run again.
    """

  def after(self, done: Round) -> None:
    """Is called after a round and its checkpoint."""


class AfterRounds(RoundWatcher):
  """Calls a function with the metrics of each round, to show progress.

  A terminal that is gone, is full or cannot show a character ends no run.
  """

  def __init__(
    self, function: Callable[[collections.OrderedDict[str, float]], Any]
  ):
    """Initializes the watcher.

    Args:
      function: Is called with `Round.metrics`; what it returns is not used.
    """
    self._function = function

  def after(self, done: Round) -> None:
    """Calls the function; see the base class."""
    try:
      self._function(done.metrics)
    except (OSError, UnicodeError) as e:
      if isinstance(e, storage_errors.StorageError):
        raise
      _LOGGER.warning('Round %d was not shown: %s', done.round_num, e)
