"""The algorithms: what goes together, and what is made of settings.

All are functions of a `Config`, which has the number of clients, without
canaries, but for a check. `plan` is that of the run, `None` for one that is not
private; `model_fn` is the model whose updates are aggregated. A user's function
that returns something else raises a TypeError, and one that fails a ValueError.

A new algorithm is a function that returns its aggregator, and a line of
`ALGORITHMS`.
"""

import dataclasses
import functools
import inspect
import math
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow_federated as tff

from tasks import named_functions
from tasks.checks import check as check_rule
from tasks.config import Config
from tff_clipping import aggregators, learning, privacy
from tff_clipping.learning import steps
from tff_clipping.privacy import audit
from tff_clipping.programs.clients import client_sampling

ModelFn = Callable[[], tff.learning.models.VariableModel]
Plan = privacy.BasePlan

# Of the heavy ball, at the clients and at the server.
_MOMENTUM = 0.9
# tau of Reddi et al., "Adaptive Federated Optimization" (ICLR 2021).
_EPSILON = 1e-3
# Under these a plan charges for what clients keep; docs/accounting.md.
_SAMPLINGS_TO_KEEP_UNDER = ('poisson', 'min_separation')
_IN_TURNS = ('round_robin', 'min_separation', 'grouped_poisson')
# Others do not hide who takes part, or their cost is not computed here.
_SAMPLINGS = {
  'an algorithm without noise': ('fixed_size', 'poisson', 'round_robin'),
  'noise that is independent between rounds': (
    *('poisson', 'fixed_size', 'random_allocation', 'paper'),
  ),
  'noise that is correlated between rounds': (
    *('min_separation', 'grouped_poisson'),
  ),
}


def is_private(config: Config) -> bool:
  """Returns whether a plan charges for the run.

  A simulation of the noise of other cohorts has no guarantee, and no plan.
  """
  return (
    config.algorithm == 'dp_fed_avg' and config.noise_clients_per_round is None
  )


def measures_updates(config: Config) -> bool:
  """Returns whether the clients' exact updates are measured."""
  return not is_private(config) or config.simulation_diagnostics


def is_correlated(config: Config) -> bool:
  """Returns whether the noise is correlated between rounds."""
  return config.mechanism != 'gaussian'


def secret_seeds(config: Config) -> tuple[str, ...]:
  """Returns the seeds that the run draws from fresh entropy, and keeps."""
  drawn = []
  if is_private(config) and config.sampling_seed is None:
    drawn.append('sampling_seed')
  if config.audit_canaries is not None:
    drawn.append('audit_seed')
  return tuple(drawn)


