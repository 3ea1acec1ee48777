"""The privacy plan of a run; without TensorFlow, which takes long to import."""

from typing import Any

from tasks.algorithms.experiment import ExperimentConfig
from tasks.running.run_folder import RunFolder
from tff_clipping import privacy
from tff_clipping.privacy import audit


def find_plan(
  config: ExperimentConfig, num_clients: int, folder: RunFolder
) -> privacy.BasePlan | None:
  """Returns the plan of a private run, `None` for any other.

  That of a run that goes on is in its ledger: nothing is searched for again.

  Args:
    config: What the run is asked to do.
    num_clients: The clients of its data, without canaries.
    folder: The folder of the run.

  Raises:
    DamagedLedgerError: If the ledger is not what was written.
    ValueError: If the plan in it has other settings, or no plan is possible.
  """
  if not config.is_private:
    return None
  settings = _settings(config, num_clients)
  if config.audit_canaries is not None:
    settings['num_clients'], settings['clients_per_round'] = (
      audit.add_canaries_to_population(
        num_clients, config.clients_per_round, _num_canaries(config)
      )
    )
  kept = privacy.read_plan(folder.ledger, **settings)
  if kept is None:
    return create_plan(config, num_clients)
  mechanism = 'gaussian'
  if isinstance(kept, privacy.CorrelatedNoisePlan):
    mechanism = getattr(kept.strategy, 'inner', kept.strategy).kind
  if mechanism != config.mechanism:
    raise ValueError(
      f'`mechanism` must be {mechanism}, which the ledger {folder.ledger} '
      f'charges for, found {config.mechanism}.'
    )
  return kept


def create_plan(
  config: ExperimentConfig, num_clients: int
) -> privacy.BasePlan | None:
  """Returns a new plan for a private run, `None` for any other.

  That of an audited run is for the clients and the canaries together.
  """
  if not config.is_private:
    return None
  settings = _settings(config, num_clients)
  plan_type = privacy.PrivacyPlan
  if config.has_correlated_noise:
    plan_type = privacy.CorrelatedNoisePlan
    not_of_strategy = ('target_delta', 'target_epsilon', 'noise_multiplier')
    settings['strategy'] = privacy.build_strategy(
      config.mechanism,
      **{k: v for k, v in settings.items() if k not in not_of_strategy},
    )
    del settings['num_rounds']
  if config.noise_multiplier is not None:
    plan = plan_type.from_noise_multiplier(**settings)
  else:
    plan = plan_type.from_target_epsilon(**settings)
  if config.audit_canaries is None:
    return plan
  return audit.add_canaries_to_plan(plan, _num_canaries(config))


def _settings(config: ExperimentConfig, num_clients: int) -> dict[str, Any]:
  """Returns the attributes of a plan that are given, and not searched for."""
  settings: dict[str, Any] = dict(
    num_clients=num_clients,
    clients_per_round=config.clients_per_round,
    num_rounds=config.num_rounds,
    target_delta=config.target_delta,
    sampling=config.sampling,
  )
  if not config.has_correlated_noise:
    settings['accountant'] = config.accountant
  elif config.sampling != 'shuffled_epochs':
    settings['min_separation'] = config.min_separation
  if config.noise_multiplier is not None:
    settings['noise_multiplier'] = config.noise_multiplier
  else:
    settings['target_epsilon'] = config.target_epsilon
  return settings


def _num_canaries(config: ExperimentConfig) -> int:
  return 2 * config.audit_canaries
