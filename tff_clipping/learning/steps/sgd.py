"""The step of the paper."""

import dataclasses
from typing import Any

import tensorflow as tf

from tff_clipping.learning.steps.local_step import LocalStep, StepContext


@dataclasses.dataclass(frozen=True)
class Sgd(LocalStep):
  """Plain SGD: the direction is the gradient of the batch, d = g.

  Source: Alg. 1 (FedAvg), lines 6 and 7.
  """

  adds_up = True

  def direction(
    self, context: StepContext, memory: Any
  ) -> tuple[list[tf.Tensor], Any]:
    """See `LocalStep`."""
    return context.gradient(), memory
