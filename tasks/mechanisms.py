"""What makes an algorithm private: the plan of a run, and its aggregator."""

import dataclasses
from typing import Any

import tensorflow_federated as tff

from tasks.experiment import ExperimentConfig
from tff_clipping import aggregators, privacy
from tff_clipping.privacy import audit


def create_plan(
  config: ExperimentConfig, num_clients: int
) -> privacy.PrivacyPlan | privacy.CorrelatedNoisePlan | None:
  """Returns the plan of a private run, `None` for any other.

  That of an audited run is for the clients and the canaries together.
  """
  if not config.is_private:
    return None
  settings: dict[str, Any] = dict(
    num_clients=num_clients,
    clients_per_round=config.clients_per_round,
    target_delta=config.target_delta,
    sampling=config.sampling,
  )
  if config.has_correlated_noise:
    plan_type = privacy.CorrelatedNoisePlan
    settings['strategy'] = _create_strategy(config, num_clients)
    if config.sampling != 'shuffled_epochs':
      settings['min_separation'] = config.min_separation
  else:
    plan_type = privacy.PrivacyPlan
    settings['num_rounds'] = config.num_rounds
    settings['accountant'] = config.accountant
  if config.noise_multiplier is not None:
    plan = plan_type.from_noise_multiplier(
      noise_multiplier=config.noise_multiplier, **settings
    )
  else:
    plan = plan_type.from_target_epsilon(
      target_epsilon=config.target_epsilon, **settings
    )
  if config.audit_canaries is None:
    return plan
  return audit.add_canaries_to_plan(plan, 2 * config.audit_canaries)


def create_aggregator(
  config: ExperimentConfig,
  plan: privacy.PrivacyPlan | privacy.CorrelatedNoisePlan | None,
) -> tff.aggregators.UnweightedAggregationFactory | None:
  """Returns what makes the algorithm; `None` is TFF's own mean.

  Raises:
    KeyError: If the algorithm has no aggregator.
  """

  def dp_mean():
    settings = dict(
      clipping_norm=config.clipping_norm,
      **plan.aggregator_parameters._asdict(),
      # The checkpoints keep it: a run that is resumed has the key of its
      # states.
      noise_key=aggregators.draw_noise_key()
      if config.noise_seed is None
      else (0, config.noise_seed),
    )
    if config.has_correlated_noise:
      return aggregators.correlated_dp_mean_factory(
        strategy=plan.strategy, **settings
      )
    return aggregators.dp_mean_factory(**settings)

  return {
    'fed_avg': lambda: None,
    'ce_fed_avg': lambda: aggregators.clipped_mean_factory(
      clipping_norm=config.clipping_norm
    ),
    'dp_fed_avg': dp_mean,
  }[config.algorithm]()


def _create_strategy(
  config: ExperimentConfig, num_clients: int
) -> privacy.NoiseStrategy:
  """Returns how the noise of a run is correlated between its rounds."""
  if config.sampling == 'shuffled_epochs':
    # Who is last in an epoch may be first in the next: the noise begins anew.
    rounds_per_epoch = -(-num_clients // config.clients_per_round)
    if config.num_rounds % rounds_per_epoch:
      raise ValueError(
        f'`num_rounds` must be a multiple of the {rounds_per_epoch} rounds of '
        'an epoch for `mechanism` '
        f'{config.mechanism} with `sampling` shuffled_epochs, found '
        f'{config.num_rounds}.'
      )
    inner = _optimize(
      config.mechanism,
      rounds_per_epoch,
      privacy.Participation(min_separation=rounds_per_epoch),
    )
    return privacy.RestartedStrategy(num_rounds=config.num_rounds, inner=inner)
  participation = privacy.Participation(min_separation=config.min_separation)
  if config.sampling == 'grouped_poisson':
    # What is charged there is one round of a group.
    participation = dataclasses.replace(participation, max_participations=1)
  return _optimize(config.mechanism, config.num_rounds, participation)


def _optimize(
  mechanism: str, num_rounds: int, participation: privacy.Participation
) -> privacy.NoiseStrategy:
  if mechanism == 'tree':
    return privacy.TreeStrategy(num_rounds=num_rounds)
  build = {'banded': privacy.banded_strategy, 'blt': privacy.blt_strategy}
  return build[mechanism](num_rounds=num_rounds, participation=participation)