def check(config: Config) -> None:
  """Raises a ValueError unless the settings go together.

  Without the number of clients, any will do.
  """
  c = config
  clips_updates = c.algorithm in ('ce_fed_avg', 'dp_fed_avg')
  has_noise = c.algorithm == 'dp_fed_avg'
  has_norm = not (c.clipping_norm is None and c.clipping_norm_from is None)
  is_own = c.aggregator is not None
  is_distributed = c.aggregation == 'distributed'
  without_noise, independent, correlated = _SAMPLINGS
  noise = without_noise
  if has_noise:
    noise = correlated if is_correlated(c) else independent
  # Secure sums have the bounds of a constant c.
  clippings = ['fixed', 'per_layer', 'adaptive']
  if is_distributed or is_correlated(c):
    clippings = clippings[:1]
  elif c.aggregation == 'secure':
    clippings = clippings[:2]
  rule = functools.partial(_check_rule, c)

  def only(setting: str, holds: Any, where: str) -> None:
    """The rule that a setting is given only where it has an effect."""
    default = Config.__dataclass_fields__[setting].default
    is_default = getattr(c, setting) == default
    rule(setting, holds or is_default, f'must be given for {where} only')

  choices = ', '.join(ALGORITHMS)
  rule('algorithm', c.algorithm in ALGORITHMS, f'must be one of {choices}')

  # Data and cohorts. A function that makes the task may read these settings.
  makes_task = named_functions.is_own(c.task)
  for setting, partition in (
    ('dirichlet_alpha', 'dirichlet'),
    ('shards_per_client', 'shards'),
  ):
    has_effect = makes_task or c.partition == partition
    only(setting, has_effect, f'`partition` {partition}')
  rule(
    'clients_per_round',
    c.num_clients is None or c.clients_per_round <= c.num_clients,
    f'must be at most the {c.num_clients} clients that there are',
  )
  rule(
    'update_rounds',
    len(set(c.update_rounds)) == len(c.update_rounds)
    and max(c.update_rounds, default=0) < c.num_rounds,
    'must be different rounds below `num_rounds`, counted from 0',
  )
  rule(
    'sampling',
    c.sampling in _SAMPLINGS[noise],
    f'must be one of {", ".join(_SAMPLINGS[noise])} for {noise}',
  )
  in_turns = f'`sampling` {", ".join(_IN_TURNS)}'
  only('min_separation', c.sampling in _IN_TURNS, in_turns)

  # Clipping.
  only('clipping_norm', c.algorithm != 'fed_avg', 'an algorithm that clips')
  only('clipping_norm_from', clips_updates, 'an algorithm that clips updates')
  rule(
    'clipping_norm',
    c.algorithm == 'fed_avg' or is_own or has_norm,
    'must be given: as a number, which for adaptive `clipping` may be a '
    'rough guess; or by `clipping_norm_from`, from a run of fed_avg (half of '
    'the mean norm of its updates, an exact figure with which nothing is '
    'guaranteed) or from a private run with `clipping` adaptive, whose '
    'epsilon is spent too',
  )
  rule(
    'clipping_norm',
    c.clipping_norm is None or c.clipping_norm_from is None,
    'and `clipping_norm_from` exclude each other',
  )
  for setting in ('clipping', 'aggregation'):
    only(
      setting,
      clips_updates and not is_own,
      'an algorithm that clips updates, and without `aggregator`,',
    )
  rule(
    'clipping',
    c.clipping in clippings,
    f'must be {" or ".join(clippings)} for `aggregation` {c.aggregation} and '
    f'`mechanism` {c.mechanism}',
  )
  rule(
    'aggregation',
    not is_distributed or noise == independent,
    f'must be plain or secure but for {independent}',
  )
  rule(
    'aggregation',
    not is_distributed or c.sampling == 'fixed_size',
    'must be distributed with `sampling` fixed_size only: without a largest '
    'cohort the noise tells how many clients took part',
  )
  rule(
    'aggregation',
    not is_distributed or c.accountant == 'rdp',
    'must not be distributed for `accountant` pld, which is not proved for '
    'sampled noise in integers',
  )
  only('sum_bits', is_distributed, '`aggregation` distributed')
  takes_aggregator = c.algorithm != 'model_clipping_fed_avg'
  only('aggregator', takes_aggregator, 'fed_avg, ce_fed_avg and dp_fed_avg')

  # Privacy.
  for setting in (
    *('target_epsilon', 'target_delta', 'noise_multiplier', 'mechanism'),
    *('noise_clients_per_round', 'audit_canaries'),
  ):
    only(setting, has_noise, 'dp_fed_avg, which adds noise,')
  only('accountant', has_noise and not is_correlated(c), f'{independent},')
  if has_noise:
    has_delta = c.target_delta is not None
    rule('target_delta', has_delta, 'must be given for dp_fed_avg')
    rule(
      'target_epsilon',
      (c.target_epsilon is None) != (c.noise_multiplier is None),
      'or `noise_multiplier` must be given for dp_fed_avg, and not both',
    )
  rule(
    'mechanism',
    not (is_own and is_correlated(c)),
    f'must be gaussian for `aggregator`, whose plan charges {independent}',
  )
  rule(
    'audit_canaries',
    c.audit_canaries is None
    or (
      not (is_correlated(c) or is_distributed or c.simulation_diagnostics)
      and c.clipping != 'adaptive'
      and has_norm
      # A sampler with canaries does not say of what its cohorts are drawn.
      and c.sampling != 'random_allocation'
    ),
    f'must be given for {independent}, from the server, with a given '
    'constant clipping norm, with `sampling` poisson, fixed_size or paper, and '
    'without `simulation_diagnostics`',
  )
  rule(
    'noise_clients_per_round',
    c.noise_clients_per_round is None
    or (
      not (is_correlated(c) or is_distributed or is_own)
      and c.sampling in ('poisson', 'fixed_size')
      and c.audit_canaries is None
    ),
    f'must be given for {independent}, from the server, with `sampling` '
    'poisson or fixed_size, and without `aggregator` and `audit_canaries`',
  )

  # Others.
  is_proximal = c.local_step == 'proximal'
  only('proximal_mu', is_proximal, '`local_step` proximal')
  has_mu = c.proximal_mu is not None
  rule('proximal_mu', has_mu or not is_proximal, 'must be given for proximal')
  only('num_workers', c.runtime != 'in_process', 'a `runtime` on Ray')


