"""Sharpness-aware minimization: the gradient where the loss is highest near."""

import dataclasses
from typing import Any

import tensorflow as tf

from tff_clipping import argument_checks
from tff_clipping.learning.steps.local_step import LocalStep, StepContext


@dataclasses.dataclass(frozen=True)
class SharpnessAware(LocalStep):
  """SAM: the gradient of the batch a way of ρ uphill, g(x + ρ g(x)/||g(x)||).

  Both gradients are of one batch, so that a step takes twice as long. The norm
  is that of all variables together. Where the gradient is zero, so is the way.

  Attributes:
    rho: ρ, positive and finite, in the unit of the model.

  Raises:
    TypeError: If `rho` is not a number.
    ValueError: If it is out of range.

  Source: Foret et al. 2021 (arXiv 2010.01412), with p = 2 and without terms of
    second order; in local steps before a clip and noise, Shi et al. 2023
    (DP-FedSAM, arXiv 2303.11242).
  """

  rho: float
  adds_up = True

  def __post_init__(self):
    argument_checks.check_positive('rho', self.rho)

  def direction(
    self, context: StepContext, memory: Any
  ) -> tuple[list[tf.Tensor], Any]:
    """See `LocalStep`."""
    gradient = context.gradient()
    norm = tf.linalg.global_norm([tf.cast(g, tf.float32) for g in gradient])
    scale = tf.math.divide_no_nan(tf.cast(self.rho, tf.float32), norm)
    uphill = [
      x + tf.cast(scale, x.dtype) * g
      for x, g in zip(context.model, gradient, strict=True)
    ]
    return context.gradient(uphill), memory
