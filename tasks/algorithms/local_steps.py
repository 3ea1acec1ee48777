"""What a client does in a local step: the builders of `--local_step`.

TensorFlow takes seconds to import: builders import it where they build.
"""

import dataclasses
from typing import TYPE_CHECKING, Any, ClassVar

from tasks.algorithms.algorithm import names_of
from tasks.settings.setting_fields import one_of, positive, setting
from tff_clipping import argument_checks

if TYPE_CHECKING:
  from tff_clipping.learning import steps


class LocalStepBuilder:
  """A local step of one kind, with the settings of a run.

  Attributes:
    name: As in `--local_step`.
    summary: What it is in a few words, for the help of `--local_step`.
    setting: The one of `LocalStepSettings` that it needs; `None` if none.
  """

  name: ClassVar[str]
  summary: ClassVar[str]
  setting: ClassVar[str | None] = None

  def build(self, value: Any) -> 'steps.LocalStep':
    """Returns the step.

    Args:
      value: Of the setting that it needs.
    """
    raise NotImplementedError


class _Sgd(LocalStepBuilder):
  name = 'sgd'
  summary = "the paper's"

  def build(self, value):
    from tff_clipping.learning import steps

    del value
    return steps.Sgd()


class _Momentum(LocalStepBuilder):
  name = 'momentum'
  summary = 'the heavy ball, anew in each round'
  setting = 'local_momentum'

  def build(self, value):
    from tff_clipping.learning import steps

    return steps.Momentum(value)


class _Proximal(LocalStepBuilder):
  name = 'proximal'
  summary = 'FedProx'
  setting = 'proximal_mu'

  def build(self, value):
    from tff_clipping.learning import steps

    return steps.Proximal(value)


class _SharpnessAware(LocalStepBuilder):
  name = 'sharpness_aware'
  summary = "SAM, DP-FedSAM's, at twice the time"
  setting = 'sharpness_rho'

  def build(self, value):
    from tff_clipping.learning import steps

    return steps.SharpnessAware(value)


BUILDERS = {
  builder.name: builder()
  for builder in (_Sgd, _Momentum, _Proximal, _SharpnessAware)
}


def _check_momentum(name: str, value: Any) -> None:
  argument_checks.check_positive(name, value)
  if value >= 1:
    raise ValueError(f'`{name}` must be below 1, found {value}.')


def _check_decay(name: str, value: Any) -> None:
  argument_checks.check_positive(name, value)
  if value > 1:
    raise ValueError(f'`{name}` must be at most 1, found {value}.')


@dataclasses.dataclass(frozen=True, kw_only=True)
class LocalStepSettings:
  """The settings of local steps; all have a default that chooses SGD."""

  local_step: str = setting(
    'What a client does in a step. '
    + '; '.join(f'{name}: {b.summary}' for name, b in BUILDERS.items())
    + '. Clip and noise come after; see docs/recipes.md.',
    'sgd',
    check=one_of(*BUILDERS),
  )
  local_momentum: float | None = setting(
    'beta of --local_step=momentum, below 1.', None, check=_check_momentum
  )
  proximal_mu: float | None = setting(
    'mu of --local_step=proximal.', None, check=positive
  )
  sharpness_rho: float | None = setting(
    'rho of --local_step=sharpness_aware.', None, check=positive
  )
  client_rate_decay: float = setting(
    'eta_l in round t is --client_learning_rate times this to the power of t, '
    'from 0.',
    1.0,
    check=_check_decay,
  )


def check(settings: LocalStepSettings) -> None:
  """Raises unless the step that is chosen takes the settings that are given.

  Args:
    settings: Those of the run.

  Raises:
    ValueError: If one is missing, or is for another step.
  """
  needed = BUILDERS[settings.local_step].setting
  if needed is not None and getattr(settings, needed) is None:
    raise ValueError(
      f'`{needed}` must be given for `local_step` {settings.local_step}.'
    )
  for name, builder in BUILDERS.items():
    value = builder.setting and getattr(settings, builder.setting)
    if value is not None and name != settings.local_step:
      raise ValueError(
        f'`{builder.setting}` must be given for `local_step` {name} only, '
        f'found {value} for {settings.local_step}.'
      )


def is_plain(settings: LocalStepSettings) -> bool:
  """Returns whether the local steps are those of the paper.

  Args:
    settings: Those of the run.
  """
  return all(
    getattr(settings, name) == getattr(LocalStepSettings(), name)
    for name in names_of(LocalStepSettings)
  )


def build(settings: LocalStepSettings) -> 'steps.LocalStep':
  """Returns the local step of a run.

  Args:
    settings: Those of the run, checked.
  """
  builder = BUILDERS[settings.local_step]
  step = builder.build(builder.setting and getattr(settings, builder.setting))
  decay = settings.client_rate_decay
  if decay == 1:
    return step
  import tensorflow as tf

  from tff_clipping.learning import steps

  return steps.Scheduled(
    lambda q, t: tf.pow(tf.constant(decay), tf.cast(t, tf.float32)), step
  )
