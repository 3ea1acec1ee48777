"""Tests of the algorithms: what goes together, aggregators, plans and steps."""

import collections
import math

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tasks import algorithms, config
from tasks.models import run_models
from tests.privacy.ledgers import charge
from tests.tasks.small_runs import DP_FED_AVG, FED_AVG
from tff_clipping import adaptive_noise, aggregators, privacy
from tff_clipping.learning import steps
from tff_clipping.privacy.accounting import solve
from tff_clipping.privacy.correlated_noise import optimization

_FED_AVG = FED_AVG | dict(num_clients=40, clients_per_round=20)
_PUBLIC = _FED_AVG | dict(algorithm='ce_fed_avg', clipping_norm=0.5)
_PRIVATE = _PUBLIC | dict(
  algorithm='dp_fed_avg',
  noise_multiplier=1.5,
  target_delta=1e-3,
  sampling='fixed_size',
)
_TURNS = dict(mechanism='blt', sampling='min_separation', min_separation=2)


def _config(settings, **changes):
  return config.Config(**{**settings, **changes})


def _model_fn():
  spec = collections.OrderedDict(
    x=tf.TensorSpec([3], tf.float32), y=tf.TensorSpec([], tf.int32)
  )
  inputs = tf.keras.Input((3,))
  return run_models.build_model_fn(
    lambda: tf.keras.Model(inputs, tf.keras.layers.Dense(2)(inputs)), spec
  )()


def _process(settings, **changes):
  created = _config(settings, **changes)
  algorithms.check(created)
  plan = algorithms.find_plan(created)
  weights_type = tff.learning.models.weights_type_from_model(_model_fn)
  factory = algorithms.create_aggregator(created, plan, _model_fn)
  return factory.create(weights_type.trainable)


def _update(kernel, bias):
  # Of norms |kernel| and |bias|.
  kernel, bias = (
    np.full(shape, norm / math.sqrt(np.prod(shape)), np.float32)
    for shape, norm in (([3, 2], kernel), ([2], bias))
  )
  return [kernel, bias]


def _norms(result):
  return [float(np.linalg.norm(leaf)) for leaf in result]


@pytest.mark.parametrize(
  'aggregation', ['plain', pytest.param('secure', marks=pytest.mark.slow)]
)
@pytest.mark.parametrize(
  ('clipping', 'norms'),
  [
    # (3, 4) is cut to a tenth, as a whole.
    ('fixed', [0.3, 0.4]),
    # Each to 0.5 / sqrt(2).
    ('per_layer', [0.5 / math.sqrt(2)] * 2),
  ],
)
def test_the_mean_of_bounded_updates(clipping, norms, aggregation):
  process = _process(_PUBLIC, clipping=clipping, aggregation=aggregation)
  state = process.initialize()
  output = process.next(state, [_update(3, 4), _update(3, 4)])
  np.testing.assert_allclose(_norms(output.result), norms, rtol=1e-5)
  # An empty cohort changes nothing.
  assert _norms(process.next(state, []).result) == [0, 0]
  assert ('secure_sum_bound' in str(output.measurements)) == (
    aggregation == 'secure'
  )


def test_an_adaptive_norm_goes_to_the_median():
  process = _process(_PUBLIC, clipping='adaptive')
  output = process.next(process.initialize(), [_update(3, 4)] * 2)
  np.testing.assert_allclose(_norms(output.result), [0.3, 0.4], rtol=1e-5)
  output = process.next(output.state, [_update(3, 4)] * 2)
  assert output.measurements['clipping_norm'] == pytest.approx(
    0.5 * math.exp(0.2 * 0.5)
  )


@pytest.mark.parametrize(
  ('changes', 'stddev'),
  [
    (dict(), 1.5 * 0.5),
    pytest.param(dict(aggregation='secure'), 1.5 * 0.5, marks=pytest.mark.slow),
    pytest.param(dict(clipping='per_layer'), 1.5 * 0.5, marks=pytest.mark.slow),
    (
      dict(clipping='adaptive', noise_multiplier=0.5),
      0.5
      * adaptive_noise.split_noise_multiplier(
        noise_multiplier=0.5, below_count_stddev=1.0
      ),
    ),
    # The noise on the mean of cohorts of 60: 1.5 c / 60 = (0.5 c) / 20.
    (dict(noise_clients_per_round=60), 0.5 * 0.5),
  ],
)
def test_the_noise_is_that_of_the_plan(changes, stddev):
  process = _process(_PRIVATE, **changes)
  output = process.next(process.initialize(), [_update(3, 4)])
  measurements = output.measurements
  assert measurements['noise_stddev'] == pytest.approx(stddev, rel=1e-6)
  assert not any('count' in name for name in measurements)
  assert all(np.isfinite(_norms(output.result)))