def _check_keeping(config: Config) -> None:
  """Raises if clients cannot keep something under the settings."""
  c, where = config, 'for a `local_step` whose clients keep something'
  # What is kept follows updates that are cut to c.
  _check_rule(c, 'clipping', c.clipping == 'fixed', f'must be fixed {where}')
  # Canaries keep nothing.
  for setting in ('aggregator', 'audit_canaries'):
    is_absent = getattr(c, setting) is None
    _check_rule(c, setting, is_absent, f'must not be given {where}')
  _check_rule(
    c,
    'sampling',
    not is_private(c) or c.sampling in _SAMPLINGS_TO_KEEP_UNDER,
    f'must be one of {", ".join(_SAMPLINGS_TO_KEEP_UNDER)} {where}: what '
    'they send tells who took part in earlier rounds, and no amplification '
    'by that sampling is proved then',
  )


def _check_rule(config: Config, setting: str, holds: Any, must: str) -> None:
  """Raises unless a rule holds: what a setting must be ends a sentence."""
  found = getattr(config, setting)
  if callable(found):
    found = named_functions.name_of(found)
  check_rule(setting, holds, must, 'none' if found is None else found)


def _min_separation(config: Config) -> int:
  """Returns b, by default the most that N clients allow."""
  return config.min_separation or max(
    1, config.num_clients // config.clients_per_round
  )


def find_plan(
  config: Config, ledger: pathlib.Path | None = None
) -> Plan | None:
  """Returns the privacy plan of a run; `None` for one without.

  That of an audited run counts canaries too. That of a run that goes on is in
  its ledger: nothing is searched for again.

  Args:
    config: The settings.
    ledger: The ledger of the run; `None` for a new plan.

  Raises:
    DamagedLedgerError: If the ledger is not what was written.
    ValueError: If the plan in it has other settings, or no plan is possible.
  """
  if not is_private(config):
    return None
  num_canaries = 2 * (config.audit_canaries or 0)
  if ledger is not None:
    sought = _plan_settings(config)
    if num_canaries:
      sought['num_clients'], sought['clients_per_round'] = (
        audit.add_canaries_to_population(
          config.num_clients, config.clients_per_round, num_canaries
        )
      )
    kept = privacy.read_plan(ledger, **sought)
    if kept is not None:
      return kept
  plan = _create_plan(config)
  return (
    audit.add_canaries_to_plan(plan, num_canaries) if num_canaries else plan
  )


