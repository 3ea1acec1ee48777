"""What is charged is what is drawn and what is added."""

import collections
import functools
import math

import dp_accounting
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff
from dp_accounting.pld import privacy_loss_distribution
from scipy import stats

from tff_clipping import aggregators, privacy
from tff_clipping.programs.clients import client_sampling

_NUM_CLIENTS = 60
_CLIENTS_PER_ROUND = 12
_CLIPPING_NORM = 0.3
_IDS = tuple(f'c{i}' for i in range(_NUM_CLIENTS))


@functools.cache
def _plan(sampling):
  return privacy.PrivacyPlan.from_target_epsilon(
    num_clients=_NUM_CLIENTS,
    clients_per_round=_CLIENTS_PER_ROUND,
    num_rounds=10,
    target_epsilon=4.0,
    target_delta=1e-3,
    sampling=sampling,
    accountant='pld' if sampling == 'random_allocation' else 'rdp',
  )


def _gaussian_event(event):
  """Returns the Gaussian event inside of a plan's event."""
  while not isinstance(event, dp_accounting.GaussianDpEvent):
    event = event.event
  return event


@pytest.mark.parametrize(
  'sampling',
  [
    'poisson',
    *(
      pytest.param(name, marks=pytest.mark.slow)
      for name in ('fixed_size', 'random_allocation')
    ),
  ],
)
def test_the_noise_that_is_added_is_what_the_event_charges(sampling):
  plan = _plan(sampling)
  factory = aggregators.dp_mean_factory(
    clipping_norm=_CLIPPING_NORM, **plan.aggregator_parameters._asdict()
  )
  size = 200_000
  process = factory.create(tff.TensorType(np.float32, [size]))
  zeros = [np.zeros(size, np.float32)] * 3
  mean = process.next(process.initialize(), zeros).result
  # The event's multiplier is over the sensitivity: c, or 2 c for replace-one.
  sensitivity = plan.sensitivity_factor * _CLIPPING_NORM
  charged = _gaussian_event(plan.dp_event).noise_multiplier * sensitivity
  found = np.std(mean.astype(np.float64)) * _CLIENTS_PER_ROUND
  # Five standard errors of the estimate: one failure in a million runs.
  assert found == pytest.approx(charged, rel=5 / np.sqrt(2 * size))


def _zeros_tell(factory, cohorts):
  """Returns what the variance of a release says of n, in shares of one client.

  All clients send zeros. The estimate is rounded; its standard error is 0.09
  for 21 shares.
  """
  size = 100_000
  process = factory.create(tff.TensorType(np.float32, [size]))
  state = process.initialize()
  zeros = np.zeros(size, np.float32)
  return {
    n: round(np.var(process.next(state, [zeros] * n).result, dtype=np.float64))
    for n in cohorts
  }


def _delta_of_sizes(told, prob, population, num_rounds, epsilon):
  """Returns the exact delta of what `num_rounds` releases tell of the sizes.

  Of Poisson cohorts of `population` clients against those of one less, both
  ways.
  """

  def law(clients):
    chances = collections.defaultdict(float)
    for n, label in told.items():
      if n <= clients:
        chances[label] += stats.binom.pmf(n, clients, prob)
    return {label: math.log(chance) for label, chance in chances.items()}

  one, other = law(population), law(population - 1)
  return max(
    privacy_loss_distribution.from_two_probability_mass_functions(*pair)
    .self_compose(num_rounds)
    .get_delta_for_epsilon(epsilon)
    for pair in ((one, other), (other, one))
  )


@pytest.mark.slow
def test_sizes_of_cohorts_alone_cost_nothing_with_shares():
  # 20 clients of which 10 are expected, 200 rounds, all of them sending zeros:
  # shares without bounds tell n in each round, and then who was there.
  plan = privacy.PrivacyPlan.from_noise_multiplier(
    num_clients=20,
    clients_per_round=10,
    num_rounds=200,
    noise_multiplier=60.0,
    target_delta=1e-5,
    sampling='truncated_poisson',
  )
  bounds = plan.share_parameters[2:]
  assert bounds == (0, 21)
  factory = aggregators.local_gaussian_noise_factory(
    1.0, min_clients_per_round=bounds[0], max_clients_per_round=bounds[1]
  )
  told = _zeros_tell(factory, range(21))
  assert set(told.values()) == {21}
  assert _delta_of_sizes(told, 0.5, 20, 200, plan.epsilon) < 1e-9
  # The computation has power: sizes that were told would break the promise.
  sizes = {n: n for n in range(21)}
  assert _delta_of_sizes(sizes, 0.5, 20, 200, plan.epsilon) > 0.5


