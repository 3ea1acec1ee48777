"""Runs the programs that are compared in turns, a round each.

A machine is faster in one minute than in another. So the programs are all
started, and take turns: the rounds of one turn follow each other at once, and
their ratio is taken pair by pair. Every second turn is in the opposite order.
"""

import contextlib
import dataclasses
import os
import pathlib
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from benchmarks import busy, turns
from benchmarks.processes import Program

# For a start, with its imports and its first round, or for a round.
_MAX_SECONDS = 600.0


class Side(NamedTuple):
  """A program that is compared with others.

  It runs `benchmarks.turns.Rounds` and prints their `seconds` as JSON.

  Attributes:
    arguments: The command line after the interpreter.
    python: The interpreter.
    environment: Variables to add to those of this process.
  """

  arguments: Sequence[str]
  python: str = sys.executable
  environment: Mapping[str, str] = {}


class Ratio(NamedTuple):
  """A ratio of two sides, of all pairs of their rounds.

  Attributes:
    median: The median of the pairs.
    low: A quarter of the pairs is below.
    high: A quarter of the pairs is above.
  """

  median: float
  low: float
  high: float

  def __str__(self) -> str:
    return f'{self.median:.2f} ({self.low:.2f} to {self.high:.2f})'


@dataclasses.dataclass(frozen=True)
class Comparison:
  """What was found of some sides.

  Attributes:
    seconds: By side, its timed rounds. The n-th rounds of all sides are of the
      same turn.
    results: By side, what its last program printed.
    errors: By side that failed, why; such a side is in nothing else.
    others: By start of all programs, the share of the CPUs' time that other
      programs took while rounds were timed; `None` where nobody knows.
  """

  seconds: dict[str, list[float]] = dataclasses.field(default_factory=dict)
  results: dict[str, Any] = dataclasses.field(default_factory=dict)
  errors: dict[str, str] = dataclasses.field(default_factory=dict)
  others: list[float | None] = dataclasses.field(default_factory=list)

  def median(self, side: str) -> float:
    """Returns the median seconds of a round of a side."""
    return statistics.median(self.seconds[side])

  def ratio(self, side: str, of: str) -> Ratio | None:
    """Returns the ratio of two sides; `None` if there is none.

    Args:
      side: What takes the seconds.
      of: What they are divided by.
    """
    if side == of or not {side, of} <= self.seconds.keys():
      return None
    return pair_by_pair(self.seconds[side], self.seconds[of])

  @property
  def most_of_others(self) -> float | None:
    """The largest share of `others`; `None` if any is not known."""
    return None if None in self.others else max(self.others)


def pair_by_pair(seconds: Sequence[float], base: Sequence[float]) -> Ratio:
  """Returns the ratio of two sides of the same turns.

  Args:
    seconds: What is divided, at least two.
    base: As many, by which it is divided.
  """
  pairs = [one / other for one, other in zip(seconds, base, strict=True)]
  low, median, high = statistics.quantiles(pairs, n=4, method='inclusive')
  return Ratio(median, low, high)


def compare(
  sides: Mapping[str, Side],
  *,
  num_rounds: int,
  num_warm_up_rounds: int,
  num_last_rounds: int = 0,
  num_starts: int = 1,
) -> Comparison:
  """Runs the rounds of all sides in turns.

  Args:
    sides: The sides by name.
    num_rounds: How many rounds of each are timed after a start.
    num_warm_up_rounds: How many come before that.
    num_last_rounds: How many come after that.
    num_starts: How often all programs are started.
  """
  found = Comparison()
  for _ in range(num_starts):
    with contextlib.ExitStack() as stack:
      players = {}
      for name, side in sides.items():
        if name not in found.errors:
          players[name] = stack.enter_context(contextlib.closing(_Player(side)))
      _run_once(players, num_rounds, num_warm_up_rounds, num_last_rounds, found)
  return found


def _run_once(
  players: dict[str, '_Player'],
  num_rounds: int,
  num_warm_up_rounds: int,
  num_last_rounds: int,
  found: Comparison,
) -> None:
  """Runs the rounds of programs that were started, and adds what it finds."""

  @contextlib.contextmanager
  def left_out_if_it_fails(name: str) -> Iterator[None]:
    try:
      yield
    except RuntimeError as e:
      found.errors[name] = str(e).splitlines()[-1]
      found.seconds.pop(name, None)
      found.results.pop(name, None)
      players.pop(name).close()

  before = None
  end = num_warm_up_rounds + num_rounds
  for turn in range(end + num_last_rounds):
    if turn == num_warm_up_rounds:
      before = busy.read_cpu_time()
    names = list(players)
    for name in names if turn % 2 == 0 else reversed(names):
      with left_out_if_it_fails(name):
        players[name].play()
  found.others.append(busy.share_of_others(before, busy.read_cpu_time()))
  for name in list(players):
    with left_out_if_it_fails(name):
      result = players[name].result()
      timed = result['seconds'][num_warm_up_rounds:end]
      found.seconds.setdefault(name, []).extend(timed)
      found.results[name] = result


class _Player:
  """A program of a side, which waits for its turns."""

  def __init__(self, side: Side):
    self._stack = contextlib.ExitStack()
    folder = self._stack.enter_context(tempfile.TemporaryDirectory())
    address = os.fspath(pathlib.Path(folder) / 'turns')
    self._server = self._stack.enter_context(socket.socket(socket.AF_UNIX))
    self._server.bind(address)
    self._server.listen()
    self._server.settimeout(0.1)
    self._connection: socket.socket | None = None
    self._program = self._stack.enter_context(
      Program(
        side.arguments,
        python=side.python,
        environment={**side.environment, turns.ADDRESS: address},
      )
    )

  def close(self) -> None:
    """Ends it, with all that it has started."""
    self._stack.close()

  def play(self) -> None:
    """Lets it run a round.

    Raises:
      RuntimeError: It fails, ends or takes too long.
    """
    connection = self._connection = self._connection or self._accept()
    try:
      connection.sendall(b'\n')
      answer = connection.recv(1)
    except TimeoutError as e:
      raise RuntimeError(f'No round in {_MAX_SECONDS:.0f} s.') from e
    except OSError:
      answer = b''
    if not answer:
      self.result()
      raise RuntimeError('It ended before its last round.')

  def result(self) -> Any:
    """Waits for its end, and returns what it printed.

    Raises:
      RuntimeError: It fails or takes too long.
    """
    return self._program.result(_MAX_SECONDS)

  def _accept(self) -> socket.socket:
    """Waits until it has connected."""
    deadline = time.monotonic() + _MAX_SECONDS
    while time.monotonic() < deadline:
      # Asked first: it may connect and end while this waits.
      is_running = self._program.is_running
      with contextlib.suppress(TimeoutError):
        connection, _ = self._server.accept()
        connection.settimeout(_MAX_SECONDS)
        return self._stack.enter_context(connection)
      if not is_running:
        self.result()
        raise RuntimeError('It ended before its first round.')
    raise RuntimeError(f'Not started in {_MAX_SECONDS:.0f} s.')
