"""DP-FedAvg whose clients draw the noise, in integers, for a secure sum."""

from collections.abc import Mapping

from tasks.algorithms.gaussian import GaussianFedAvg


class DistributedFedAvg(GaussianFedAvg):
  """The mean of clipped updates with discrete Gaussian noise in shares."""

  samplings = ('fixed_size',)
  sampling_reason = (
    ': shares of the noise tell how many clients took part, and what the noise '
    'is worth in integers is proved for fixed_size'
  )
  aggregations = ('distributed',)
  not_audited = 'whose noise is not added at the server'

  @classmethod
  def is_chosen(cls, config) -> bool:
    return super().is_chosen(config) and config.aggregation == 'distributed'

  @property
  def title(self) -> str:
    return '`aggregation` distributed'

  @property
  def refuses(self) -> Mapping[str, str]:
    return {
      **super().refuses,
      'clipping': 'whose bounds are those of a constant c',
      'noise_seed': 'whose clients draw the noise',
      'threshold_rounds': 'whose noise is added at the clients alone',
    }

  def check(self) -> None:
    super().check()
    if self.config.accountant != 'rdp':
      raise ValueError(
        f'`accountant` must be rdp for {self.title}, found '
        f'{self.config.accountant}, which is not proved for sampled noise in '
        'integers.'
      )

  def create_aggregator(self, plan, model_fn, user_aggregator=None):
    from tff_clipping import aggregators

    return aggregators.distributed_gaussian_mean_factory(
      clipping_norm=self.config.clipping_norm,
      **plan.share_parameters._asdict(),
    )

  def describe(self) -> str:
    return (
      f'{self.bound.describe()} The noise is discrete Gaussian, in shares of '
      'the clients, on a secure sum of integers.'
    )
