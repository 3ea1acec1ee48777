"""FedAvg whose clients add noise in each local step (Truex et al. 2019)."""

import dataclasses
from typing import Any

from tasks.algorithms.algorithm import names_of
from tasks.algorithms.private import PrivacySettings, PrivateAlgorithm
from tasks.settings.setting_fields import at_least, setting
from tff_clipping import privacy


@dataclasses.dataclass(frozen=True, kw_only=True)
class NoisedStepSettings:
  """The settings of noise in local steps."""

  max_examples_per_client: int | None = setting(
    'For dp_steps_fed_avg: the most examples that a client may have, a '
    'public number; else --examples_per_client.',
    None,
    check=at_least(1),
  )
  max_batch_size: int | None = setting(
    'For dp_steps_fed_avg: to what a batch of more examples is cut; else '
    'what costs 0.5 % of delta.',
    None,
    check=at_least(1),
  )


class NoisedSteps(PrivateAlgorithm):
  """The mean of updates whose steps have noise; the unit is one example.

  `clipping_norm` is that of the gradient of one example, and `batch_size` the
  expected size of a batch.
  """

  name = 'dp_steps_fed_avg'
  summary = 'noise in each local step, for single examples'
  clips = 'gradients'
  settings = names_of(PrivacySettings, NoisedStepSettings) | {'clipping_norm'}
  refuses = {'noise_seed': 'whose clients draw the noise'}
  samplings = ('min_separation', 'shuffled_epochs')
  sampling_reason = (
    ': the cost is that of the client that takes part most often, which turns '
    'and epochs bound, and no secret cohort is charged for'
  )
  plan_type = privacy.ExamplePlan

  def check(self) -> None:
    super().check()
    config = self.config
    if config.clipping_norm is None:
      raise ValueError(
        f'`clipping_norm` must be given for {self.name}: that of the gradient '
        'of one example.'
      )
    if config.local_step != 'sgd':
      raise ValueError(
        f'`local_step` must be sgd for {self.name}, which has a step of its '
        f'own, found {config.local_step}.'
      )
    examples = self._max_examples
    if examples is None:
      raise ValueError(
        '`max_examples_per_client` must be given, or `examples_per_client`, '
        f'for {self.name}: the number of examples of a client is not public.'
      )
    if config.batch_size > examples:
      raise ValueError(
        f'`batch_size` must be at most the {examples} examples of a client for '
        f'{self.name}, found {config.batch_size}.'
      )

  @property
  def _max_examples(self) -> int | None:
    given = self.config.max_examples_per_client
    return self.config.examples_per_client if given is None else given

  def check_partition(self, partition) -> None:
    if partition.is_overlapping:
      raise ValueError(
        f'`partition` must give an example to one client for {self.name}, '
        f'found {partition.summary}: what several clients send of an example '
        'costs as often, for which the plan does not charge. Take fewer '
        '`num_clients` or `examples_per_client`.'
      )
    found = max(map(len, partition.indices))
    if found > self._max_examples:
      raise ValueError(
        '`max_examples_per_client` must be at least the examples of each '
        f'client for {self.name}, found {self._max_examples} and a client with '
        f'{found}.'
      )

  def _plan_settings(self, num_clients: int) -> dict[str, Any]:
    config = self.config
    settings = dict(
      examples_per_client=self._max_examples,
      batch_size=config.batch_size,
      local_steps=config.local_steps,
      min_separation=config.min_separation,
    )
    if config.max_batch_size is not None:
      settings['max_batch_size'] = config.max_batch_size
    return super()._plan_settings(num_clients) | settings

  def create_process(
    self,
    plan,
    model_fn,
    *,
    canaries=None,
    user_aggregator=None,
    local_step,
    **settings,
  ):
    from tff_clipping import learning

    del canaries, user_aggregator
    noised = learning.steps.NoisedSgd(
      clipping_norm=self.config.clipping_norm,
      **plan.step_parameters._asdict(),
    )
    if isinstance(local_step, learning.steps.Scheduled):
      noised = dataclasses.replace(local_step, step=noised)
    return learning.build_fed_avg(model_fn, local_step=noised, **settings)

  def describe(self) -> str:
    return (
      'The clipping norm of the gradient of one example is '
      f'{self.config.clipping_norm}. The noise is in each local step.'
    )