def test_the_noise_of_the_clients_is_that_of_the_plan():
  process = _process(_PRIVATE, aggregation='distributed', sum_bits=20)
  output = process.next(process.initialize(), [_update(3, 4)] * 20)
  # In integers, with at most 1 % more for the rounding.
  assert 0.75 <= output.measurements['noise_stddev'] <= 0.75 * 1.011


def test_simulated_noise_is_that_of_the_larger_population_by_its_budget():
  created = _config(
    _PRIVATE,
    noise_multiplier=None,
    target_epsilon=2.0,
    sampling='poisson',
    noise_clients_per_round=80,
  )
  algorithms.check(created)
  assert algorithms.find_plan(created) is None
  assert not algorithms.is_private(created)
  of_80 = privacy.calibrate_noise_multiplier(
    num_clients=160,
    clients_per_round=80,
    num_rounds=2,
    target_epsilon=2.0,
    target_delta=1e-3,
  )
  process = _process(created.to_json())
  output = process.next(process.initialize(), [_update(3, 4)])
  assert output.measurements['noise_stddev'] / 20 == pytest.approx(
    of_80 * 0.5 / 80
  )


def test_the_papers_cohorts_have_the_noise_of_poisson_at_their_own_cost():
  created = _config(DP_FED_AVG, sampling='paper')
  algorithms.check(created)
  plan = algorithms.find_plan(created)
  poisson = algorithms.paper_plan(created)
  assert poisson.sampling == 'poisson'
  assert poisson.epsilon <= 8.0
  assert plan.sampling == 'fixed_size'
  assert plan.noise_multiplier == poisson.noise_multiplier
  # A target would stop the run.
  assert plan.epsilon > 8.0
  assert plan.target_epsilon is None
  audited = algorithms.find_plan(_config(created.to_json(), audit_canaries=10))
  assert audited.relation is plan.relation is privacy.Relation.REPLACE_ONE


def test_correlated_noise_takes_turns_of_n_over_p_rounds_by_default():
  created = _config(
    DP_FED_AVG, mechanism='blt', sampling='min_separation', num_rounds=5
  )
  algorithms.check(created)
  assert algorithms.find_plan(created).min_separation == 5
  other = _config(created.to_json(), min_separation=2)
  assert algorithms.find_plan(other).min_separation == 2


_BANDED = dict(
  mechanism='banded', sampling='min_separation', min_separation=3, num_rounds=4
)


@pytest.mark.parametrize(
  'changes',
  [
    {},
    _BANDED,
    _BANDED | dict(mechanism='blt'),
    _BANDED | dict(sampling='grouped_poisson'),
    dict(audit_canaries=20, clients_per_round=20),
  ],
)
def test_a_run_that_goes_on_has_the_plan_of_its_ledger(
  tmp_path, monkeypatch, changes
):
  def fail(*args, **kwargs):
    raise AssertionError('A run that goes on searches for nothing.')

  created = _config(DP_FED_AVG, **changes)
  plan = algorithms.find_plan(created)
  charge(tmp_path / 'ledger.jsonl', [1], plan)
  for module, name in (
    (optimization, '_minimize'),
    (solve, 'find'),
    (privacy.CorrelatedNoisePlan, 'from_target_epsilon'),
  ):
    monkeypatch.setattr(module, name, fail)
  assert algorithms.find_plan(created, tmp_path / 'ledger.jsonl') == plan
  with pytest.raises(ValueError, match='num_rounds'):
    algorithms.find_plan(
      _config(created.to_json(), num_rounds=9), tmp_path / 'ledger.jsonl'
    )


_AUDITED = _PRIVATE | dict(audit_canaries=100)
_CORRELATED = _PRIVATE | _TURNS
_MODEL_CLIPPING = _PUBLIC | dict(algorithm='model_clipping_fed_avg')