def _plan_settings(config: Config) -> dict[str, Any]:
  """Returns the attributes of a plan that are given, not searched for."""
  settings = dict(
    num_clients=config.num_clients,
    clients_per_round=config.clients_per_round,
    num_rounds=config.num_rounds,
    target_delta=config.target_delta,
    sampling=config.sampling,
  )
  if config.noise_multiplier is not None:
    settings['noise_multiplier'] = config.noise_multiplier
  else:
    settings['target_epsilon'] = config.target_epsilon
  if is_correlated(config):
    return settings | dict(min_separation=_min_separation(config))
  if config.sampling == 'paper':
    # What its cohorts cost; a target would stop the run.
    settings.pop('target_epsilon', None)
    return settings | dict(sampling='fixed_size', accountant='pld')
  return settings | dict(accountant=config.accountant)


def _create_plan(config: Config) -> Plan:
  """Returns a new plan, without canaries; its noise may have to be found."""
  settings = _plan_settings(config)
  kind: Any = privacy.PrivacyPlan
  if is_correlated(config):
    kind = privacy.CorrelatedNoisePlan
    settings['strategy'] = privacy.build_strategy(
      config.mechanism,
      num_rounds=settings.pop('num_rounds'),
      num_clients=config.num_clients,
      clients_per_round=config.clients_per_round,
      min_separation=settings['min_separation'],
      sampling=config.sampling,
    )
  if config.sampling == 'paper':
    # Departs from the paper: it charges fixed cohorts as Poisson samples.
    settings['noise_multiplier'] = paper_plan(config).noise_multiplier
  if 'noise_multiplier' in settings:
    return kind.from_noise_multiplier(**settings)
  return kind.from_target_epsilon(**settings)


def paper_plan(config: Config) -> Plan:
  """Returns the plan by which the paper charges: that of Poisson samples."""
  return _create_plan(dataclasses.replace(config, sampling='poisson'))


def create_sampler(
  config: Config, plan: Plan | None, client_ids: tuple[str, ...]
) -> client_sampling.ClientSampler:
  """Returns what draws the cohorts; that of a private run is the plan's."""
  seed, cohort = config.sampling_seed, config.clients_per_round
  if plan is not None:
    return client_sampling.build_private_sampler(plan, client_ids, seed=seed)
  if config.sampling == 'poisson':
    return client_sampling.PoissonSampler(
      client_ids, sampling_prob=cohort / len(client_ids), seed=seed
    )
  if config.sampling == 'round_robin':
    return client_sampling.RoundRobinSampler(
      client_ids,
      min_separation=_min_separation(config),
      clients_per_round=cohort,
      seed=seed,
    )
  return client_sampling.FixedSizeSampler(
    client_ids, clients_per_round=cohort, seed=seed
  )


def _fed_avg(config: Config, plan: Any, noise: Any, model_fn: ModelFn) -> None:
  """TFF's own mean."""
  del config, plan, noise, model_fn


def _ce_fed_avg(
  config: Config, plan: Any, noise: Any, model_fn: ModelFn
) -> Any:
  """The mean of clipped updates (Sec. 2.1)."""
  del plan, noise
  if config.clipping == 'adaptive':
    norm = tff.aggregators.PrivateQuantileEstimationProcess.no_noise(
      initial_estimate=config.clipping_norm,
      target_quantile=0.5,
      learning_rate=0.2,
    )
    return aggregators.clipped_mean_factory(clipping_norm=norm)
  norms, bound = _clipping_norms(config, model_fn)
  clip = (
    aggregators.per_layer_clipping_factory
    if config.clipping == 'per_layer'
    else aggregators.difference_clipping_factory
  )
  # A secure sum is to hide who was clipped.
  counts = (
    tff.aggregators.SecureSumFactory(1, 0)
    if config.aggregation == 'secure'
    else tff.aggregators.SumFactory()
  )
  return clip(
    norms,
    aggregators.realized_mean_factory(_sum(config, bound)),
    count_sum_factory=counts,
  )


