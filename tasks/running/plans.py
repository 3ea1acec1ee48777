"""The privacy plan of a run; without TensorFlow, which takes long to import."""

from typing import Any

from tasks.algorithms.experiment import ExperimentConfig
from tff_clipping import privacy
from tff_clipping.privacy import audit


def create_plan(
  config: ExperimentConfig, num_clients: int
) -> privacy.BasePlan | None:
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
    if config.sampling != 'shuffled_epochs':
      settings['min_separation'] = config.min_separation
    participation = {k: v for k, v in settings.items() if k != 'target_delta'}
    settings['strategy'] = privacy.build_strategy(
      config.mechanism, num_rounds=config.num_rounds, **participation
    )
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
