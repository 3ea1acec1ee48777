"""The rounds of a program that is timed, each of them when its turn comes.

`benchmarks.alternate` starts the programs that are compared, and lets one of
them run at a time, for a round. A program that is started by hand has all
turns. For the environments of the peers too: the standard library alone.
"""

import os
import socket
import time
from collections.abc import Iterator

# The variable that holds the path of a Unix socket, which a program that takes
# turns connects to. It gets a line for each turn, and gives one back after it.
ADDRESS = 'BENCHMARK_TURNS'


class Rounds:
  """Waits for each turn, and takes the time of each round.

  Attributes:
    seconds: of the rounds that have ended.
  """

  def __init__(self, num_rounds: int):
    """Connects to what gives the turns, if there is one.

    Args:
      num_rounds: how many rounds the program will run.
    """
    self.seconds: list[float] = []
    self._num_rounds = num_rounds
    self._start: float | None = None
    self._turns = None
    if ADDRESS in os.environ:
      connection = socket.socket(socket.AF_UNIX)
      connection.connect(os.environ[ADDRESS])
      self._turns = connection.makefile('rw')

  def advance(self) -> None:
    """Ends the round that runs, if any, and begins the next, if any is left.

    Raises:
      EOFError: There are no more turns.
    """
    if self._start is not None:
      self.seconds.append(time.monotonic() - self._start)
      self._start = None
      if self._turns:
        self._turns.write('\n')
        self._turns.flush()
    if len(self.seconds) < self._num_rounds:
      if self._turns and not self._turns.readline():
        raise EOFError('There are no more turns.')
      self._start = time.monotonic()

  def __iter__(self) -> Iterator[int]:
    """Yields the number of each round, from 0 on, when it has begun."""
    for round_num in range(self._num_rounds):
      self.advance()
      yield round_num
    self.advance()
