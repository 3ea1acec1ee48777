"""Local steps: the direction of a client's steps from batch to batch.

A client goes from the global model x^t = x_i^{t,0} in Q steps,

    x_i^{t,q+1} = x_i^{t,q} - eta_l d_i^{t,q},

and a `LocalStep` finds the direction d_i^{t,q}: in the paper the gradient of a
batch. Clip and noise come after the last step, so that no step changes a
guarantee of privacy.

  process = learning.build_fed_avg(..., local_step=steps.Proximal(0.1))

For a step of your own, write a subclass of `LocalStep`, or of `KeepingStep`
where clients keep something from round to round; examples/fed_pd.py is one.
"""

import abc
import dataclasses
import math
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import tensorflow as tf

from tff_clipping import argument_checks
from tff_clipping.aggregators import l2_clip
from tff_clipping.learning.step_context import StepContext

__all__ = [
  'Kept',
  'KeepingStep',
  'LocalStep',
  'Momentum',
  'Proximal',
  'Scaffold',
  'Sgd',
  'StepContext',
]


class LocalStep(abc.ABC):
  """Finds the direction of each local step of a client.

  A subclass is an object of numbers, built once and traced into a graph: it
  must not keep anything itself. A client's step passes `memory`, a structure of
  tensors, to its next step; it begins anew in each round.

  Attributes:
    adds_up: Whether Q steps with the same gradient end where one step that is
      Q times as long ends. If so, a canary of an audit, whose loss is linear,
      takes one step in place of Q.
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
      context: What the step can read: the model, the gradient of the batch.
      memory: What the step before returned, or `begin`.

    Returns:
      d_i^{t,q}, of the shapes and types of the trainable variables, and a
      structure as `memory` is.
    """


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
  """A local step whose clients keep something from round to round.

  After the last local step a client sends `send(...)`, clipped to
  `clipping_norm`, and keeps `keep(...)` until it takes part again. The server
  computes what it shares from the round's aggregate alone, which is released
  anyway: sharing costs no privacy.

  What a client sends depends on its data and on earlier releases, and is
  clipped. It also depends on the rounds in which the client took part, so that
  not every plan charges for it: see `programs.checks.process_checks`.

  The loss of a client without examples is 0: it takes its steps all the same,
  and what it keeps moves it.

  Attributes:
    clipping_norm: The norm to which a client clips what it sends, before the
      aggregator clips; `math.inf` for no clip here. Privacy rests on the
      aggregator's clip.
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

    If that is not finite, the client keeps what it had.

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


@dataclasses.dataclass(frozen=True)
class Momentum(LocalStep):
  """The heavy ball: v ← β v + d', and the direction is v.

  v is zero at the start of each round, so that a client keeps nothing between
  rounds. d' is the direction of another step: the gradient with `Sgd`.
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
    check_keeps_nothing('step', self.step)

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
      tf.constant(self.momentum, v.dtype) * v + d
      for v, d in zip(velocity, found, strict=True)
    ]
    return velocity, (velocity, of_step)


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
    check_keeps_nothing('step', self.step)

  def begin(self, start: Sequence[tf.Tensor]) -> Any:
    """See `LocalStep`."""
    return self.step.begin(start)

  def direction(
    self, context: StepContext, memory: Any
  ) -> tuple[list[tf.Tensor], Any]:
    """See `LocalStep`."""
    found, memory = self.step.direction(context, memory)
    direction = [
      d + tf.constant(self.mu, d.dtype) * (x - x0)
      for d, x, x0 in zip(found, context.model, context.start, strict=True)
    ]
    return direction, memory


@dataclasses.dataclass(frozen=True)
class Scaffold(KeepingStep):
  """SCAFFOLD: the direction is d' − c_i + c.

  A client keeps the control c_i, an estimate of its gradient, and the server
  shares c, an estimate of the mean of these. Both follow the clipped updates,
  for a fraction P/N of the clients in a round:

      c_i⁺ = c_i − c − clip(Δ_i, C)/(Q η_l)
      c⁺   = (1 − P/N) c − (P/N) Δ̃/(Q η_l)

  where Δ̃ is the released aggregate: the mean of the clipped updates, under DP
  with noise. So no control is ever sent, and c is computed from releases.
  Without noise, in cohorts of P, c is the mean of the c_i of all clients. With
  P = N it is VRL-SGD.

  Departs from its source: the controls follow the clipped updates, the server's
  control follows the aggregate, and clients do not send the change of their
  control as a second vector.

  Attributes:
    participation: P/N, the (expected) fraction of the clients that takes part
      in a round, in (0, 1].
    clipping_norm: C of the aggregator; `math.inf` if it does not clip.
    step: Finds d': the gradient with `Sgd`.

  Raises:
    TypeError: If a number is no number, or `step` not a `LocalStep`.
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
    argument_checks.check_positive('participation', self.participation)
    if self.participation > 1:
      raise ValueError(
        f'`participation` must be at most 1, found {self.participation}.'
      )
    if self.clipping_norm != math.inf:
      l2_clip.check_clipping_norm('clipping_norm', self.clipping_norm)
    check_keeps_nothing('step', self.step)

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
      own - shared - s / tf.constant(way, s.dtype)
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
      tf.constant(1 - fraction, c.dtype) * c
      - tf.constant(fraction / way, c.dtype) * mean
      for c, mean in zip(shared, aggregate, strict=True)
    ]


def check_is_step(name: str, value: Any) -> None:
  """Raises TypeError unless the argument called `name` is a `LocalStep`.

  Args:
    name: The argument's name.
    value: What was given.
  """
  if not isinstance(value, LocalStep):
    raise TypeError(
      f'`{name}` must be a `tff_clipping.learning.steps.LocalStep`, such as '
      f'`Sgd()`, found {value!r}.'
    )


def check_keeps_nothing(name: str, value: Any) -> None:
  """Raises unless the argument called `name` keeps nothing between rounds.

  Args:
    name: The argument's name.
    value: What was given.

  Raises:
    TypeError: If it is not a `LocalStep`.
    ValueError: If its clients keep something.
  """
  check_is_step(name, value)
  if isinstance(value, KeepingStep):
    raise ValueError(
      f'`{name}` must keep nothing from round to round here, found {value!r}; '
      'it is for `build_fed_avg`, and takes other steps as its own `step`.'
    )
