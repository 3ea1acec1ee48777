"""What the accountants have in common."""

from typing import Protocol


class ComposedCost(Protocol):
  """What rounds cost together, one or more of each mechanism."""

  def compute_epsilon(self, num_rounds: int, delta: float) -> float:
    """Returns the epsilon of `num_rounds` times the rounds; inf if unknown."""

  def compute_delta(self, num_rounds: int, epsilon: float) -> float:
    """Returns the delta of `num_rounds` times the rounds, in [0, 1]."""
