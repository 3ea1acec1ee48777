"""DP-FedAvg (Sec. 3), whose rounds have noise of their own."""

from collections.abc import Mapping

from tasks.algorithms.algorithm import names_of
from tasks.algorithms.fed_avg import ClippedFedAvg
from tasks.algorithms.private import (
  AuditSettings,
  PrivateAlgorithm,
)


class GaussianFedAvg(PrivateAlgorithm, ClippedFedAvg):
  """The mean of bounded updates with Gaussian noise, added at the server.

  Attributes:
    not_audited: Why it cannot be audited; empty if it can.
  """

  name = 'dp_fed_avg'
  summary = 'clips updates and adds noise'
  settings = PrivateAlgorithm.settings | ClippedFedAvg.settings

  @property
  def not_audited(self) -> str:
    return (
      '' if self.bound.is_constant else 'whose clipping norm is not constant'
    )

  @property
  def refuses(self) -> Mapping[str, str]:
    audit = names_of(AuditSettings) if self.not_audited else ()
    return {**super().refuses, **dict.fromkeys(audit, self.not_audited)}

  def create_aggregator(self, plan, model_fn, user_aggregator=None):
    return self.bound.create_private_mean(
      model_fn,
      **plan.aggregator_parameters._asdict(),
      noise_key=self.noise_key(),
    )
