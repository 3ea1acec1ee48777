"""DP-FedAvg whose clients draw the noise, in integers, for a secure sum."""

import dataclasses
from collections.abc import Mapping

from tasks.algorithms.algorithm import names_of
from tasks.algorithms.gaussian import GaussianFedAvg
from tasks.settings.setting_fields import at_least, setting


@dataclasses.dataclass(frozen=True, kw_only=True)
class DistributedSettings:
  """The settings of noise at the clients."""

  sum_bits: int | None = setting(
    'For --aggregation=distributed: the bits of an element of the sum, on a '
    'grid that is as fine as they allow; else so many that nothing wraps.',
    None,
    check=at_least(1, 62),
  )


class DistributedFedAvg(GaussianFedAvg):
  """The mean of clipped updates with discrete Gaussian noise in shares."""

  samplings = ('fixed_size',)
  sampling_reason = (
    ': shares of the noise tell how many clients took part, and what the noise '
    'is worth in integers is proved for fixed_size'
  )
  aggregations = ('distributed',)
  noise_is_continuous = False
  settings = GaussianFedAvg.settings | names_of(DistributedSettings)
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
      bits=self.config.sum_bits,
      **plan.share_parameters._asdict(),
    )

  def describe(self) -> str:
    return (
      f'{self.bound.describe()} The noise is discrete Gaussian, in shares of '
      'the clients, on a secure sum of integers.'
    )
