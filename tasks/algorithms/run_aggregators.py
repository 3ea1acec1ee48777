"""What makes an algorithm: its aggregator, ours or a user's own."""

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import tensorflow_federated as tff

from tasks.algorithms.experiment import ExperimentConfig
from tasks.experiments.experiment_table import ALGORITHMS
from tasks.settings import named_functions
from tff_clipping import aggregators, privacy
from tff_clipping.aggregators.parts import composition_rules, inspect_process

ModelFn = Callable[[], tff.learning.models.VariableModel]
# As `adaptive_dp_mean_factory` has it by default.
_NORM_LEARNING_RATE = 0.2


def create_aggregator(
  config: ExperimentConfig,
  plan: privacy.BasePlan | None,
  model_fn: ModelFn,
) -> tff.aggregators.UnweightedAggregationFactory | None:
  """Returns what makes the algorithm; `None` is TFF's own mean.

  Args:
    config: The experiment, of an algorithm that aggregates updates.
    plan: Its plan; `None` for one that is not private.
    model_fn: The model whose updates are aggregated.
  """
  if ALGORITHMS[config.algorithm].clips == 'nothing':
    return None
  if plan is None:
    return _create_mean(config, model_fn)
  if config.aggregation == 'distributed':
    return aggregators.distributed_gaussian_mean_factory(
      clipping_norm=config.clipping_norm, **plan.share_parameters._asdict()
    )
  settings = dict(
    **plan.aggregator_parameters._asdict(),
    # Kept in the state: a run that is resumed has the key of its checkpoints.
    noise_key='drawn' if config.noise_seed is None else (0, config.noise_seed),
  )
  if config.clipping == 'adaptive':
    return aggregators.adaptive_dp_mean_factory(
      initial_clipping_norm=config.clipping_norm,
      target_quantile=_target_quantile(config),
      **settings,
    )
  bound = _create_bound(config, model_fn)
  sum_factory = _create_sum(config, bound)
  if config.clipping in ('per_layer', 'smooth'):
    noised_sum = aggregators.gaussian_noise_factory(
      plan.noise_multiplier * bound.sensitivity,
      sum_factory,
      noise_key=settings['noise_key'],
    )
    return bound.around(
      aggregators.fixed_denominator_mean_factory(
        plan.clients_per_round, noised_sum
      )
    )
  settings |= dict(clipping_norm=config.clipping_norm, sum_factory=sum_factory)
  if config.has_correlated_noise:
    return aggregators.correlated_dp_mean_factory(
      strategy=plan.strategy, **settings
    )
  return aggregators.dp_mean_factory(**settings)


def create_own_aggregator(
  config: ExperimentConfig,
  plan: privacy.BasePlan | None,
  function: Callable[..., tff.aggregators.UnweightedAggregationFactory],
  model_fn: ModelFn,
) -> tff.aggregators.UnweightedAggregationFactory:
  """Returns an aggregator of a user's own, in place of the algorithm's.

  Whether a private one adds noise is checked here. Whether it clips too, and
  how much noise it measures, the program checks that runs it; of one that
  measures nothing, no check tells whether its noise is that of the plan.

  Args:
    config: The experiment.
    plan: Its plan; `None` for one that is not private.
    function: Returns the factory. It takes, by name, `clipping_norm` where the
      run has one, and `plan` where it is private.
    model_fn: The model whose updates it aggregates.

  Raises:
    TypeError: If `function` takes something else, or returns something else.
    ValueError: If it fails, or in a private run adds no noise, or follows the
      norms of updates that no noise covers, or has noise that is correlated
      between rounds.
  """
  arguments = {}
  if config.clipping_norm is not None:
    arguments['clipping_norm'] = config.clipping_norm
  if plan is not None:
    arguments['plan'] = plan
  name = named_functions.name_of(function)
  if 'clipping_norm' not in arguments and named_functions.requires(
    function, 'clipping_norm'
  ):
    raise ValueError(
      f'`clipping_norm` must be given for {name}, which takes it, with '
      f'`algorithm` ce_fed_avg or dp_fed_avg, found none for '
      f'{config.algorithm}.'
    )
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
  if plan is not None and not inspect_process.adds_noise(process.state_type):
    raise ValueError(
      f'`aggregator` must add noise for {config.algorithm}, found no factory '
      f'of ours or of TFF in that of {name} that does: it would release what '
      "the plan's epsilon does not cover. A factory that adds noise itself has "
      'a state with a field `privacy_noise`, empty where the noise is fresh.'
    )
  if plan is not None:
    composition_rules.check_norms_are_charged('aggregator', process.state_type)
    if inspect_process.correlates_noise(process.state_type):
      raise ValueError(
        '`aggregator` must have noise that is independent between rounds, as '
        f'`mechanism` gaussian has, found that of {name}.'
      )
  return factory


class _Bound(NamedTuple):
  """What bounds the norm of an update before it is added up.

  Attributes:
    sensitivity: The largest norm that is left.
    around: Returns a factory that bounds updates, and aggregates them by
      another.
  """

  sensitivity: float
  around: Callable[..., tff.aggregators.UnweightedAggregationFactory]


def _create_bound(config: ExperimentConfig, model_fn: ModelFn) -> _Bound:
  """Returns the bound of a run whose clipping norm is constant."""
  if config.clipping == 'smooth':
    return _Bound(
      config.sensitivity,
      functools.partial(
        aggregators.smoothed_normalization_factory, config.smoothing
      ),
    )
  if config.clipping == 'fixed':
    return _Bound(
      config.clipping_norm,
      functools.partial(
        aggregators.difference_clipping_factory, config.clipping_norm
      ),
    )
  weights_type = tff.learning.models.weights_type_from_model(model_fn)
  num_tensors = len(weights_type.trainable)
  norms = [config.clipping_norm / math.sqrt(num_tensors)] * num_tensors
  return _Bound(
    aggregators.combined_clipping_norm(norms),
    functools.partial(aggregators.per_layer_clipping_factory, norms),
  )


def _create_mean(
  config: ExperimentConfig, model_fn: ModelFn
) -> tff.aggregators.UnweightedAggregationFactory:
  """Returns the mean of bounded updates, without noise."""
  if config.clipping == 'adaptive':
    return aggregators.clipped_mean_factory(
      clipping_norm=tff.aggregators.PrivateQuantileEstimationProcess.no_noise(
        initial_estimate=config.clipping_norm,
        target_quantile=_target_quantile(config),
        learning_rate=_NORM_LEARNING_RATE,
      )
    )
  bound = _create_bound(config, model_fn)
  return bound.around(
    aggregators.realized_mean_factory(_create_sum(config, bound)),
    # A secure sum is to hide who was clipped.
    count_sum_factory=tff.aggregators.SecureSumFactory(1, 0)
    if config.aggregation == 'secure'
    else None,
  )


def _create_sum(
  config: ExperimentConfig, bound: _Bound
) -> tff.aggregators.UnweightedAggregationFactory | None:
  """Returns what adds up bounded updates; `None` is a plain sum."""
  if config.aggregation == 'plain':
    return None
  return aggregators.secure_sum_factory(bound.sensitivity)


def _target_quantile(config: ExperimentConfig) -> float:
  return 0.5 if config.target_quantile is None else config.target_quantile
