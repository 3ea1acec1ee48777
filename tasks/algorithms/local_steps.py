"""What a client does in a local step: the kinds of `--local_step`."""

import dataclasses
import math
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from tasks.settings.setting_fields import one_of, positive, setting
from tff_clipping import argument_checks

if TYPE_CHECKING:
  from tasks.algorithms.experiment import ExperimentConfig
  from tff_clipping.learning import steps


class _Kind(NamedTuple):
  """A kind of local step, by its name in `--local_step` a value of `_KINDS`.

  Attributes:
    summary: What it is in a few words, for the help of `--local_step`.
    build: Returns the step, of the module with the steps, the value of
      `setting`, P/N, and the norm to which updates are clipped, or `math.inf`.
    setting: The one of `LocalStepSettings` that it needs; `None` if none.
    keeps: Whether clients keep something for it from round to round.
  """

  summary: str
  build: Callable[[ModuleType, Any, float, float], 'steps.LocalStep']
  setting: str | None = None
  keeps: bool = False


_KINDS: Mapping[str, _Kind] = {
  'sgd': _Kind("the paper's", lambda steps, *_: steps.Sgd()),
  'momentum': _Kind(
    'the heavy ball, anew in each round',
    lambda steps, beta, *_: steps.Momentum(beta),
    setting='local_momentum',
  ),
  'proximal': _Kind(
    'FedProx',
    lambda steps, mu, *_: steps.Proximal(mu),
    setting='proximal_mu',
  ),
  'scaffold': _Kind(
    'SCAFFOLD, whose clients keep a control',
    lambda steps, _, share, norm: steps.Scaffold(share, norm),
    keeps=True,
  ),
}
# Under these a plan charges for what clients keep; see
# `tff_clipping.programs.checks.process_checks`.
_SAMPLINGS_TO_KEEP_UNDER = ('poisson', 'min_separation')


def _check_momentum(name: str, value: Any) -> None:
  argument_checks.check_positive(name, value)
  if value >= 1:
    raise ValueError(f'`{name}` must be below 1, found {value}.')


@dataclasses.dataclass(frozen=True, kw_only=True)
class LocalStepSettings:
  """The settings of local steps; all have a default that chooses SGD."""

  local_step: str = setting(
    'What a client does in a step. '
    + '; '.join(f'{name}: {kind.summary}' for name, kind in _KINDS.items())
    + '. Clip and noise come after; see docs/recipes.md.',
    'sgd',
    check=one_of(*_KINDS),
  )
  local_momentum: float | None = setting(
    'beta of --local_step=momentum, below 1.', None, check=_check_momentum
  )
  proximal_mu: float | None = setting(
    'mu of --local_step=proximal.', None, check=positive
  )


def check(config: 'ExperimentConfig') -> None:
  """Raises unless the step that is chosen takes the settings that are given.

  Args:
    config: The settings of the run.

  Raises:
    ValueError: If one is missing, is for another step, or does not fit a step
      whose clients keep something.
  """
  chosen = _KINDS[config.local_step]
  if chosen.setting is not None and getattr(config, chosen.setting) is None:
    raise ValueError(
      f'`{chosen.setting}` must be given for `local_step` {config.local_step}.'
    )
  for name, kind in _KINDS.items():
    value = kind.setting and getattr(config, kind.setting)
    if value is not None and name != config.local_step:
      raise ValueError(
        f'`{kind.setting}` must be given for `local_step` {name} only, '
        f'found {value} for {config.local_step}.'
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


def keeps(settings: LocalStepSettings) -> bool:
  """Returns whether clients keep something from round to round.

  Args:
    settings: Those of the run.
  """
  return _KINDS[settings.local_step].keeps


def build(config: 'ExperimentConfig', num_clients: int) -> 'steps.LocalStep':
  """Returns the local step of a run.

  Args:
    config: The settings of the run.
    num_clients: N.
  """
  # TensorFlow takes seconds to import.
  from tff_clipping.learning import steps

  kind = _KINDS[config.local_step]
  return kind.build(
    steps,
    kind.setting and getattr(config, kind.setting),
    config.clients_per_round / num_clients,
    config.clipping_norm or math.inf,
  )