def _dp_fed_avg(
  config: Config, plan: Any, noise: Any, model_fn: ModelFn
) -> Any:
  """The mean of clipped updates with noise (Sec. 3)."""
  if config.aggregation == 'distributed':
    return aggregators.distributed_gaussian_mean_factory(
      clipping_norm=config.clipping_norm,
      bits=config.sum_bits,
      **plan.share_parameters._asdict(),
    )
  if config.clipping == 'adaptive':
    return aggregators.adaptive_dp_mean_factory(
      initial_clipping_norm=config.clipping_norm, **noise._asdict()
    )
  norms, bound = _clipping_norms(config, model_fn)
  common = dict(
    clipping_norm=norms, sum_factory=_sum(config, bound), **noise._asdict()
  )
  if is_correlated(config):
    return aggregators.correlated_dp_mean_factory(
      strategy=plan.strategy, **common
    )
  return aggregators.dp_mean_factory(**common)


def _clipping_norms(config: Config, model_fn: ModelFn) -> tuple[Any, float]:
  """Returns the norm, or those of all tensors, and the bound of the whole."""
  norm = config.clipping_norm
  if config.clipping != 'per_layer':
    return norm, norm
  weights_type = tff.learning.models.weights_type_from_model(model_fn)
  count = len(weights_type.trainable)
  norms = [norm / math.sqrt(count)] * count
  return norms, aggregators.combined_clipping_norm(norms)


def _sum(config: Config, bound: float) -> Any:
  """Returns what adds up clipped updates; `None` is a plain sum."""
  if config.aggregation == 'plain':
    return None
  return aggregators.secure_sum_factory(bound)


ALGORITHMS: Mapping[str, Callable[[Config, Any, Any, ModelFn], Any]] = {
  'fed_avg': _fed_avg,
  'ce_fed_avg': _ce_fed_avg,
  'dp_fed_avg': _dp_fed_avg,
  # Its clients clip the models that they send.
  'model_clipping_fed_avg': _fed_avg,
}


def create_aggregator(
  config: Config, plan: Plan | None, model_fn: ModelFn
) -> tff.aggregators.UnweightedAggregationFactory | None:
  """Returns what aggregates the updates; `None` is TFF's own mean."""
  if config.aggregator is not None:
    return _own_aggregator(config, plan, model_fn)
  noise = _find_noise(config, plan)
  return ALGORITHMS[config.algorithm](config, plan, noise, model_fn)


def _find_noise(
  config: Config, plan: Plan | None
) -> privacy.AggregatorParameters | None:
  """Returns the noise multiplier and P; `None` without noise.

  A simulation of M clients has the noise on the mean of a plan for cohorts of
  M, of a population that is as many times larger as M is than P.
  """
  cohort, simulated = config.clients_per_round, config.noise_clients_per_round
  if simulated is None:
    return None if plan is None else plan.aggregator_parameters
  larger = dataclasses.replace(
    config,
    clients_per_round=simulated,
    num_clients=round(config.num_clients * simulated / cohort),
  )
  noise_multiplier = _create_plan(larger).noise_multiplier * cohort / simulated
  return privacy.AggregatorParameters(noise_multiplier, cohort)


def _own_aggregator(
  config: Config, plan: Plan | None, model_fn: ModelFn
) -> tff.aggregators.UnweightedAggregationFactory:
  """Returns what a user's function returns, if it can be used."""
  given = dict(clipping_norm=config.clipping_norm, plan=plan)
  factory = named_functions.make(
    *('aggregator', tff.aggregators.UnweightedAggregationFactory),
    named_functions.find('aggregator', config.aggregator),
    **{k: v for k, v in given.items() if v is not None},
  )
  weights_type = tff.learning.models.weights_type_from_model(model_fn)
  named_functions.call('aggregator', factory.create, weights_type.trainable)
  return factory


