"""A learning rate that changes over steps or rounds."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tff_clipping.learning.steps import step_checks
from tff_clipping.learning.steps.local_step import LocalStep, StepContext
from tff_clipping.learning.steps.sgd import Sgd


@dataclasses.dataclass(frozen=True)
class Scheduled(LocalStep):
  """A step of the learning rate η_l times a factor of its step and round.

  For example, half of the learning rate from round 100 on:

    Scheduled(lambda q, t: tf.where(t < 100, 1.0, 0.5))

  Attributes:
    factor: A TensorFlow function of the step's number q and the round's number
      t, both `int32` scalars from 0, that returns a real scalar.
    step: Finds the direction that is multiplied by it.

  Raises:
    TypeError: If `factor` is not a function, or `step` not a `LocalStep`.
    ValueError: If `factor` does not return one real number.

  Source: Alg. 1 (FedAvg), line 7, with an η_l for each q and t.
  """

  factor: Callable[[tf.Tensor, tf.Tensor], tf.Tensor]
  step: LocalStep = Sgd()

  def __post_init__(self):
    if not callable(self.factor):
      raise TypeError(
        '`factor` must be a function of the step and the round, found '
        f'{self.factor!r}.'
      )
    step_checks.check_is_step('step', self.step)
    with tf.Graph().as_default():
      number = tf.zeros([], tf.int32)
      found = tf.convert_to_tensor(self.factor(number, number))
    is_real = found.dtype.is_floating or found.dtype.is_integer
    if not is_real or found.shape.rank != 0:
      raise ValueError(
        '`factor` must return a real scalar, found '
        f'{found.dtype.name}{found.shape}.'
      )

  def begin(self, start: Sequence[tf.Tensor]) -> Any:
    """See `LocalStep`."""
    return self.step.begin(start)

  def direction(
    self, context: StepContext, memory: Any
  ) -> tuple[list[tf.Tensor], Any]:
    """See `LocalStep`."""
    found, memory = self.step.direction(context, memory)
    factor = self.factor(context.step, context.round_num)
    return [tf.cast(factor, d.dtype) * d for d in found], memory
