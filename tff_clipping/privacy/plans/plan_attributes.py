"""What a plan is made of, by name, for type checkers."""

from typing import TypedDict

from tff_clipping.privacy import correlated_noise


class PlanAttributes(TypedDict, total=False):
  """The attributes of all plans.

  Without noise and epsilon: a constructor is named for which of them it takes.
  """

  num_clients: int
  clients_per_round: int
  num_rounds: int
  target_delta: float
  sampling: str
  # Of a `PrivacyPlan`.
  accountant: str
  # Of a `CorrelatedNoisePlan`.
  strategy: correlated_noise.NoiseStrategy
  min_separation: int