@pytest.mark.parametrize(
  ('settings', 'changes', 'words'),
  [
    (_FED_AVG, dict(algorithm='x'), '`algorithm` must be one of fed_avg, '),
    (_FED_AVG, dict(clients_per_round=41), '`clients_per_round` must be at m'),
    (_FED_AVG, dict(update_rounds=(0, 0)), '`update_rounds` must be'),
    (_FED_AVG, dict(update_rounds=(2,)), '`update_rounds` must be'),
    (_FED_AVG, dict(sampling='paper'), '`sampling` must .* without noise'),
    (_FED_AVG, dict(min_separation=2), '`min_separation` .* only, found 2'),
    (_FED_AVG, dict(proximal_mu=0.1), '`proximal_mu` .* only, found 0.1'),
    (_FED_AVG, dict(local_step='proximal'), '`proximal_mu` must be given for'),
    (_FED_AVG, dict(num_workers=2), '`num_workers` .* only, found 2'),
    (_FED_AVG, dict(dirichlet_alpha=0.1), '`dirichlet_alpha` .* only, found'),
    (_FED_AVG, dict(shards_per_client=3), '`shards_per_client` .* only, fou'),
    # Clipping.
    (_FED_AVG, dict(clipping_norm=1.0), '`clipping_norm` .* only, found 1.0'),
    (_FED_AVG, dict(aggregation='secure'), '`aggregation` .* only'),
    (_PUBLIC, dict(clipping_norm=None), '`clipping_norm` must be given'),
    (_PRIVATE, dict(clipping_norm=None), '`clipping_norm` must be given'),
    (_PUBLIC, dict(clipping_norm_from='a'), '`clipping_norm_from` exclude'),
    (_PUBLIC, dict(aggregation='distributed'), 'must be plain or secure but'),
    (
      _PUBLIC,
      dict(aggregator='m:f', clipping='adaptive'),
      '`clipping` .* only',
    ),
    (
      _PUBLIC,
      dict(clipping='adaptive', aggregation='secure'),
      '`clipping` must be fixed or per_layer for .* found adaptive',
    ),
    (
      _MODEL_CLIPPING,
      dict(clipping_norm=None, clipping_norm_from='a'),
      '`clipping_norm_from` .* only, found a',
    ),
    (_MODEL_CLIPPING, dict(clipping='adaptive'), '`clipping` .* only'),
    (_MODEL_CLIPPING, dict(aggregator='m:f'), '`aggregator` .* only'),
    (_PRIVATE, dict(sum_bits=14), '`sum_bits` .* only, found 14'),
    *(
      (_PRIVATE | changes, dict(aggregation='distributed'), words)
      for changes, words in (
        (dict(clipping='per_layer'), '`clipping` must be fixed .*per_layer'),
        (dict(accountant='pld'), 'must not be distributed for `accountant` pl'),
        *(
          (dict(sampling=each), 'distributed with `sampling` fixed_size only')
          for each in ('paper', 'poisson', 'random_allocation')
        ),
      )
    ),
    (_CORRELATED, dict(clipping='per_layer'), '`clipping` must be fixed for'),
    # Privacy.
    (_PUBLIC, dict(accountant='pld'), '`accountant` .* only, found pld'),
    (_CORRELATED, dict(accountant='pld'), '`accountant` .* only, found pld'),
    (_PUBLIC, dict(target_epsilon=1.0), '`target_epsilon` .* only, found 1.0'),
    (_PUBLIC, dict(audit_canaries=10), '`audit_canaries` .* only, found 10'),
    (_PRIVATE, dict(target_delta=None), '`target_delta` must be given for dp'),
    (_PRIVATE, dict(target_epsilon=1.0), '`noise_multiplier` .* not both'),
    (_PRIVATE, dict(noise_multiplier=None), '`noise_multiplier` .* not both'),
    (_PRIVATE, dict(sampling='round_robin'), '`sampling` must .* independent'),
    (_PRIVATE, dict(sampling='min_separation'), 'must be .* independent'),
    (_CORRELATED, dict(sampling='poisson'), '`sampling` must .* correlated'),
    (_CORRELATED, dict(aggregator='m:f'), '`mechanism` must be gaussian'),
    (_AUDITED, dict(simulation_diagnostics=True), '`audit_canaries` must be'),
    (_AUDITED, dict(clipping='adaptive'), '`audit_canaries` must be given'),
    (
      _AUDITED | dict(accountant='pld'),
      dict(sampling='random_allocation'),
      '`audit_canaries` must be .* with `sampling` poisson, fixed_size or pap',
    ),
    (_AUDITED, _TURNS, '`audit_canaries` must be given'),
    (
      _PRIVATE,
      dict(noise_clients_per_round=80, aggregator='m:f'),
      '`noise_clients_per_round` must be given',
    ),
  ],
)
def test_what_does_not_go_together_is_refused(settings, changes, words):
  with pytest.raises(ValueError, match=words):
    algorithms.check(_config(settings, **changes))


