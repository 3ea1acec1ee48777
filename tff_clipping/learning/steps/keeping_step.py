"""Local steps whose clients keep something from round to round."""

import abc
from collections.abc import Sequence
from typing import ClassVar, NamedTuple

import tensorflow as tf

from tff_clipping.learning.steps.local_step import LocalStep


class Kept(NamedTuple):
  """What a keeping step finds in `StepContext.kept`.

  Attributes:
    own: What the client keeps, of the shapes of the trainable variables; zeros
      until its first round. It never leaves the trusted side.
    shared: What the server makes of its releases for all clients, of the same
      shapes and zeros at first; an empty list unless the step has `shares`.
  """

  own: Sequence[tf.Tensor]
  shared: Sequence[tf.Tensor]


class KeepingStep(LocalStep):
  """A local step, and what a client keeps, sends and is sent with it.

  After the last local step a client sends `send(...)`, clipped to
  `clipping_norm`, and keeps `keep(...)` until it takes part again. The server
  makes what it shares of the aggregate of the round alone, which is released
  anyway: sharing costs no privacy.

  What a client sends depends on its data and on what was released before, and
  is clipped as ever. But it depends on the rounds in which the client took part
  as well, so that not every plan charges for it: see
  `programs.checks.process_checks`.

  Attributes:
    clipping_norm: To what a client clips what it sends, before the aggregator
      does; `math.inf` not to. The aggregator's clip is what privacy rests on.
    shares: Whether the server shares something with the clients.
  """

  clipping_norm: float
  shares: ClassVar[bool] = False

  def send(
    self, update: Sequence[tf.Tensor], kept: Kept
  ) -> Sequence[tf.Tensor]:
    """Returns what is sent, before the clip; the update by default.

    Args:
      update: Δ_i, the model after the local steps less the global one.
      kept: What the client had in this round.
    """
    del kept
    return update

  @abc.abstractmethod
  def keep(
    self,
    update: Sequence[tf.Tensor],
    sent: Sequence[tf.Tensor],
    kept: Kept,
    *,
    way: float,
  ) -> Sequence[tf.Tensor]:
    """Returns what the client keeps next.

    Args:
      update: Δ_i.
      sent: What it sent: clipped, and zeros if it was not finite.
      kept: What the client had in this round.
      way: Q η_l.
    """

  def share(
    self,
    aggregate: Sequence[tf.Tensor],
    shared: Sequence[tf.Tensor],
    *,
    way: float,
  ) -> Sequence[tf.Tensor]:
    """Returns what the server shares next; by default what it shared.

    Args:
      aggregate: What the aggregator made of what the clients sent. A round
        whose aggregate is not finite changes nothing, and is not given here.
      shared: What it shared in this round.
      way: Q η_l.
    """
    del aggregate, way
    return shared

  def move(
    self, aggregate: Sequence[tf.Tensor], shared: Sequence[tf.Tensor]
  ) -> Sequence[tf.Tensor]:
    """Returns what the server's step goes along; the aggregate by default.

    Args:
      aggregate: As for `share`.
      shared: What `share` has returned.
    """
    del shared
    return aggregate
