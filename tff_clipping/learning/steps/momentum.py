"""Momentum at the clients."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tff_clipping import argument_checks
from tff_clipping.learning.steps import step_checks
from tff_clipping.learning.steps.local_step import LocalStep, StepContext
from tff_clipping.learning.steps.sgd import Sgd


@dataclasses.dataclass(frozen=True)
class Momentum(LocalStep):
  """The heavy ball: v ← β v + d', and the direction is v.

  v is zero at the start of each round, so that nothing of a client stays from
  round to round. d' is the direction of another step: the gradient with `Sgd`.
  Updates are up to 1 / (1 - β) times as long as without: choose the clipping
  norm, or the learning rate, anew.

  Attributes:
    momentum: β, at least 0 and below 1.
    step: Finds d'.

  Raises:
    TypeError: If `momentum` is not a number, or `step` not a `LocalStep`.
    ValueError: If `momentum` is out of range, or clients keep something for
      `step`.

  Source: Polyak 1964, as `tf.keras.optimizers.SGD(momentum=...)` has it; in
    local steps, Yu, Jin, Yang 2019 (arXiv 1905.03817), whose v is averaged with
    the models and not zero at the start.
  """

  momentum: float = 0.9
  step: LocalStep = Sgd()

  def __post_init__(self):
    argument_checks.check_non_negative('momentum', self.momentum)
    if self.momentum >= 1:
      raise ValueError(f'`momentum` must be below 1, found {self.momentum}.')
    step_checks.check_keeps_nothing('step', self.step)

  def begin(self, start: Sequence[tf.Tensor]) -> Any:
    """See `LocalStep`."""
    return [tf.zeros_like(value) for value in start], self.step.begin(start)

  def direction(
    self, context: StepContext, memory: Any
  ) -> tuple[list[tf.Tensor], Any]:
    """See `LocalStep`."""
    velocity, of_step = memory
    found, of_step = self.step.direction(context, of_step)
    velocity = [
      tf.cast(self.momentum, v.dtype) * v + d
      for v, d in zip(velocity, found, strict=True)
    ]
    return velocity, (velocity, of_step)
