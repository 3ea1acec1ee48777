"""Local DP: each client noises its own update (Truex et al. 2020)."""

from collections.abc import Mapping
from typing import Any

from tasks.algorithms.algorithm import names_of
from tasks.algorithms.fed_avg import ClippedFedAvg
from tasks.algorithms.private import (
  AuditSettings,
  PrivacySettings,
  PrivateAlgorithm,
)
from tff_clipping import privacy


class LocalDpFedAvg(PrivateAlgorithm, ClippedFedAvg):
  """The mean of updates that clients clip and noise by themselves."""

  name = 'local_dp_fed_avg'
  summary = (
    'clips updates and adds noise at each client, against the server too'
  )
  samplings = ('min_separation',)
  sampling_reason = (
    ': no sampling hides a client from a server that gets its report, and '
    'turns bound how often it reports'
  )
  aggregations = ('plain',)
  plan_type = privacy.LocalPlan
  settings = names_of(PrivacySettings) | ClippedFedAvg.settings

  @property
  def refuses(self) -> Mapping[str, str]:
    return {
      **super().refuses,
      'clipping': 'which has a fixed clip',
      'noise_seed': 'whose clients draw the noise',
      **dict.fromkeys(
        names_of(AuditSettings), 'whose noise is not added at the server'
      ),
    }

  def create_aggregator(self, plan, model_fn, user_aggregator=None):
    from tff_clipping import aggregators

    return aggregators.local_dp_mean_factory(
      clipping_norm=self.config.clipping_norm,
      noise_multiplier=plan.noise_multiplier,
    )

  def describe(self) -> str:
    return f'{self.bound.describe()} Each client adds its own noise.'

  def _plan_settings(self, num_clients: int) -> dict[str, Any]:
    settings = super()._plan_settings(num_clients)
    del settings['accountant']
    return settings | {'min_separation': self.config.min_separation}
