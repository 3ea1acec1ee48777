"""Clipped error feedback: what the clip cuts off is sent in later rounds."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tff_clipping.learning.steps import step_checks
from tff_clipping.learning.steps.keeping_step import KeepingStep, Kept
from tff_clipping.learning.steps.local_step import LocalStep, StepContext
from tff_clipping.learning.steps.sgd import Sgd


@dataclasses.dataclass(frozen=True)
class ErrorFeedback(KeepingStep):
  """Clipped error feedback: the direction is that of another step.

  A client keeps v_i, the sum of all that it has sent, and sends the clipped
  rest of its update. The server shares v, the mean of the v_i of all N clients,
  and moves the model by it:

      v_i⁺ = v_i + clip(Δ_i − v_i, C)
      v⁺   = v + (P/N) Δ̃,   x⁺ = x + η_g v⁺

  where Δ̃ is the aggregate that is released, so that v is made of what is
  released anyway. Noise adds up in v: after t rounds it is √t times that of one
  round, and each round moves the model by all of it.

  Departs from its source: the update of Q local steps takes the place of a
  gradient, and a cohort of P that of all clients.

  Attributes:
    participation: P/N, the fraction of the clients that takes part in a round,
      in (0, 1]; of a sampler, the expected one.
    clipping_norm: C, that of the aggregator; `math.inf` if it does not clip.
    step: Finds the direction: the gradient with `Sgd`.

  Raises:
    TypeError: If a number is none, or `step` not a `LocalStep`.
    ValueError: If a number is out of range, or clients keep something for
      `step`.

  Source: Khirirat et al. 2023 (Clip21, arXiv 2305.18929).
  """

  participation: float
  clipping_norm: float = math.inf
  step: LocalStep = Sgd()

  shares = True

  def __post_init__(self):
    step_checks.check_participation(self.participation)
    step_checks.check_keeping(self.clipping_norm, self.step)

  def begin(self, start: Sequence[tf.Tensor]) -> Any:
    """See `LocalStep`."""
    return self.step.begin(start)

  def direction(
    self, context: StepContext, memory: Any
  ) -> tuple[list[tf.Tensor], Any]:
    """See `LocalStep`."""
    return self.step.direction(context, memory)

  def send(
    self, update: Sequence[tf.Tensor], kept: Kept
  ) -> Sequence[tf.Tensor]:
    """See `KeepingStep`."""
    return [u - own for u, own in zip(update, kept.own, strict=True)]

  def keep(
    self,
    update: Sequence[tf.Tensor],
    sent: Sequence[tf.Tensor],
    kept: Kept,
    *,
    way: float,
  ) -> Sequence[tf.Tensor]:
    """See `KeepingStep`."""
    del update, way
    return [own + s for own, s in zip(kept.own, sent, strict=True)]

  def share(
    self,
    aggregate: Sequence[tf.Tensor],
    shared: Sequence[tf.Tensor],
    *,
    way: float,
  ) -> Sequence[tf.Tensor]:
    """See `KeepingStep`."""
    del way
    return [
      v + tf.cast(self.participation, v.dtype) * mean
      for v, mean in zip(shared, aggregate, strict=True)
    ]

  def move(
    self, aggregate: Sequence[tf.Tensor], shared: Sequence[tf.Tensor]
  ) -> Sequence[tf.Tensor]:
    """See `KeepingStep`."""
    del aggregate
    return shared
