"""FedAvg whose clients clip the models that they send, for comparison."""

from tasks.algorithms.algorithm import Algorithm


class ModelClipping(Algorithm):
  """The mean of clipped models (Sec. 2.1, "Model clipping")."""

  name = 'model_clipping_fed_avg'
  summary = 'clips models'
  clips = 'models'
  settings = frozenset({'clipping_norm'})
  refuses = {
    'clipping': 'which does not clip updates',
    'aggregation': 'which has no bound of the updates, and none of their sum',
    'aggregator': 'which takes the mean of clipped models',
  }

  def check(self) -> None:
    super().check()
    if self.config.clipping_norm is None:
      raise ValueError(f'`clipping_norm` must be given for {self.name}.')

  def create_process(
    self, plan, model_fn, *, canaries=None, user_aggregator=None, **settings
  ):
    from tff_clipping import learning

    del plan, canaries, user_aggregator
    return learning.build_model_clipping_fed_avg(
      model_fn, clipping_norm=self.config.clipping_norm, **settings
    )