LOCAL_STEPS: Mapping[str, Callable[[Config, float], steps.LocalStep]] = {
  'sgd': lambda config, share: steps.Sgd(),
  'momentum': lambda config, share: steps.Momentum(_MOMENTUM),
  'proximal': lambda config, share: steps.Proximal(config.proximal_mu),
  'scaffold': lambda config, share: steps.Scaffold(
    share, config.clipping_norm or math.inf
  ),
}


def create_local_step(config: Config) -> steps.LocalStep:
  """Returns the local step of a run.

  Raises:
    ValueError: If its clients keep something under settings that do not allow
      it.
  """
  share = config.clients_per_round / config.num_clients
  if config.local_step in LOCAL_STEPS:
    step = LOCAL_STEPS[config.local_step](config, share)
  else:
    function = named_functions.find('local_step', config.local_step)
    given = dict(participation=share, clipping_norm=config.clipping_norm)
    taken = {
      name: given[name]
      for name, parameter in inspect.signature(function).parameters.items()
      # Where nothing is clipped, the function's own default of c holds.
      if given.get(name) is not None
      or (name in given and parameter.default is parameter.empty)
    }
    step = named_functions.make(
      *('local_step', steps.LocalStep, function), **taken
    )
  if isinstance(step, steps.KeepingStep):
    _check_keeping(config)
  return step


def create_server_optimizer(
  config: Config,
) -> tff.learning.optimizers.Optimizer:
  """Returns what applies the aggregate to the global model."""
  rate = config.server_learning_rate
  optimizers = tff.learning.optimizers
  return {
    'sgd': optimizers.build_sgdm(rate),
    'momentum': optimizers.build_sgdm(rate, momentum=_MOMENTUM),
    'adam': optimizers.build_adam(rate, epsilon=_EPSILON),
    'yogi': optimizers.build_yogi(rate, epsilon=_EPSILON),
    'adagrad': optimizers.build_adagrad(rate, epsilon=_EPSILON),
  }[config.server_optimizer]


def create_process(
  config: Config,
  plan: Plan | None,
  model_fn: ModelFn,
  *,
  clients: Any,
  canaries: audit.Canaries | None = None,
) -> tff.learning.templates.LearningProcess:
  """Returns the learning process of a run on a store of clients.

  `canaries` are those among the clients of an audited run.
  """
  work = dict(
    local_steps=config.local_steps,
    batch_size=config.batch_size,
    client_learning_rate=config.client_learning_rate,
    client_store=clients,
    seed=config.seed,
    local_step=create_local_step(config),
    server_optimizer=create_server_optimizer(config),
    measure_updates=measures_updates(config),
  )
  if config.algorithm == 'model_clipping_fed_avg':
    return learning.build_model_clipping_fed_avg(
      model_fn, clipping_norm=config.clipping_norm, **work
    )
  aggregator = create_aggregator(config, plan, model_fn)
  if canaries is not None:
    aggregator = aggregators.add_canary_products(aggregator, canaries)
  return learning.build_fed_avg(model_fn, model_aggregator=aggregator, **work)


def describe_aggregation(config: Config) -> str:
  """Returns what clips, and what adds noise, in sentences."""
  if config.aggregator is not None:
    return (
      f'The plan holds only if {named_functions.name_of(config.aggregator)} '
      "clips each update and adds the plan's noise."
    )
  norm = config.clipping_norm
  clip = {
    'fixed': f'The clipping norm is {norm}.',
    'adaptive': (
      f'The clipping norm is adaptive, from {norm}. The noise multiplier is '
      'that of the sum and of the bits that set the norm together: the sum '
      'alone has more.'
    ),
    'per_layer': (
      f'The clipping norm of all tensors together is {norm}; all have the same '
      'share of its square.'
    ),
  }[config.clipping]
  added = {
    'plain': '',
    'secure': ' The sum is a secure one, in fixed point.',
    'distributed': (
      ' The noise is discrete Gaussian, in shares of the clients, on a secure '
      'sum of integers.'
    ),
  }[config.aggregation]
  return clip + added
