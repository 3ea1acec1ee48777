"""FedProx: the global model holds a client back."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tff_clipping import argument_checks
from tff_clipping.learning.steps import step_checks
from tff_clipping.learning.steps.local_step import LocalStep, StepContext
from tff_clipping.learning.steps.sgd import Sgd


@dataclasses.dataclass(frozen=True)
class Proximal(LocalStep):
  """FedProx: the direction is d' + μ (x_i^{t,q} - x^t).

  With `Sgd` for d' it is the gradient of f_i(x) + μ/2 ||x - x^t||². Updates are
  shorter than without, so that less of them is clipped.

  Departs from its source: all clients take Q steps, in place of as many as make
  a local problem exact enough.

  Attributes:
    mu: μ, positive and finite.
    step: Finds d'.

  Raises:
    TypeError: If `mu` is not a number, or `step` not a `LocalStep`.
    ValueError: If `mu` is out of range, or clients keep something for
      `step`.

  Source: Li et al. 2020 (arXiv 1812.06127), Algorithm 2.
  """

  mu: float
  step: LocalStep = Sgd()

  def __post_init__(self):
    argument_checks.check_positive('mu', self.mu)
    step_checks.check_keeps_nothing('step', self.step)

  def begin(self, start: Sequence[tf.Tensor]) -> Any:
    """See `LocalStep`."""
    return self.step.begin(start)

  def direction(
    self, context: StepContext, memory: Any
  ) -> tuple[list[tf.Tensor], Any]:
    """See `LocalStep`."""
    found, memory = self.step.direction(context, memory)
    direction = [
      d + tf.cast(self.mu, d.dtype) * (x - x0)
      for d, x, x0 in zip(found, context.model, context.start, strict=True)
    ]
    return direction, memory
