"""DP-FedAvg with noise that is correlated between rounds."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from tasks.algorithms.algorithm import names_of
from tasks.algorithms.gaussian import GaussianFedAvg
from tasks.settings.setting_fields import one_of, setting
from tff_clipping import privacy
from tff_clipping.privacy.correlated_noise import separated_sampling


@dataclasses.dataclass(frozen=True, kw_only=True)
class MechanismSettings:
  """The setting that chooses the noise."""

  mechanism: str = setting(
    "The noise of dp_fed_avg: gaussian (each round's own), or correlated "
    'between rounds: banded or blt.',
    'gaussian',
    check=one_of(*privacy.MECHANISMS),
  )


class CorrelatedFedAvg(GaussianFedAvg):
  """As DP-FedAvg, and a round's noise depends on that of rounds before it."""

  # Those that hold a client to what it is charged for.
  samplings = separated_sampling.SAMPLINGS
  sampling_reason = (
    ': of other cohorts, what they cost with noise that is correlated between '
    'rounds is not computed here'
  )
  plan_type = privacy.CorrelatedNoisePlan
  plans_quickly = False
  settings = GaussianFedAvg.settings | names_of(MechanismSettings)
  not_audited = 'whose noises of rounds are not independent'

  @classmethod
  def is_chosen(cls, config) -> bool:
    return super().is_chosen(config) and config.mechanism != 'gaussian'

  @property
  def title(self) -> str:
    return f'`mechanism` {self.config.mechanism}'

  @property
  def refuses(self) -> Mapping[str, str]:
    return {
      **super().refuses,
      'clipping': 'which has a fixed clip',
    }

  def check(self) -> None:
    super().check()
    config = self.config
    if config.sampling == 'grouped_poisson' and config.mechanism != 'banded':
      raise ValueError(
        '`mechanism` must be banded for `sampling` grouped_poisson: for other '
        f'noise, no exact accounting is known; found {config.mechanism}.'
      )
    if config.min_separation == 1:
      raise ValueError(
        f'`min_separation` must be at least 2 for `sampling` {config.sampling},'
        ' and at most N / P, found 1.'
      )

  def create_aggregator(self, plan, model_fn, user_aggregator=None):
    from tff_clipping import aggregators

    norm = self.config.clipping_norm
    return aggregators.correlated_dp_mean_factory(
      strategy=plan.strategy,
      clipping_norm=norm,
      sum_factory=(
        None
        if self.config.aggregation == 'plain'
        else aggregators.secure_sum_factory(norm)
      ),
      **plan.aggregator_parameters._asdict(),
      noise_key=self.noise_key(),
    )

  def _create_plan(self, settings: dict[str, Any]) -> privacy.BasePlan:
    not_of_strategy = 'target_delta', 'target_epsilon', 'noise_multiplier'
    strategy = privacy.build_strategy(
      self.config.mechanism,
      **{k: v for k, v in settings.items() if k not in not_of_strategy},
    )
    del settings['num_rounds']
    return super()._create_plan(settings | dict(strategy=strategy))

  def _plan_settings(self, num_clients: int) -> dict[str, Any]:
    settings = super()._plan_settings(num_clients)
    del settings['accountant']
    settings['min_separation'] = self.config.min_separation
    return settings
