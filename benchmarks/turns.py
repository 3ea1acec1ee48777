"""The rounds of a program that is timed, each when its turn comes.

`benchmarks.alternate` starts the programs that are compared, and lets one of
them run at a time, for a round. A program that is started by hand has all
turns. The environments of the peers import this too: it needs the standard
library alone.
"""

import os
import time
from collections.abc import Iterator

# The variable that names a folder with two FIFOs. A program that takes turns
# reads a line from the first for each turn, and writes one to the second after.
FOLDER = 'BENCHMARK_TURNS'
FIFOS = ('start', 'end')
# The rounds before and after those that are timed. The first ones compile, and
# the last one has the evaluation and the checkpoint at the end of a run.
NUM_WARM_UP_ROUNDS = 2
NUM_LAST_ROUNDS = 1


def total_rounds(num_rounds: int) -> int:
  """Returns how many rounds a program runs of which so many are timed."""
  return NUM_WARM_UP_ROUNDS + num_rounds + NUM_LAST_ROUNDS


class Rounds:
  """Waits for each turn, and takes the time of each round."""

  def __init__(self, num_rounds: int):
    """Opens the FIFOs of the program that gives the turns, if there is one.

    Args:
      num_rounds: How many rounds are timed.
    """
    self._total = total_rounds(num_rounds)
    self._seconds: list[float] = []
    self._start: float | None = None
    self._turns = None
    folder = os.environ.get(FOLDER)
    if folder is not None:
      start, end = (os.path.join(folder, name) for name in FIFOS)
      self._turns = open(start), open(end, 'w')

  @property
  def seconds(self) -> list[float]:
    """The seconds of each timed round that has ended."""
    return self._seconds[NUM_WARM_UP_ROUNDS : self._total - NUM_LAST_ROUNDS]

  def advance(self) -> None:
    """Ends the round that runs, if any, and begins the next, if any is left.

    Raises:
      EOFError: There are no more turns.
    """
    if self._start is not None:
      self._seconds.append(time.monotonic() - self._start)
      self._start = None
      if self._turns is not None:
        print(file=self._turns[1], flush=True)
    if len(self._seconds) < self._total:
      if self._turns is not None and not self._turns[0].readline():
        raise EOFError('There are no more turns.')
      self._start = time.monotonic()

  def __iter__(self) -> Iterator[int]:
    """Yields the number of each round, from 0 on, when it has begun."""
    for round_num in range(self._total):
      self.advance()
      yield round_num
    self.advance()
