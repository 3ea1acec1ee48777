"""DP-FedAvg (Sec. 3), whose rounds have noise of their own."""

from tasks.algorithms.fed_avg import ClippedFedAvg
from tasks.algorithms.private import AuditSettings, PrivateAlgorithm, names_of


class GaussianFedAvg(PrivateAlgorithm, ClippedFedAvg):
  """The mean of bounded updates with Gaussian noise, added at the server."""

  name = 'dp_fed_avg'
  reasons = ClippedFedAvg.reasons | {
    'audit_canaries': 'whose clipping norm is not constant'
  }

  @property
  def takes(self) -> frozenset[str]:
    if self.bound.is_constant:
      return super().takes
    return super().takes - names_of(AuditSettings)

  def create_aggregator(self, plan, model_fn, user_aggregator=None):
    return self.bound.create_private_mean(
      model_fn,
      **plan.aggregator_parameters._asdict(),
      noise_key=self.noise_key(),
    )
