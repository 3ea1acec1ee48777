"""DP-FedAvg (Sec. 3), whose rounds have noise of their own."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tasks.algorithms import local_steps
from tasks.algorithms.algorithm import names_of
from tasks.algorithms.fed_avg import ClippedFedAvg
from tasks.algorithms.private import (
  AuditSettings,
  PrivateAlgorithm,
  ThresholdSettings,
  UnitSettings,
)

if TYPE_CHECKING:
  import tensorflow_federated as tff


class GaussianFedAvg(PrivateAlgorithm, ClippedFedAvg):
  """The mean of bounded updates with Gaussian noise, added at the server.

  Attributes:
    not_audited: Why it cannot be audited; empty if it can.
  """

  name = 'dp_fed_avg'
  summary = 'clips updates and adds noise'
  settings = (
    PrivateAlgorithm.settings
    | ClippedFedAvg.settings
    | names_of(ThresholdSettings, UnitSettings)
  )

  @property
  def not_audited(self) -> str:
    return (
      '' if self.bound.is_constant else 'whose clipping norm is not constant'
    )

  @property
  def refuses(self) -> Mapping[str, str]:
    audit = names_of(AuditSettings) if self.not_audited else ()
    return {**super().refuses, **dict.fromkeys(audit, self.not_audited)}

  def check(self) -> None:
    super().check()
    config = self.config
    self._check_threshold()
    if config.unit == 'client':
      return
    for name in ('examples_per_client', 'local_steps', 'batch_size'):
      if getattr(config, name) != 1:
        raise ValueError(
          f'`{name}` must be 1 for `unit` example: a whole update is bounded, '
          'which is the gradient of one example where a client has one and '
          f'takes one step; found {getattr(config, name)}.'
        )

  def _check_threshold(self) -> None:
    config = self.config
    if config.threshold_rounds is None:
      if config.threshold_factor is not None:
        raise ValueError(
          '`threshold_factor` must be given with `threshold_rounds`, found '
          f'{config.threshold_factor} without.'
        )
      return
    if config.target_epsilon is None:
      raise ValueError(
        '`target_epsilon` must be given with `threshold_rounds`, whose noise '
        'and that of training are found together, found '
        f'{config.noise_multiplier} as the `noise_multiplier`.'
      )
    if local_steps.keeps(config):
      raise ValueError(
        '`local_step` must be one whose clients keep nothing with '
        f'`threshold_rounds`, found {config.local_step}.'
      )

  def create_bits_process(
    self, plan, model_fn, **settings: Any
  ) -> 'tff.learning.templates.LearningProcess':
    """Returns the process of the rounds that estimate c.

    Args:
      plan: The plan of the run.
      model_fn: The model that clients train.
      **settings: The clients' work, as `learning.build_fed_avg` takes it.
    """
    from tff_clipping import learning
    from tff_clipping.programs.training import threshold_rounds

    seed, quantile = self.config.noise_seed, self.config.target_quantile
    aggregator = threshold_rounds.build_bits_aggregator(
      plan,
      noise_key='drawn' if seed is None else (1, seed),
      is_secure=self.config.aggregation == 'secure',
      target_quantile=0.5 if quantile is None else quantile,
    )
    return learning.build_fed_avg(
      model_fn, model_aggregator=aggregator, **settings
    )

  def create_aggregator(self, plan, model_fn, user_aggregator=None):
    return self.bound.create_private_mean(
      model_fn,
      **plan.aggregator_parameters._asdict(),
      noise_key=self.noise_key(),
    )

  def _plan_settings(self, num_clients: int) -> dict[str, Any]:
    return super()._plan_settings(num_clients) | {'unit': self.config.unit}
