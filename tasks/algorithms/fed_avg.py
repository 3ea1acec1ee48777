"""FedAvg (Alg. 1), and CE-FedAvg, which bounds the updates (Sec. 2.1)."""

from collections.abc import Mapping

from tasks.algorithms import clipping
from tasks.algorithms.algorithm import Algorithm, names_of


class FedAvg(Algorithm):
  """The mean of the updates as they are."""

  name = 'fed_avg'
  summary = 'Alg. 1'
  refuses = {
    'clipping_norm': 'which does not clip',
    'clipping': 'which does not clip',
    'aggregation': 'which has no bound of the updates, and none of their sum',
  }


class ClippedFedAvg(Algorithm):
  """The mean of bounded updates.

  Attributes:
    aggregations: The ways to add them up that it can be run with.
  """

  name = 'ce_fed_avg'
  summary = 'clips updates'
  clips = 'updates'
  aggregations: tuple[str, ...] = ('plain', 'secure')
  settings = names_of(clipping.ClippingSettings)

  @property
  def bound(self) -> clipping.Bound:
    """How the updates are bounded."""
    return clipping.BOUNDS[self.config.clipping](self.config)

  @property
  def title(self) -> str:
    if self.config.clipping == 'fixed':
      return self.name
    return f'{self.name} with `clipping` {self.config.clipping}'

  @property
  def refuses(self) -> Mapping[str, str]:
    return self.bound.refuses

  @property
  def is_cut_to_clipping_norm(self) -> bool:
    return self.config.clipping == 'fixed'

  def check(self) -> None:
    super().check()
    if self.config.aggregation not in self.aggregations:
      raise ValueError(
        f'`aggregation` must be {" or ".join(self.aggregations)} for '
        f'{self.title}, found {self.config.aggregation}: that is for noise of '
        'dp_fed_avg that is independent between rounds.'
      )
    self.bound.check()

  def create_aggregator(self, plan, model_fn, user_aggregator=None):
    return self.bound.create_mean(model_fn)

  def describe(self) -> str:
    is_secure = self.config.aggregation == 'secure'
    return self.bound.describe() + (
      ' The sum is a secure one, in fixed point.' if is_secure else ''
    )
