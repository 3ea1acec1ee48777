"""What is charged is what is drawn and what is added."""

import collections
import functools

import dp_accounting
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests import noise_strategies
from tff_clipping import aggregators, privacy
from tff_clipping.programs.clients import client_sampling
from tff_clipping.programs.training import checkpoints, private_rounds

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
  sensitivity = plan.relation.sensitivity_factor * _CLIPPING_NORM
  charged = _gaussian_event(plan.dp_event).noise_multiplier * sensitivity
  found = np.std(mean.astype(np.float64)) * _CLIENTS_PER_ROUND
  # Five standard errors of the estimate: one failure in a million runs.
  assert found == pytest.approx(charged, rel=5 / np.sqrt(2 * size))


def test_shares_that_are_added_are_what_the_event_charges():
  plan = _plan('fixed_size')
  factory = aggregators.local_gaussian_noise_factory(
    plan.noise_multiplier * _CLIPPING_NORM,
    clients_per_round=plan.clients_per_round,
  )
  size = 200_000
  process = factory.create(tff.TensorType(np.float32, [size]))
  sampler = client_sampling.build_private_sampler(plan, _IDS, seed=0)
  charged = _gaussian_event(plan.dp_event).noise_multiplier
  charged *= plan.relation.sensitivity_factor * _CLIPPING_NORM
  zeros = [np.zeros(size, np.float32)] * len(sampler.sample(1))
  total = process.next(process.initialize(), zeros).result
  # Five standard errors of the estimate: one failure in a million runs.
  assert np.std(total.astype(np.float64)) == pytest.approx(
    charged, rel=5 / np.sqrt(2 * size)
  )


class _Fewer(client_sampling.FixedSizeSampler):
  """Draws cohorts of a fixed size, of which one client stays away."""

  def sample(self, round_num, draw=0):
    return super().sample(round_num, draw)[1:]


class _Left(_Fewer):
  """As canaries that are held out leave."""

  leaves_out = True


@pytest.mark.parametrize(
  ('sampler_type', 'size', 'message'),
  [
    (_Fewer, _CLIENTS_PER_ROUND, f'must draw cohorts of {_CLIENTS_PER_ROUND},'),
    # What the plan's sampler lets pass, the aggregator sees.
    (_Left, _CLIENTS_PER_ROUND, '`min_clients_per_round`: nothing is released'),
    # An aggregator for the cohorts that come, and not for those of the plan.
    (_Left, _CLIENTS_PER_ROUND - 1, "must have the plan's `clients_per_round`"),
  ],
)
def test_shares_of_a_cohort_of_another_size_are_not_charged(
  tmp_path, sampler_type, size, message
):
  plan = _plan('fixed_size')
  process = aggregators.local_gaussian_mean_factory(
    clipping_norm=_CLIPPING_NORM,
    noise_multiplier=plan.noise_multiplier,
    clients_per_round=size,
  ).create(tff.TensorType(np.float32, [2]))

  def next_fn(state, cohort):
    output = process.next(state, [np.zeros(2, np.float32)] * len(cohort))
    return tff.learning.templates.LearningProcessOutput(
      output.state, collections.OrderedDict(aggregator=output.measurements)
    )

  sampler = sampler_type(_IDS, clients_per_round=_CLIENTS_PER_ROUND, seed=0)
  sampler.charged_as = plan.sampler_parameters
  store = checkpoints.Checkpoints(tmp_path / 'outcomes')
  with privacy.PrivacyLedger(tmp_path / 'ledger.jsonl', plan) as ledger:
    _, state = private_rounds.resume(ledger, store, process.initialize())

    def run_round(sampler):
      private_rounds.run_private_round(
        next_fn, sampler, ledger, store, state=state, round_num=1
      )

    with pytest.raises(Exception, match=message):
      run_round(sampler)
    assert ledger.num_releases == 0
    assert not store.outcomes()
    if size == _CLIENTS_PER_ROUND:
      # The whole cohort is charged.
      run_round(client_sampling.build_private_sampler(plan, _IDS, seed=0))
      assert ledger.num_releases == 1
      assert not ledger.caveats


@pytest.mark.slow
def test_integers_take_the_shares_of_a_plan():
  plan = _plan('fixed_size')
  factory = aggregators.distributed_gaussian_mean_factory(
    clipping_norm=_CLIPPING_NORM, **plan.share_parameters._asdict()
  )
  process = factory.create(tff.TensorType(np.float32, [1024]))
  sampler = client_sampling.build_private_sampler(plan, _IDS, seed=0)
  zeros = [np.zeros(1024, np.float32)] * len(sampler.sample(1))
  output = process.next(process.initialize(), zeros)
  assert output.measurements['noise_stddev'] == pytest.approx(
    plan.noise_multiplier * _CLIPPING_NORM, rel=0.011
  )


@pytest.mark.parametrize(
  'sampling',
  [
    *('poisson', 'fixed_size'),
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
  matrix = np.linalg.inv(noise_strategies.inverse_matrix(strategy.recurrence))
  noise = matrix @ release(np.zeros(size, np.float32))
  comes = np.array([1, 0, 1, 0, 1])
  change = np.linalg.norm(matrix @ comes) * _CLIPPING_NORM
  assert change == pytest.approx(plan.sensitivity * _CLIPPING_NORM)
  charged = plan.dp_event.noise_multiplier * change
  # Five standard errors of the estimate: one failure in a million runs.
  assert np.std(noise) == pytest.approx(
    charged, rel=5 / np.sqrt(2 * num_rounds * size)
  )
