"""SCAFFOLD, whose control variates cost no privacy."""

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
class Scaffold(KeepingStep):
  """SCAFFOLD: the direction is d' − c_i + c.

  A client keeps the control c_i, an estimate of its gradient, and the server
  shares c, an estimate of the mean of these. Both follow the clipped updates,
  for a fraction P/N of the clients in a round:

      c_i⁺ = c_i − c − clip(Δ_i, C)/(Q η_l)
      c⁺   = (1 − P/N) c − (P/N) Δ̃/(Q η_l)

  where Δ̃ is the aggregate that is released: the mean of the clipped updates,
  and under DP with its noise. So no control is ever sent, c is made of what is
  released anyway, and without noise, in cohorts of P, it is the mean of the c_i
  of all clients. With P = N it is VRL-SGD.

  Departs from its source: the controls take the clipped updates, the server's
  comes from the aggregate, and clients do not send the change of theirs as a
  second vector.

  Attributes:
    participation: P/N, the fraction of the clients that takes part in a round,
      in (0, 1]; of a sampler, the expected one.
    clipping_norm: C, that of the aggregator; `math.inf` if it does not clip.
    step: Finds d': the gradient with `Sgd`.

  Raises:
    TypeError: If a number is none, or `step` not a `LocalStep`.
    ValueError: If a number is out of range, or clients keep something for
      `step`.

  Source: Karimireddy et al. 2020 (arXiv 1910.06378), Algorithm 1, option II;
    Liang et al. 2019 (VRL-SGD, arXiv 1912.12844).
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
    found, memory = self.step.direction(context, memory)
    kept = context.kept
    direction = [
      d - own + shared
      for d, own, shared in zip(found, kept.own, kept.shared, strict=True)
    ]
    return direction, memory

  def keep(
    self,
    update: Sequence[tf.Tensor],
    sent: Sequence[tf.Tensor],
    kept: Kept,
    *,
    way: float,
  ) -> Sequence[tf.Tensor]:
    """See `KeepingStep`."""
    return [
      own - shared - s / tf.cast(way, s.dtype)
      for own, shared, s in zip(kept.own, kept.shared, sent, strict=True)
    ]

  def share(
    self,
    aggregate: Sequence[tf.Tensor],
    shared: Sequence[tf.Tensor],
    *,
    way: float,
  ) -> Sequence[tf.Tensor]:
    """See `KeepingStep`."""
    fraction = self.participation
    return [
      tf.cast(1 - fraction, c.dtype) * c
      - tf.cast(fraction / way, c.dtype) * mean
      for c, mean in zip(shared, aggregate, strict=True)
    ]
