"""Runs the programs that are compared in turns, a round each.

A machine is faster in one minute than in another. So the programs are all
started, and take turns: the rounds of one turn follow each other at once, and
their ratio is taken pair by pair. Every second turn is in the opposite order.
"""

import contextlib
import dataclasses
import os
import select
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from benchmarks import turns
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


@dataclasses.dataclass(frozen=True)
class Comparison:
  """What was found of some sides.

  Attributes:
    results: By side, what its program printed. The n-th `seconds` of all sides
      are of the same turn.
    errors: By side that failed, why; such a side has no result.
  """

  results: dict[str, Any] = dataclasses.field(default_factory=dict)
  errors: dict[str, str] = dataclasses.field(default_factory=dict)

  def describe_seconds(self, side: str) -> str:
    """Returns the median seconds of a round of a side, or why it failed."""
    if side in self.errors:
      return f'failed: {self.errors[side]}'
    return f'{statistics.median(self.results[side]["seconds"]):.3f}'

  def describe_ratio(self, side: str, of: str) -> str:
    """Returns the quartiles of the seconds of a side over those of another.

    Nothing where it is the same side, or one of the two has no result.
    """
    if side == of or not {side, of} <= self.results.keys():
      return ''
    seconds = (self.results[each]['seconds'] for each in (side, of))
    pairs = [one / other for one, other in zip(*seconds, strict=True)]
    low, median, high = statistics.quantiles(pairs, n=4, method='inclusive')
    return f'{median:.2f} ({low:.2f} to {high:.2f})'


def compare(sides: Mapping[str, Side], *, num_rounds: int) -> Comparison:
  """Runs the rounds of all sides in turns.

  Args:
    sides: The sides by name.
    num_rounds: How many rounds are timed, as the programs have it.
  """
  found = Comparison()
  with contextlib.ExitStack() as stack:
    players = {
      name: stack.enter_context(contextlib.closing(_Player(side)))
      for name, side in sides.items()
    }

    @contextlib.contextmanager
    def left_out_if_it_fails(name: str) -> Iterator[None]:
      try:
        yield
      except RuntimeError as e:
        found.errors[name] = str(e).splitlines()[-1]
        players.pop(name).close()

    for turn in range(turns.total_rounds(num_rounds)):
      names = list(players)
      for name in names if turn % 2 == 0 else reversed(names):
        with left_out_if_it_fails(name):
          players[name].play()
    for name in list(players):
      with left_out_if_it_fails(name):
        found.results[name] = players[name].program.result(_MAX_SECONDS)
  return found


class _Player:
  """A program of a side, which waits for its turns."""

  def __init__(self, side: Side):
    self._stack = contextlib.ExitStack()
    folder = self._stack.enter_context(tempfile.TemporaryDirectory())
    self._start, self._end = (
      self._make_fifo(os.path.join(folder, name)) for name in turns.FIFOS
    )
    self.program = self._stack.enter_context(
      Program(
        side.arguments,
        python=side.python,
        environment={**side.environment, turns.FOLDER: folder},
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
    os.write(self._start, b'\n')
    deadline = time.monotonic() + _MAX_SECONDS
    while time.monotonic() < deadline:
      # Asked first: it may end its round, and itself, while this waits.
      is_running = self.program.is_running
      if select.select([self._end], [], [], 0.1)[0]:
        os.read(self._end, 1)
        return
      if not is_running:
        self.program.result(_MAX_SECONDS)
        raise RuntimeError('It ended before its last round.')
    raise RuntimeError(f'No round in {_MAX_SECONDS:.0f} s.')

  def _make_fifo(self, path: str) -> int:
    os.mkfifo(path)
    # For both, so that it does not wait for the program to open the other end.
    file = os.open(path, os.O_RDWR)
    self._stack.callback(os.close, file)
    return file
