"""The algorithms: what goes together, and what is made of settings.

All are functions of a `Config`. A new algorithm is a function that returns its
aggregator, and a line of `ALGORITHMS`.
"""

import dataclasses
import math
import pathlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import tensorflow_federated as tff

from tasks import named_functions
from tasks.config import Config
from tff_clipping import aggregators, learning, privacy
from tff_clipping.learning import steps
from tff_clipping.privacy import audit
from tff_clipping.privacy.plans import obligations
from tff_clipping.programs.clients import client_sampling

ModelFn = Callable[[], tff.learning.models.VariableModel]
Functions = Mapping[str, Any]
Plan = privacy.BasePlan

# Of the heavy ball, at the clients and at the server.
_MOMENTUM = 0.9
# tau of Reddi et al., "Adaptive Federated Optimization" (ICLR 2021).
_EPSILON = 1e-3
# Under these a plan charges for what clients keep; docs/accounting.md.
_SAMPLINGS_TO_KEEP_UNDER = ('poisson', 'min_separation')
_IN_TURNS = ('round_robin', 'min_separation', 'grouped_poisson')
_SAMPLINGS = {
  'public': ('fixed_size', 'poisson', 'round_robin'),
  'gaussian': ('poisson', 'fixed_size', 'random_allocation', 'paper'),
  'correlated': ('min_separation', 'grouped_poisson'),
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


class Rule(NamedTuple):
  """What settings that go together hold.

  Attributes:
    setting: The setting that breaks it.
    must: What the setting must be, as the end of a sentence.
    holds: Whether the rule holds.
  """

  setting: str
  must: str
  holds: Callable[[Config], Any]


def _only(setting: str, where: str, holds: Callable[[Config], Any]) -> Rule:
  """The rule that a setting is given only where something else is."""
  default = {f.name: f.default for f in dataclasses.fields(Config)}[setting]
  return Rule(
    setting,
    f'must be given for {where} only',
    lambda c: getattr(c, setting) == default or holds(c),
  )


def _clips_updates(c: Config) -> bool:
  return c.algorithm in ('ce_fed_avg', 'dp_fed_avg')


def _has_noise(c: Config) -> bool:
  return c.algorithm == 'dp_fed_avg'


def _has_norm(c: Config) -> bool:
  return not (c.clipping_norm is None and c.clipping_norm_from is None)


def _is_own(c: Config) -> bool:
  return c.aggregator is not None


RULES: tuple[Rule, ...] = (
  # Data and cohorts.
  Rule(
    'clients_per_round',
    'must be at most `num_clients`',
    lambda c: c.num_clients is None or c.clients_per_round <= c.num_clients,
  ),
  Rule(
    'update_rounds',
    'must be different rounds below `num_rounds`, counted from 0',
    lambda c: (
      len(set(c.update_rounds)) == len(c.update_rounds)
      and max(c.update_rounds, default=0) < c.num_rounds
    ),
  ),
  Rule(
    'sampling',
    f'must be one of {", ".join(_SAMPLINGS["public"])} for an algorithm '
    'without noise',
    lambda c: _has_noise(c) or c.sampling in _SAMPLINGS['public'],
  ),
  Rule(
    'sampling',
    f'must be one of {", ".join(_SAMPLINGS["gaussian"])} for `mechanism` '
    'gaussian: others do not hide who takes part, or are for noise that is '
    'correlated between rounds',
    lambda c: (
      not _has_noise(c)
      or is_correlated(c)
      or c.sampling in _SAMPLINGS['gaussian']
    ),
  ),
  Rule(
    'sampling',
    f'must be one of {", ".join(_SAMPLINGS["correlated"])} for noise that is '
    'correlated between rounds: of other cohorts, its cost is not computed '
    'here',
    lambda c: not is_correlated(c) or c.sampling in _SAMPLINGS['correlated'],
  ),
  _only(
    'min_separation',
    f'`sampling` {", ".join(_IN_TURNS)}',
    lambda c: c.sampling in _IN_TURNS,
  ),
  Rule(
    'min_separation',
    'must be at least 2 for noise that is correlated between rounds',
    lambda c: not is_correlated(c) or c.min_separation != 1,
  ),
  # Clipping.
  _only(
    'clipping_norm',
    'an algorithm that clips',
    lambda c: c.algorithm != 'fed_avg',
  ),
  _only(
    'clipping_norm_from', 'an algorithm that clips updates', _clips_updates
  ),
  Rule(
    'clipping_norm',
    'must be given: as a number, which for adaptive `clipping` may be a rough '
    'guess; or by `clipping_norm_from`, from a run of fed_avg (half of the '
    'mean norm of its updates, an exact figure with which nothing is '
    'guaranteed) or from a private run with `clipping` adaptive, whose epsilon '
    'is spent too',
    lambda c: c.algorithm == 'fed_avg' or _is_own(c) or _has_norm(c),
  ),
  Rule(
    'clipping_norm',
    'and `clipping_norm_from` exclude each other',
    lambda c: c.clipping_norm is None or c.clipping_norm_from is None,
  ),
  _only(
    'clipping',
    'an algorithm that clips updates, and without `aggregator`,',
    lambda c: _clips_updates(c) and not _is_own(c),
  ),
  _only(
    'aggregation',
    'an algorithm that clips updates, and without `aggregator`,',
    lambda c: _clips_updates(c) and not _is_own(c),
  ),
  Rule(
    'clipping',
    'must not be adaptive for `aggregation` secure or distributed, whose '
    'bounds are those of a constant c',
    lambda c: c.clipping != 'adaptive' or c.aggregation == 'plain',
  ),
  Rule(
    'clipping',
    'must be fixed for `aggregation` distributed and for noise that is '
    'correlated between rounds',
    lambda c: (
      c.clipping == 'fixed'
      or (c.aggregation != 'distributed' and not is_correlated(c))
    ),
  ),
  Rule(
    'aggregation',
    'must be plain or secure but for noise of dp_fed_avg that is independent '
    'between rounds',
    lambda c: (
      c.aggregation != 'distributed' or (_has_noise(c) and not is_correlated(c))
    ),
  ),
  Rule(
    'accountant',
    'must be rdp for `aggregation` distributed: pld is not proved for sampled '
    'noise in integers',
    lambda c: c.aggregation != 'distributed' or c.accountant == 'rdp',
  ),
  Rule(
    'sampling',
    'must not be paper for `aggregation` distributed: its cohorts are charged '
    'by pld',
    lambda c: c.aggregation != 'distributed' or c.sampling != 'paper',
  ),
  _only(
    'sum_bits',
    '`aggregation` distributed',
    lambda c: c.aggregation == 'distributed',
  ),
  _only(
    'aggregator',
    'fed_avg, ce_fed_avg and dp_fed_avg',
    lambda c: c.algorithm != 'model_clipping_fed_avg',
  ),
  # Privacy.
  *(
    _only(name, 'dp_fed_avg, which adds noise,', _has_noise)
    for name in (
      *('target_epsilon', 'target_delta', 'noise_multiplier', 'mechanism'),
      *('noise_clients_per_round', 'audit_canaries'),
    )
  ),
  Rule(
    'target_delta',
    'must be given for dp_fed_avg',
    lambda c: not _has_noise(c) or c.target_delta is not None,
  ),
  Rule(
    'target_epsilon',
    'or `noise_multiplier` must be given for dp_fed_avg, and not both',
    lambda c: (
      not _has_noise(c)
      or (c.target_epsilon is None) != (c.noise_multiplier is None)
    ),
  ),
  Rule(
    'mechanism',
    'must be gaussian for `aggregator`, whose plan charges noise that is '
    'independent between rounds',
    lambda c: not (_is_own(c) and is_correlated(c)),
  ),
  Rule(
    'audit_canaries',
    'must be given for noise at the server that is independent between rounds, '
    'with a given constant clipping norm, and without '
    '`simulation_diagnostics`',
    lambda c: (
      c.audit_canaries is None
      or (
        not is_correlated(c)
        and c.aggregation != 'distributed'
        and c.clipping != 'adaptive'
        and _has_norm(c)
        and not c.simulation_diagnostics
      )
    ),
  ),
  Rule(
    'noise_clients_per_round',
    'must be given for noise at the server that is independent between rounds, '
    'of cohorts by `sampling` poisson or fixed_size, without `aggregator` and '
    '`audit_canaries`',
    lambda c: (
      c.noise_clients_per_round is None
      or (
        not is_correlated(c)
        and c.aggregation != 'distributed'
        and c.sampling in ('poisson', 'fixed_size')
        and not _is_own(c)
        and c.audit_canaries is None
      )
    ),
  ),
  # Local steps.
  Rule(
    'local_step',
    'must be sgd, momentum, proximal, scaffold, FILE.py:function or '
    'module:function',
    lambda c: (
      c.local_step in LOCAL_STEPS
      or named_functions.is_function_name(c.local_step)
    ),
  ),
  _only(
    'proximal_mu',
    '`local_step` proximal',
    lambda c: c.local_step == 'proximal',
  ),
  Rule(
    'proximal_mu',
    'must be given for `local_step` proximal',
    lambda c: c.local_step != 'proximal' or c.proximal_mu is not None,
  ),
)

# Of steps whose clients keep something from round to round.
_RULES_OF_KEEPING: tuple[Rule, ...] = (
  Rule(
    'algorithm',
    'must not be model_clipping_fed_avg for a `local_step` whose clients keep '
    'something: they send updates',
    lambda c: c.algorithm != 'model_clipping_fed_avg',
  ),
  Rule(
    'clipping',
    'must be fixed for a `local_step` whose clients keep something, which '
    'follows updates that are cut to c',
    lambda c: c.clipping == 'fixed',
  ),
  Rule(
    'aggregator',
    'must not be given for a `local_step` whose clients keep something, which '
    'has to know how updates are clipped',
    lambda c: not _is_own(c),
  ),
  Rule(
    'audit_canaries',
    'must not be given for a `local_step` whose clients keep something, which '
    'canaries do not',
    lambda c: c.audit_canaries is None,
  ),
  Rule(
    'sampling',
    f'must be one of {", ".join(_SAMPLINGS_TO_KEEP_UNDER)} for a `local_step` '
    'whose clients keep something: what they send tells who took part in '
    'earlier rounds, and no amplification by that sampling is proved then',
    lambda c: not is_private(c) or c.sampling in _SAMPLINGS_TO_KEEP_UNDER,
  ),
)


def check(config: Config) -> None:
  """Raises unless the settings go together.

  Raises:
    ValueError: If they do not.
  """
  if config.algorithm not in ALGORITHMS:
    raise ValueError(
      f'`algorithm` must be one of {", ".join(ALGORITHMS)}, found '
      f'{config.algorithm!r}.'
    )
  _check(config, RULES)


def _check(config: Config, rules: tuple[Rule, ...]) -> None:
  for rule in rules:
    if not rule.holds(config):
      found = getattr(config, rule.setting)
      shown = 'none' if found is None else found
      raise ValueError(f'`{rule.setting}` {rule.must}, found {shown}.')


def min_separation(config: Config, num_clients: int) -> int:
  """Returns b, by default the most that N clients allow.

  Args:
    config: The settings.
    num_clients: N.
  """
  if config.min_separation is not None:
    return config.min_separation
  return max(1, num_clients // config.clients_per_round)


def find_plan(
  config: Config, num_clients: int, ledger: pathlib.Path | None = None
) -> Plan | None:
  """Returns the privacy plan of a run; `None` for one without.

  That of an audited run counts canaries too. That of a run that goes on is in
  its ledger: nothing is searched for again.

  Args:
    config: The settings.
    num_clients: The clients of its data, without canaries.
    ledger: The ledger of the run; `None` for a new plan.

  Raises:
    DamagedLedgerError: If the ledger is not what was written.
    ValueError: If the plan in it has other settings, or no plan is possible.
  """
  if not is_private(config):
    return None
  asked = _plan_settings(config, num_clients)
  if ledger is not None:
    sought = dict(asked)
    if config.audit_canaries is not None:
      sought['num_clients'], sought['clients_per_round'] = (
        audit.add_canaries_to_population(
          num_clients, config.clients_per_round, 2 * config.audit_canaries
        )
      )
    kept = privacy.read_plan(ledger, **sought)
    if kept is not None:
      _check_mechanism(config, kept, ledger)
      return kept
  plan = _create_plan(config, asked)
  if config.audit_canaries is None:
    return plan
  return audit.add_canaries_to_plan(plan, 2 * config.audit_canaries)


def _plan_settings(config: Config, num_clients: int) -> dict[str, Any]:
  """Returns the attributes of a plan that are given, not searched for."""
  settings = dict(
    num_clients=num_clients,
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
    return settings | dict(min_separation=min_separation(config, num_clients))
  if config.sampling == 'paper':
    # What its cohorts cost; a target would stop the run.
    settings.pop('target_epsilon', None)
    return settings | dict(sampling='fixed_size', accountant='pld')
  return settings | dict(accountant=config.accountant)


def _create_plan(config: Config, settings: dict[str, Any]) -> Plan:
  if is_correlated(config):
    sought = ('target_delta', 'target_epsilon', 'noise_multiplier')
    strategy = privacy.build_strategy(
      config.mechanism,
      **{k: v for k, v in settings.items() if k not in sought},
    )
    settings = settings | dict(strategy=strategy)
    del settings['num_rounds']
    return _find_noise(privacy.CorrelatedNoisePlan, settings)
  if config.sampling == 'paper':
    # Departs from the paper: it charges fixed cohorts as Poisson samples.
    poisson = paper_plan(config, settings['num_clients'])
    settings = settings | dict(noise_multiplier=poisson.noise_multiplier)
  return _find_noise(privacy.PrivacyPlan, settings)


def _find_noise(kind: Any, settings: Mapping[str, Any]) -> Plan:
  if 'noise_multiplier' in settings:
    return kind.from_noise_multiplier(**settings)
  return kind.from_target_epsilon(**settings)


def paper_plan(config: Config, num_clients: int) -> privacy.PrivacyPlan:
  """Returns the plan by which the paper charges: that of Poisson samples.

  Args:
    config: The settings of a run with `sampling` paper.
    num_clients: N.
  """
  as_poisson = dataclasses.replace(config, sampling='poisson')
  return _create_plan(as_poisson, _plan_settings(as_poisson, num_clients))


def _check_mechanism(config: Config, kept: Plan, ledger: pathlib.Path) -> None:
  """Raises if a ledger charges for noise of another kind."""
  mechanism = 'gaussian'
  if isinstance(kept, privacy.CorrelatedNoisePlan):
    mechanism = kept.strategy.kind
  if mechanism != config.mechanism:
    raise ValueError(
      f'`mechanism` must be {mechanism}, which the ledger {ledger} charges '
      f'for, found {config.mechanism}.'
    )


def create_sampler(
  config: Config, plan: Plan | None, client_ids: tuple[str, ...]
) -> client_sampling.ClientSampler:
  """Returns what draws the cohorts; that of a private run is the plan's.

  Args:
    config: The settings, with the seed of the cohorts.
    plan: The plan of the run; `None` for one without.
    client_ids: The clients.
  """
  seed = config.sampling_seed
  if plan is not None:
    return client_sampling.build_private_sampler(plan, client_ids, seed=seed)
  if config.sampling == 'poisson':
    prob = config.clients_per_round / len(client_ids)
    return client_sampling.PoissonSampler(
      client_ids, sampling_prob=prob, seed=seed
    )
  fixed = dict(clients_per_round=config.clients_per_round, seed=seed)
  if config.sampling == 'round_robin':
    return client_sampling.RoundRobinSampler(
      client_ids,
      min_separation=min_separation(config, len(client_ids)),
      **fixed,
    )
  return client_sampling.FixedSizeSampler(client_ids, **fixed)


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
  config: Config,
  plan: Plan | None,
  model_fn: ModelFn,
  *,
  num_clients: int,
  functions: Functions,
) -> tff.aggregators.UnweightedAggregationFactory | None:
  """Returns what aggregates the updates; `None` is TFF's own mean.

  Args:
    config: The settings.
    plan: The plan of the run; `None` for one that is not private.
    model_fn: The model whose updates are aggregated.
    num_clients: N.
    functions: What names of functions in `config` stand for, where they are not
      to be loaded by name.

  Raises:
    TypeError: If a user's function takes, or returns, something else.
    ValueError: If it fails.
  """
  if config.aggregator is not None:
    return _own_aggregator(config, plan, model_fn, functions)
  noise = _find_noise_of_mean(config, plan, num_clients)
  return ALGORITHMS[config.algorithm](config, plan, noise, model_fn)


def _find_noise_of_mean(
  config: Config, plan: Plan | None, num_clients: int
) -> obligations.AggregatorParameters | None:
  """Returns the noise multiplier and P; `None` without noise.

  A simulation of M clients has the noise on the mean of a plan for cohorts of
  M, of a population that is as many times larger as M is than P.
  """
  if config.noise_clients_per_round is None:
    return None if plan is None else plan.aggregator_parameters
  cohort, simulated = config.clients_per_round, config.noise_clients_per_round
  population = round(num_clients * simulated / cohort)
  larger = dataclasses.replace(
    config, clients_per_round=simulated, num_clients=population
  )
  found = _create_plan(larger, _plan_settings(larger, population))
  return obligations.AggregatorParameters(
    found.noise_multiplier * cohort / simulated, cohort
  )


def _own_aggregator(
  config: Config, plan: Plan | None, model_fn: ModelFn, functions: Functions
) -> tff.aggregators.UnweightedAggregationFactory:
  """Returns what a user's function returns, if it can be used."""
  function = named_functions.find(functions, 'aggregator', config.aggregator)
  given = dict(clipping_norm=config.clipping_norm, plan=plan)
  arguments = {k: v for k, v in given.items() if v is not None}
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
  named_functions.call(
    'aggregator', factory.create, '(value_type)', weights_type.trainable
  )
  return factory


LOCAL_STEPS: Mapping[str, Callable[[Config, float], steps.LocalStep]] = {
  'sgd': lambda config, share: steps.Sgd(),
  'momentum': lambda config, share: steps.Momentum(_MOMENTUM),
  'proximal': lambda config, share: steps.Proximal(config.proximal_mu),
  'scaffold': lambda config, share: steps.Scaffold(
    share, config.clipping_norm or math.inf
  ),
}


def create_local_step(
  config: Config, num_clients: int, functions: Functions
) -> steps.LocalStep:
  """Returns the local step of a run.

  Args:
    config: The settings.
    num_clients: N.
    functions: As of `create_aggregator`.

  Raises:
    TypeError: If a user's function takes, or returns, something else.
    ValueError: If it fails, or its clients keep something under settings that
      do not allow it.
  """
  share = config.clients_per_round / num_clients
  if config.local_step in LOCAL_STEPS:
    step = LOCAL_STEPS[config.local_step](config, share)
  else:
    function = named_functions.find(functions, 'local_step', config.local_step)
    given = dict(participation=share, clipping_norm=config.clipping_norm)
    arguments = {
      k: v for k, v in given.items() if named_functions.takes(function, k)
    }
    step = named_functions.call(
      'local_step',
      function,
      '() and, by name, participation and clipping_norm',
      **arguments,
    )
    if not isinstance(step, steps.LocalStep):
      raise TypeError(
        '`local_step` must be a function that returns a `LocalStep`, found '
        f'that {named_functions.name_of(function)} returns '
        f'{type(step).__name__}.'
      )
  if isinstance(step, steps.KeepingStep):
    _check(config, _RULES_OF_KEEPING)
  return step


def create_server_optimizer(
  config: Config,
) -> tff.learning.optimizers.Optimizer:
  """Returns what applies the aggregate to the global model."""
  rate = config.server_learning_rate
  optimizers = tff.learning.optimizers
  return {
    'sgd': lambda: optimizers.build_sgdm(rate),
    'momentum': lambda: optimizers.build_sgdm(rate, momentum=_MOMENTUM),
    'adam': lambda: optimizers.build_adam(rate, epsilon=_EPSILON),
    'yogi': lambda: optimizers.build_yogi(rate, epsilon=_EPSILON),
    'adagrad': lambda: optimizers.build_adagrad(rate, epsilon=_EPSILON),
  }[config.server_optimizer]()


def create_process(
  config: Config,
  plan: Plan | None,
  model_fn: ModelFn,
  *,
  clients: Any,
  num_clients: int,
  functions: Functions,
  canaries: audit.Canaries | None = None,
) -> tff.learning.templates.LearningProcess:
  """Returns the learning process of a run.

  Args:
    config: The settings.
    plan: The plan of the run; `None` for one that is not private.
    model_fn: The model that clients train.
    clients: The store of the clients.
    num_clients: N, without canaries.
    functions: As of `create_aggregator`.
    canaries: Those among the clients of an audited run.
  """
  work = dict(
    local_steps=config.local_steps,
    batch_size=config.batch_size,
    client_learning_rate=config.client_learning_rate,
    client_store=clients,
    seed=config.seed,
    local_step=create_local_step(config, num_clients, functions),
    server_optimizer=create_server_optimizer(config),
    measure_updates=measures_updates(config),
  )
  if config.algorithm == 'model_clipping_fed_avg':
    return learning.build_model_clipping_fed_avg(
      model_fn, clipping_norm=config.clipping_norm, **work
    )
  aggregator = create_aggregator(
    config, plan, model_fn, num_clients=num_clients, functions=functions
  )
  if canaries is not None:
    aggregator = aggregators.add_canary_products(aggregator, canaries)
  return learning.build_fed_avg(model_fn, model_aggregator=aggregator, **work)


def describe_aggregation(config: Config) -> str:
  """Returns what clips, and what adds noise, in sentences."""
  if config.aggregator is not None:
    return (
      f'The plan holds only if {config.aggregator} clips each update and adds '
      "the plan's noise."
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
