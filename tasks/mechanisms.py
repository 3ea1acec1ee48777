"""What makes an algorithm private: the plan of a run, and its aggregator."""

from collections.abc import Callable
from typing import Any

import tensorflow_federated as tff

from tasks import named_functions
from tasks.experiment import ExperimentConfig
from tff_clipping import aggregators, privacy
from tff_clipping.aggregators import private_reports
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


def create_aggregator(
  config: ExperimentConfig,
  plan: privacy.BasePlan | None,
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


def create_own_aggregator(
  config: ExperimentConfig,
  plan: privacy.BasePlan | None,
  function: Callable[..., tff.aggregators.UnweightedAggregationFactory],
  model_fn: Callable[[], tff.learning.models.VariableModel],
) -> tff.aggregators.UnweightedAggregationFactory:
  """Returns an aggregator of a user's own, in place of the algorithm's.

  Whether a private one adds noise is checked; whether it clips, and adds the
  noise of the plan, is not.

  Args:
    config: The experiment.
    plan: Its plan; `None` for one that is not private.
    function: Returns the factory. It takes, by name, `clipping_norm` where the
      run has one, and `plan` where it is private.
    model_fn: The model whose updates it aggregates.

  Raises:
    TypeError: If `function` takes something else, or returns something else.
    ValueError: If it fails, or adds no noise in a private run.
  """
  arguments = {}
  if config.clipping_norm is not None:
    arguments['clipping_norm'] = config.clipping_norm
  if plan is not None:
    arguments['plan'] = plan
  name = named_functions.name_of(function)
  factory = named_functions.call(
    'aggregator', function, f'({", ".join(arguments)})', **arguments
  )
  if not isinstance(factory, tff.aggregators.UnweightedAggregationFactory):
    raise TypeError(
      '`aggregator` must be a function that returns a '
      '`tff.aggregators.UnweightedAggregationFactory`, found that '
      f'{name} returns {type(factory).__name__}.'
    )
  weights_type = tff.learning.models.weights_type_from_model(model_fn)
  process = named_functions.call(
    'aggregator', factory.create, '(value_type)', weights_type.trainable
  )
  if plan is not None and not private_reports.adds_noise(process):
    raise ValueError(
      f'`aggregator` must add noise for {config.algorithm}, found no factory '
      f'of ours or of TFF in that of {name} that does: it would release what '
      "the plan's epsilon does not cover."
    )
  return factory
