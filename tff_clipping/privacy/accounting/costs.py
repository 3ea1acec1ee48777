"""What the accountants have in common."""

from typing import Protocol


class Rounds(Protocol):
  """Equal rounds of one mechanism, as an accountant sees them."""

  def compute_epsilon(self, num_rounds: int, delta: float) -> float:
    """Returns the epsilon of `num_rounds` rounds at `delta`."""

  def compute_delta(self, num_rounds: int, epsilon: float) -> float:
    """Returns the delta of `num_rounds` rounds at `epsilon`."""
