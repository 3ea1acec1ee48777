"""DP-FedAvg (Sec. 3), whose rounds have noise of their own."""

from collections.abc import Mapping
from typing import Any

from tasks.algorithms.algorithm import names_of
from tasks.algorithms.fed_avg import ClippedFedAvg
from tasks.algorithms.private import (
  AuditSettings,
  PrivateAlgorithm,
  UnitSettings,
)


class GaussianFedAvg(PrivateAlgorithm, ClippedFedAvg):
  """The mean of bounded updates with Gaussian noise, added at the server.

  Attributes:
    not_audited: Why it cannot be audited; empty if it can.
  """

  name = 'dp_fed_avg'
  summary = 'clips updates and adds noise'
  settings = (
    PrivateAlgorithm.settings | ClippedFedAvg.settings | names_of(UnitSettings)
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
    if config.unit == 'client':
      return
    for name in ('examples_per_client', 'local_steps', 'batch_size'):
      if getattr(config, name) != 1:
        raise ValueError(
          f'`{name}` must be 1 for `unit` example: a whole update is bounded, '
          'which is the gradient of one example where a client has one and '
          f'takes one step; found {getattr(config, name)}.'
        )

  def create_aggregator(self, plan, model_fn, user_aggregator=None):
    return self.bound.create_private_mean(
      model_fn,
      **plan.aggregator_parameters._asdict(),
      noise_key=self.noise_key(),
    )

  def _plan_settings(self, num_clients: int) -> dict[str, Any]:
    return super()._plan_settings(num_clients) | {'unit': self.config.unit}
