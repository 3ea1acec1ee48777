"""Model clipping with noise (Wei et al. 2020), for comparison."""

from collections.abc import Mapping

from tasks.algorithms.algorithm import names_of
from tasks.algorithms.model_clipping import ModelClipping
from tasks.algorithms.private import AuditSettings, PrivateAlgorithm


class PrivateModelClipping(PrivateAlgorithm, ModelClipping):
  """The mean of clipped models with Gaussian noise, added at the server."""

  name = 'dp_model_clipping_fed_avg'
  summary = 'clips models and adds noise'
  samplings = ('fixed_size',)
  sampling_reason = (
    ': the sum of models is divided by P, and of a cohort of another size the '
    'model itself would be a multiple'
  )
  settings = PrivateAlgorithm.settings | ModelClipping.settings

  @property
  def refuses(self) -> Mapping[str, str]:
    audit = dict.fromkeys(names_of(AuditSettings), 'whose canaries are updates')
    return {**ModelClipping.refuses, **audit}

  def create_process(
    self, plan, model_fn, *, canaries=None, user_aggregator=None, **settings
  ):
    from tff_clipping import aggregators, learning

    del canaries, user_aggregator
    norm = self.config.clipping_norm
    return learning.build_model_clipping_fed_avg(
      model_fn,
      clipping_norm=norm,
      model_aggregator=aggregators.dp_mean_factory(
        clipping_norm=norm,
        **plan.aggregator_parameters._asdict(),
        noise_key=self.noise_key(),
      ),
      **settings,
    )

  def describe(self) -> str:
    return (
      f'The clipping norm is {self.config.clipping_norm}, of whole models: '
      'what is noised is their sum.'
    )