@pytest.mark.parametrize(
  'sampling',
  ['truncated_poisson', pytest.param('fixed_size', marks=pytest.mark.slow)],
)
def test_shares_that_are_added_are_what_the_event_charges_or_more(sampling):
  plan = _plan(sampling)
  shares = plan.share_parameters
  factory = aggregators.local_gaussian_noise_factory(
    shares.share_multiplier * _CLIPPING_NORM,
    min_clients_per_round=shares.min_clients_per_round,
    max_clients_per_round=shares.max_clients_per_round,
  )
  size = 200_000
  process = factory.create(tff.TensorType(np.float32, [size]))
  sampler = client_sampling.build_private_sampler(plan, _IDS, seed=0)
  charged = _gaussian_event(plan.dp_event).noise_multiplier
  charged *= plan.sensitivity_factor * _CLIPPING_NORM
  for t in (1, 2):
    zeros = [np.zeros(size, np.float32)] * len(sampler.sample(t))
    total = process.next(process.initialize(), zeros).result
    found = np.std(total.astype(np.float64))
    # Five standard errors of the estimate: one failure in a million runs.
    error = 5 / np.sqrt(2 * size)
    expected = shares.release_multiplier * _CLIPPING_NORM
    assert found == pytest.approx(expected, rel=error + 5e-4)
    assert found > charged * (1 - error)


@pytest.mark.slow
def test_integers_take_the_shares_of_a_plan():
  plan = _plan('truncated_poisson')
  factory = aggregators.distributed_gaussian_mean_factory(
    clipping_norm=_CLIPPING_NORM, **plan.share_parameters._asdict()
  )
  process = factory.create(tff.TensorType(np.float32, [1024]))
  sampler = client_sampling.build_private_sampler(plan, _IDS, seed=0)
  zeros = [np.zeros(1024, np.float32)] * len(sampler.sample(1))
  output = process.next(process.initialize(), zeros)
  assert output.measurements['noise_stddev'] == pytest.approx(
    plan.share_parameters.release_multiplier * _CLIPPING_NORM, rel=0.011
  )


@pytest.mark.parametrize(
  'sampling',
  [
    *('poisson', 'truncated_poisson', 'fixed_size', 'paper'),
    pytest.param('random_allocation', marks=pytest.mark.slow),
  ],
)
def test_the_sampler_is_the_one_of_the_event(sampling):
  plan = _plan(sampling)
  sampler = client_sampling.build_private_sampler(plan, _IDS, seed=0)
  sizes = {len(sampler.sample(t)) for t in range(1, 60)}
  event = plan.dp_event.event
  if sampling == 'poisson':
    assert isinstance(event, dp_accounting.PoissonSampledDpEvent)
    assert event.sampling_probability == sampler._sampling_prob
    assert len(sizes) > 1
  elif sampling == 'truncated_poisson':
    assert isinstance(event, dp_accounting.PoissonSampledDpEvent)
    assert event.sampling_probability == sampler._sampling_prob
    assert len(sizes) > 1
    assert min(sizes) >= plan.min_clients_per_round
    assert max(sizes) <= plan.max_clients_per_round
  elif sampling == 'random_allocation':
    # Epochs of five rounds, in each of which everybody comes once.
    assert (event.num_rounds, plan.dp_event.count) == (5, 2)
    for first in (1, 6, 11):
      cohorts = [sampler.sample(t) for t in range(first, first + 5)]
      assert sorted(sum(cohorts, [])) == sorted(_IDS)
    assert len(sizes) > 1
  else:
    assert sizes == {_CLIENTS_PER_ROUND}
  if sampling == 'fixed_size':
    assert isinstance(event, dp_accounting.SampledWithoutReplacementDpEvent)
    assert event.sample_size == _CLIENTS_PER_ROUND
    assert event.source_dataset_size == _NUM_CLIENTS
  if sampling == 'paper':
    # The mismatch of the paper, by its name and with its real price.
    assert plan.actual_epsilon > plan.epsilon


