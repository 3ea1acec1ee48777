"""What a local step is, and what it is told.

A client goes from the global model x^t = x_i^{t,0} in Q steps,

    x_i^{t,q+1} = x_i^{t,q} - eta_l d_i^{t,q},

and a step finds the direction d_i^{t,q}: in the paper the gradient of a batch.
Clip and noise come after the last one, so that no step changes what a guarantee
of privacy is for.
"""

import abc
from collections.abc import Sequence
from typing import Any, ClassVar

import tensorflow as tf


class StepContext(abc.ABC):
  """Where a client is in its round, and what a step can ask there.

  Tensors of the model are lists in the order of its trainable variables, and of
  their shapes and types. What a step does not ask for is not computed.

  Attributes:
    start: x^t, the global model of the round.
    step: q, the number of the step from 0, an `int32` scalar.
    round_num: t, the number of the round from 0, an `int32` scalar.
    kept: What the client keeps or was sent for its steps: the same in all steps
      of a round. An empty tuple but for a `KeepingStep`, which finds `Kept`.
  """

  start: Sequence[tf.Tensor]
  step: tf.Tensor
  round_num: tf.Tensor
  kept: Any

  @property
  @abc.abstractmethod
  def model(self) -> list[tf.Tensor]:
    """x_i^{t,q}, where the client is."""

  @property
  @abc.abstractmethod
  def key(self) -> tf.Tensor:
    """A stateless seed of this client, round and step, `int32`, shape `[2]`."""

  @abc.abstractmethod
  def gradient(
    self, point: Sequence[tf.Tensor] | None = None
  ) -> list[tf.Tensor]:
    """The gradient of the mean loss of the step's batch.

    Each call is a pass forward and back through the model. Where the model
    draws, as dropout does, each call draws anew.

    Args:
      point: Where; `model` if not given, which costs no copy.

    Returns:
      The gradient, with zeros for variables that the loss does not depend on.
    """


class LocalStep(abc.ABC):
  """Finds the direction of each local step of a client.

  A subclass is an object of numbers, built once and traced into a graph: it
  must not keep anything itself. What it remembers from one step of a client to
  the next is `memory`, a structure of tensors, which begins anew in each round.

  Attributes:
    adds_up: Whether Q steps that all have one gradient go where one step goes
      that is Q times as long. A client of an audit, whose loss is linear, takes
      one step then in place of Q.
  """

  adds_up: ClassVar[bool] = False

  def begin(self, start: Sequence[tf.Tensor]) -> Any:
    """Returns what is remembered before the first step; nothing by default.

    Args:
      start: x^t, the global model of the round.
    """
    del start
    return ()

  @abc.abstractmethod
  def direction(
    self, context: StepContext, memory: Any
  ) -> tuple[list[tf.Tensor], Any]:
    """Returns the direction to go against, and what is remembered next.

    Args:
      context: Where the client is.
      memory: What the step before returned, or `begin`.

    Returns:
      d_i^{t,q}, of the shapes and types of the trainable variables, and a
      structure as `memory` is.
    """
