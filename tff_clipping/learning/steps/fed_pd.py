"""FedPD, the primal-dual way to local steps."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tff_clipping import argument_checks
from tff_clipping.learning.steps import step_checks
from tff_clipping.learning.steps.keeping_step import KeepingStep, Kept
from tff_clipping.learning.steps.local_step import LocalStep, StepContext
from tff_clipping.learning.steps.sgd import Sgd


@dataclasses.dataclass(frozen=True)
class FedPD(KeepingStep):
  """FedPD: the direction is d' + λ_i + (x_i^{t,q} − x^t)/η.

  A client keeps the dual vector λ_i. Its local steps go down its part of the
  augmented Lagrangian, from x^t to x_i:

      λ_i⁺ = λ_i + (x_i − x^t)/η,   and x_i + η λ_i⁺ − x^t is sent.

  Departs from its source: the local steps start at the global model, and not at
  the client's last one; the clients of a cohort take part, in place of all or
  none; and what is sent may be clipped.

  Attributes:
    penalty: η, the inverse weight of the penalty, positive and finite.
    clipping_norm: That of the aggregator; `math.inf` if it does not clip.
    step: Finds d': the gradient with `Sgd`.

  Raises:
    TypeError: If a number is none, or `step` not a `LocalStep`.
    ValueError: If a number is out of range, or clients keep something for
      `step`.

  Source: Zhang, Hong, Dhople, Yin, Liu 2020 (arXiv 2005.11418), Algorithm 1
    with Oracle I.
  """

  penalty: float
  clipping_norm: float = math.inf
  step: LocalStep = Sgd()

  def __post_init__(self):
    argument_checks.check_positive('penalty', self.penalty)
    step_checks.check_keeping(self.clipping_norm, self.step)

  def begin(self, start: Sequence[tf.Tensor]) -> Any:
    """See `LocalStep`."""
    return self.step.begin(start)

  def direction(
    self, context: StepContext, memory: Any
  ) -> tuple[list[tf.Tensor], Any]:
    """See `LocalStep`."""
    found, memory = self.step.direction(context, memory)
    direction = [
      d + dual + (x - x0) / tf.cast(self.penalty, d.dtype)
      for d, dual, x, x0 in zip(
        found, context.kept.own, context.model, context.start, strict=True
      )
    ]
    return direction, memory

  def send(
    self, update: Sequence[tf.Tensor], kept: Kept
  ) -> Sequence[tf.Tensor]:
    """See `KeepingStep`."""
    return [
      u + tf.cast(self.penalty, u.dtype) * dual
      for u, dual in zip(update, self._next_dual(update, kept), strict=True)
    ]

  def keep(
    self,
    update: Sequence[tf.Tensor],
    sent: Sequence[tf.Tensor],
    kept: Kept,
    *,
    way: float,
  ) -> Sequence[tf.Tensor]:
    """See `KeepingStep`."""
    del sent, way
    return self._next_dual(update, kept)

  def _next_dual(
    self, update: Sequence[tf.Tensor], kept: Kept
  ) -> Sequence[tf.Tensor]:
    return [
      dual + u / tf.cast(self.penalty, u.dtype)
      for dual, u in zip(kept.own, update, strict=True)
    ]