def test_a_population_of_another_size_is_refused():
  with pytest.raises(ValueError, match='60 clients that the plan is for'):
    client_sampling.build_private_sampler(_plan('poisson'), _IDS[1:], seed=0)


def test_one_client_moves_the_private_mean_by_at_most_c_over_p():
  # The sum that the noise is added to, without noise worth mentioning.
  factory = aggregators.dp_mean_factory(
    clipping_norm=_CLIPPING_NORM,
    noise_multiplier=1e-12,
    clients_per_round=_CLIENTS_PER_ROUND,
  )
  value_type = tff.to_type(
    collections.OrderedDict(
      a=tff.TensorType(np.float32, [3]), b=tff.TensorType(np.float32, [2, 2])
    )
  )
  process = factory.create(value_type)
  state = process.initialize()
  rng = np.random.default_rng(0)

  def update(kind):
    scale = {'small': 0.01, 'large': 50.0, 'huge': 3e19, 'nan': np.nan}[kind]
    return collections.OrderedDict(
      a=(scale * rng.normal(size=3)).astype(np.float32),
      b=(scale * rng.normal(size=(2, 2))).astype(np.float32),
    )

  cohort = [update(kind) for kind in ('small', 'large', 'huge', 'nan')]
  for left_out in range(len(cohort)):
    neighbour = [u for i, u in enumerate(cohort) if i != left_out]
    one = process.next(state, cohort).result
    other = process.next(state, neighbour).result
    difference = np.sqrt(
      sum(
        np.sum((np.float64(x) - np.float64(y)) ** 2)
        for x, y in zip(
          tf.nest.flatten(one), tf.nest.flatten(other), strict=True
        )
      )
    )
    # float32 rounding of the sums is the only excess.
    assert difference <= _CLIPPING_NORM / _CLIENTS_PER_ROUND * (1 + 1e-6)


def test_correlated_noise_is_what_its_event_charges():
  num_rounds, size = 5, 50_000
  strategy = privacy.blt_strategy(
    num_rounds=num_rounds,
    participation=privacy.Participation(min_separation=2),
  )
  plan = privacy.CorrelatedNoisePlan.from_target_epsilon(
    num_clients=_NUM_CLIENTS,
    clients_per_round=_CLIENTS_PER_ROUND,
    strategy=strategy,
    target_epsilon=4.0,
    target_delta=1e-3,
    min_separation=2,
  )
  process = aggregators.correlated_dp_mean_factory(
    clipping_norm=_CLIPPING_NORM,
    strategy=plan.strategy,
    **plan.aggregator_parameters._asdict(),
  ).create(tff.TensorType(np.float32, [size]))

  def release(update):
    state, sums = process.initialize(), []
    for _ in range(num_rounds):
      output = process.next(state, [update])
      state = output.state
      sums.append(output.result.astype(np.float64) * _CLIENTS_PER_ROUND)
    return np.array(sums)

  # C times what is released is the one Gaussian of the event: white noise, of
  # its multiplier times by how much a client that comes as often as it may can
  # change C times the sums.
  matrix = np.linalg.inv(
    np.array(list(strategy.recurrence.stream(np.eye(num_rounds))))
  )
  noise = matrix @ release(np.zeros(size, np.float32))
  comes = np.array([1, 0, 1, 0, 1])
  change = np.linalg.norm(matrix @ comes) * _CLIPPING_NORM
  assert change == pytest.approx(plan.sensitivity * _CLIPPING_NORM)
  charged = plan.dp_event.noise_multiplier * change
  # Five standard errors of the estimate: one failure in a million runs.
  assert np.std(noise) == pytest.approx(
    charged, rel=5 / np.sqrt(2 * num_rounds * size)
  )
