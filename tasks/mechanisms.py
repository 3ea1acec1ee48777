"""What makes an algorithm private: the plan of a run, and its aggregator."""

from typing import Any

import tensorflow_federated as tff

from tasks.experiment import ExperimentConfig
from tff_clipping import aggregators, privacy
from tff_clipping.privacy import audit


def create_plan(
  config: ExperimentConfig, num_clients: int
) -> privacy.PrivacyPlan | None:
  """Returns the plan of a private run, `None` for any other.

  That of an audited run is for the clients and the canaries together.
  """
  if not config.is_private:
    return None
  settings: dict[str, Any] = dict(
    num_clients=num_clients,
    clients_per_round=config.clients_per_round,
    num_rounds=config.num_rounds,
    target_delta=config.target_delta,
    sampling=config.sampling,
    accountant=config.accountant,
  )
  if config.noise_multiplier is not None:
    plan = privacy.PrivacyPlan.from_noise_multiplier(
      noise_multiplier=config.noise_multiplier, **settings
    )
  else:
    plan = privacy.PrivacyPlan.from_target_epsilon(
      target_epsilon=config.target_epsilon, **settings
    )
  if config.audit_canaries is None:
    return plan
  return audit.add_canaries_to_plan(plan, 2 * config.audit_canaries)


def create_aggregator(
  config: ExperimentConfig, plan: privacy.PrivacyPlan | None
) -> tff.aggregators.UnweightedAggregationFactory | None:
  """Returns what makes the algorithm; `None` is TFF's own mean.

  Raises:
    KeyError: If the algorithm has no aggregator.
  """

  def dp_mean():
    return aggregators.dp_mean_factory(
      clipping_norm=config.clipping_norm,
      **plan.aggregator_parameters._asdict(),
      # The checkpoints keep it: a run that is resumed has the key of its
      # states.
      noise_key=aggregators.draw_noise_key()
      if config.noise_seed is None
      else (0, config.noise_seed),
    )

  return {
    'fed_avg': lambda: None,
    'ce_fed_avg': lambda: aggregators.clipped_mean_factory(
      clipping_norm=config.clipping_norm
    ),
    'dp_fed_avg': dp_mean,
  }[config.algorithm]()
