"""What a client does in a local step: the builders of `--local_step`.

TensorFlow takes seconds to import: builders import it where they build.
"""

import dataclasses
import math
from typing import TYPE_CHECKING, Any, ClassVar

from tasks.algorithms.algorithm import names_of
from tasks.settings.setting_fields import one_of, positive, setting
from tff_clipping import argument_checks

if TYPE_CHECKING:
  from tasks.algorithms.experiment import ExperimentConfig
  from tff_clipping.learning import steps


class LocalStepBuilder:
  """A local step of one kind, with the settings of a run.

  Attributes:
    name: As in `--local_step`.
    summary: What it is in a few words, for the help of `--local_step`.
    setting: The one of `LocalStepSettings` that it needs; `None` if none.
    keeps: Whether clients keep something for it from round to round.
  """

  name: ClassVar[str]
  summary: ClassVar[str]
  setting: ClassVar[str | None] = None
  keeps: ClassVar[bool] = False

  def build(
    self, value: Any, *, participation: float, clipping_norm: float
  ) -> 'steps.LocalStep':
    """Returns the step.

    Args:
      value: Of the setting that it needs.
      participation: P/N.
      clipping_norm: To what updates are clipped, or `math.inf`.
    """
    raise NotImplementedError


class _Sgd(LocalStepBuilder):
  name = 'sgd'
  summary = "the paper's"

  def build(self, value, **_):
    from tff_clipping.learning import steps

    del value
    return steps.Sgd()


class _Momentum(LocalStepBuilder):
  name = 'momentum'
  summary = 'the heavy ball, anew in each round'
  setting = 'local_momentum'

  def build(self, value, **_):
    from tff_clipping.learning import steps

    return steps.Momentum(value)


class _Proximal(LocalStepBuilder):
  name = 'proximal'
  summary = 'FedProx'
  setting = 'proximal_mu'

  def build(self, value, **_):
    from tff_clipping.learning import steps

    return steps.Proximal(value)


class _SharpnessAware(LocalStepBuilder):
  name = 'sharpness_aware'
  summary = "SAM, DP-FedSAM's, at twice the time"
  setting = 'sharpness_rho'

  def build(self, value, **_):
    from tff_clipping.learning import steps

    return steps.SharpnessAware(value)


class _Scaffold(LocalStepBuilder):
  name = 'scaffold'
  summary = 'SCAFFOLD, whose clients keep a control'
  keeps = True

  def build(self, value, *, participation, clipping_norm):
    from tff_clipping.learning import steps

    del value
    return steps.Scaffold(participation, clipping_norm)


class _FedPD(LocalStepBuilder):
  name = 'fed_pd'
  summary = 'FedPD, whose clients keep a dual vector'
  setting = 'fed_pd_penalty'
  keeps = True

  def build(self, value, *, participation, clipping_norm):
    from tff_clipping.learning import steps

    del participation
    return steps.FedPD(value, clipping_norm)


class _ErrorFeedback(LocalStepBuilder):
  name = 'error_feedback'
  summary = 'SGD, whose clients keep what they have sent: Clip21'
  keeps = True

  def build(self, value, *, participation, clipping_norm):
    from tff_clipping.learning import steps

    del value
    return steps.ErrorFeedback(participation, clipping_norm)


BUILDERS = {
  builder.name: builder()
  for builder in (
    _Sgd,
    _Momentum,
    _Proximal,
    _SharpnessAware,
    _Scaffold,
    _FedPD,
    _ErrorFeedback,
  )
}
# Under these a plan charges for what clients keep; see
# `tff_clipping.programs.checks.process_checks`.
_SAMPLINGS_TO_KEEP_UNDER = ('poisson', 'min_separation', 'shuffled_epochs')


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
  fed_pd_penalty: float | None = setting(
    'eta of --local_step=fed_pd, the inverse weight of the penalty.',
    None,
    check=positive,
  )
  client_rate_decay: float = setting(
    'eta_l in round t is --client_learning_rate times this to the power of t, '
    'from 0.',
    1.0,
    check=_check_decay,
  )


def check(config: 'ExperimentConfig') -> None:
  """Raises unless the step that is chosen takes the settings that are given.

  Args:
    config: The settings of the run.

  Raises:
    ValueError: If one is missing, is for another step, or does not fit a step
      whose clients keep something.
  """
  chosen = BUILDERS[config.local_step]
  if chosen.setting is not None and getattr(config, chosen.setting) is None:
    raise ValueError(
      f'`{chosen.setting}` must be given for `local_step` {chosen.name}.'
    )
  for name, builder in BUILDERS.items():
    value = builder.setting and getattr(config, builder.setting)
    if value is not None and builder is not chosen:
      raise ValueError(
        f'`{builder.setting}` must be given for `local_step` {name} only, '
        f'found {value} for {chosen.name}.'
      )
  if chosen.keeps:
    _check_keeping(config)


def _check_keeping(config: 'ExperimentConfig') -> None:
  """Raises for settings under which clients cannot keep something."""
  step = f'`local_step` {config.local_step}, whose clients keep something'
  if config.algorithm == 'model_clipping_fed_avg':
    raise ValueError(
      f'`algorithm` must not be {config.algorithm} for {step}: they send '
      'updates.'
    )
  for name, default, reason in (
    ('clipping', 'fixed', 'which follows updates that are cut to c'),
    ('aggregator', None, 'which has to know how updates are clipped'),
    ('client_rate_decay', 1.0, 'which takes one rate in all rounds'),
    ('estimate_repeats', 0, 'which have one value in a round'),
    ('audit_canaries', None, 'which canaries do not'),
  ):
    value = getattr(config, name)
    if value != default:
      raise ValueError(
        f'`{name}` must not be given for {step}, {reason}, found {value}.'
      )
  if config.is_private and config.sampling not in _SAMPLINGS_TO_KEEP_UNDER:
    raise ValueError(
      f'`sampling` must be one of {", ".join(_SAMPLINGS_TO_KEEP_UNDER)} for '
      f'{step}, found {config.sampling}: what they send tells who took part '
      'in earlier rounds, and no amplification by that sampling is proved then.'
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


def keeps(settings: LocalStepSettings) -> bool:
  """Returns whether clients keep something from round to round.

  Args:
    settings: Those of the run.
  """
  return BUILDERS[settings.local_step].keeps


def build(config: 'ExperimentConfig', num_clients: int) -> 'steps.LocalStep':
  """Returns the local step of a run.

  Args:
    config: The settings of the run.
    num_clients: N.
  """
  builder = BUILDERS[config.local_step]
  step = builder.build(
    builder.setting and getattr(config, builder.setting),
    participation=config.clients_per_round / num_clients,
    clipping_norm=config.clipping_norm or math.inf,
  )
  decay = config.client_rate_decay
  if decay == 1:
    return step
  import tensorflow as tf

  from tff_clipping.learning import steps

  return steps.Scheduled(
    lambda q, t: tf.pow(tf.constant(decay), tf.cast(t, tf.float32)), step
  )