@pytest.mark.parametrize(
  ('changes', 'words'),
  [
    (dict(clipping='per_layer'), 'of all tensors together is 0.5'),
    (dict(aggregation='distributed'), 'in shares of the clients'),
    (dict(aggregator='mine:f'), 'only if mine:f clips each update'),
  ],
)
def test_what_the_plan_speaks_of_is_said(changes, words):
  assert words in algorithms.describe_aggregation(_config(_PRIVATE, **changes))


def _own_scaffold(participation, clipping_norm=math.inf):
  return steps.Scaffold(participation, clipping_norm)


@pytest.mark.parametrize(
  ('settings', 'expected'),
  [
    (_FED_AVG, steps.Sgd()),
    (_FED_AVG | dict(local_step='momentum'), steps.Momentum(0.9)),
    (
      _MODEL_CLIPPING | dict(local_step='proximal', proximal_mu=0.1),
      steps.Proximal(0.1),
    ),
    (_FED_AVG | dict(local_step='scaffold'), steps.Scaffold(20 / 40)),
    (_PUBLIC | dict(local_step='scaffold'), steps.Scaffold(20 / 40, 0.5)),
    # One's own takes what it names.
    (_PUBLIC | dict(local_step=_own_scaffold), steps.Scaffold(20 / 40, 0.5)),
    (_FED_AVG | dict(local_step=_own_scaffold), steps.Scaffold(20 / 40)),
    (
      _PUBLIC | dict(local_step=lambda: steps.Momentum(0.5)),
      steps.Momentum(0.5),
    ),
  ],
)
def test_settings_choose_the_local_step(settings, expected):
  created = config.Config(**settings)
  algorithms.check(created)
  assert algorithms.create_local_step(created) == expected


@pytest.mark.parametrize(
  ('settings', 'names'),
  [
    (_FED_AVG, set()),
    (_PUBLIC, {'clipping_norm'}),
    (_PUBLIC | dict(clipping_norm=None), set()),
    (_PRIVATE, {'clipping_norm', 'plan'}),
  ],
)
def test_an_own_aggregator_takes_c_and_the_plan(settings, names):
  found = {}

  def create(**given):
    found.update(given)
    return tff.aggregators.UnweightedMeanFactory()

  created = _config(settings, aggregator=create)
  algorithms.check(created)
  plan = algorithms.find_plan(created)
  algorithms.create_aggregator(created, plan, _model_fn)
  expected = dict(clipping_norm=0.5, plan=plan)
  assert found == {name: expected[name] for name in names}


def _layers(clipping_norm):
  return aggregators.per_layer_clipping_factory([clipping_norm])


def _weighted(clipping_norm):
  del clipping_norm
  return tff.aggregators.MeanFactory()


@pytest.mark.parametrize(
  ('setting', 'function', 'error', 'words'),
  [
    ('local_step', lambda: 3, TypeError, 'returns a LocalStep, found .* int'),
    ('local_step', 'adam', ValueError, '`local_step` must be module:function'),
    ('local_step', lambda: 1 / 0, ValueError, 'ZeroDivisionError'),
    ('local_step', 'no:f', ValueError, "`local_step` .* found 'no:f': Module"),
    ('aggregator', lambda clipping_norm: 3, TypeError, 'returns int'),
    ('aggregator', _weighted, TypeError, 'returns MeanFactory'),
    ('aggregator', _layers, ValueError, 'a norm for each of the 2 tensors'),
    ('aggregator', 'no:f', ValueError, "`aggregator` .* found 'no:f': Module"),
  ],
)
def test_own_functions_that_cannot_be_used_are_refused(
  setting, function, error, words
):
  created = _config(_PUBLIC, **{setting: function})
  with pytest.raises(error, match=words):
    algorithms.create_local_step(created)
    algorithms.create_aggregator(created, None, _model_fn)


@pytest.mark.parametrize('local_step', ['scaffold', _own_scaffold])
@pytest.mark.parametrize(
  ('settings', 'words'),
  [
    (_PUBLIC | dict(clipping='adaptive'), '`clipping` must be fixed for a'),
    (_PUBLIC | dict(aggregator='mine:f'), '`aggregator` must not be given'),
    (_AUDITED, '`audit_canaries` must not be given'),
    (_PRIVATE, 'found fixed_size.'),
  ],
)
def test_settings_without_a_place_for_what_clients_keep_are_refused(
  settings, words, local_step
):
  created = _config(settings, local_step=local_step)
  with pytest.raises(ValueError, match=words):
    algorithms.create_local_step(created)
