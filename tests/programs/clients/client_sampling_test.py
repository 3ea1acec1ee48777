"""Tests of the client samplers."""

import numpy as np
import pytest
from scipy import stats

from tests import noise_strategies
from tff_clipping import privacy
from tff_clipping.programs.clients import client_sampling

_IDS = tuple(f'c{i:03d}' for i in range(100))
# What each takes besides ids and seed.
_SETTINGS = {
  'PoissonSampler': dict(sampling_prob=0.1),
  'FixedSizeSampler': dict(clients_per_round=10),
  'RoundRobinSampler': dict(clients_per_round=10, min_separation=4),
  'GroupedPoissonSampler': dict(clients_per_round=10, min_separation=4),
  'RandomAllocationSampler': dict(rounds_per_epoch=10),
}


def _sampler(name, client_ids=_IDS, **changed):
  settings = dict(seed=0) | _SETTINGS[name] | changed
  return getattr(client_sampling, name)(client_ids, **settings)


@pytest.mark.parametrize('name', _SETTINGS)
def test_cohorts_are_clients_and_depend_on_seed_and_round_alone(name):
  first, second = _sampler(name), _sampler(name)
  forward = [first.sample(t) for t in range(1, 50)]
  backward = [second.sample(t) for t in range(49, 0, -1)][::-1]
  assert forward == backward
  assert forward != [_sampler(name, seed=1).sample(t) for t in range(1, 50)]
  assert len({tuple(cohort) for cohort in forward}) > 1
  for cohort in forward:
    assert len(set(cohort)) == len(cohort)
    assert set(cohort) <= set(_IDS)


def test_poisson_sampling_is_independent_with_the_given_probability():
  sampler = _sampler('PoissonSampler', seed=3)
  num_rounds = 4000
  drawn = np.zeros([num_rounds, len(_IDS)])
  for t in range(num_rounds):
    for client_id in sampler.sample(t + 1):
      drawn[t, int(client_id[1:])] = 1
  # Every client as often as any other. Five standard errors: fails for fewer
  # than one seed in a million, and the seed is fixed.
  error = np.sqrt(0.1 * 0.9 / num_rounds)
  assert np.abs(drawn.mean(axis=0) - 0.1).max() < 5 * error
  # No correlation between consecutive rounds of a client.
  correlation = np.mean((drawn[1:] - 0.1) * (drawn[:-1] - 0.1)) / 0.09
  assert abs(correlation) < 5 / np.sqrt(drawn[1:].size)


def test_poisson_with_probability_one_takes_everybody():
  sampler = _sampler('PoissonSampler', sampling_prob=1)
  assert sampler.sample(1) == list(_IDS)


@pytest.mark.parametrize('prob', [0.02, 0.5])
def test_sizes_of_poisson_cohorts_have_the_binomial_law(prob):
  sampler = _sampler('PoissonSampler', sampling_prob=prob, seed=7)
  num_rounds = 5000
  sizes = [len(sampler.sample(t)) for t in range(1, num_rounds + 1)]
  least, largest = stats.binom.interval(0.99, len(_IDS), prob)
  cells = [*range(int(least), int(largest) + 1)]
  chances = stats.binom.pmf(cells, len(_IDS), prob)
  found = np.array([sizes.count(cell) for cell in cells])
  expected = np.append(chances, 1 - chances.sum()) * num_rounds
  found = np.append(found, num_rounds - found.sum())
  # One seed in 10,000 fails, and the seed is fixed.
  assert stats.chisquare(found, expected).pvalue > 1e-4


def test_a_plan_of_correlated_noise_has_a_sampler_that_keeps_it():
  plan = privacy.CorrelatedNoisePlan(
    num_clients=100,
    clients_per_round=12,
    num_rounds=50,
    target_delta=1e-3,
    noise_multiplier=1.0,
    strategy=noise_strategies.blt(50),
    min_separation=7,
  )
  sampler = client_sampling.build_private_sampler(plan, _IDS, seed=3)
  rounds = {client: [] for client in _IDS}
  for round_num in range(1, plan.num_rounds + 1):
    cohort = sampler.sample(round_num)
    assert len(cohort) <= plan.clients_per_round
    for client in cohort:
      rounds[client].append(round_num)
  for came in rounds.values():
    assert len(came) <= plan.max_participations
    assert all(np.diff(came) >= 7)
  # The limit is reached: the charge is no larger than it has to be.
  assert max(map(len, rounds.values())) == plan.max_participations


@pytest.mark.parametrize('sampling', ['poisson', 'fixed_size'])
def test_draws_of_a_round_are_independent_cohorts(sampling):
  plan = privacy.PrivacyPlan.from_noise_multiplier(
    num_clients=100,
    clients_per_round=30,
    num_rounds=10,
    target_delta=1e-3,
    noise_multiplier=1.0,
    sampling=sampling,
  )
  sampler = client_sampling.build_private_sampler(plan, _IDS, seed=3)
  draws = [set(sampler.sample(1, d)) for d in range(4000)]
  assert sampler.sample(1) == sampler.sample(1, 0)
  pairs = zip(draws[::2], draws[1::2], strict=True)
  together = sum(_IDS[0] in a and _IDS[0] in b for a, b in pairs)
  # P / N squared is 0.09 of 2,000 pairs; five standard deviations.
  assert abs(together - 180) < 5 * (2000 * 0.09 * 0.91) ** 0.5


def test_samplers_whose_cohorts_depend_on_each_other_have_one_draw():
  for name in ('RoundRobin', 'GroupedPoisson', 'RandomAllocation'):
    sampler = _sampler(f'{name}Sampler')
    assert sampler.sample(1, 0) == sampler.sample(1)
    with pytest.raises(ValueError, match='`draw` must be 0 for'):
      sampler.sample(1, 1)


def _round_numbers(sampler, num_epochs, rounds_per_epoch):
  """Returns each client's round of each epoch; [clients, epochs]."""
  places = np.full([len(_IDS), num_epochs], -1)
  for epoch in range(num_epochs):
    for place in range(rounds_per_epoch):
      for client in sampler.sample(epoch * rounds_per_epoch + place + 1):
        assert places[int(client[1:]), epoch] == -1
        places[int(client[1:]), epoch] = place
  return places


def test_random_allocation_draws_one_uniform_round_of_each_epoch():
  sampler = _sampler('RandomAllocationSampler', rounds_per_epoch=5, seed=3)
  places = _round_numbers(sampler, 400, 5)
  assert places.min() == 0  # Everybody comes in each epoch.
  # One client, one epoch, two clients, two epochs: all pairs are as likely.
  # Each test fails for one seed in a million, and the seed is fixed.
  for counted in (
    places,
    5 * places[1:] + places[:-1],
    5 * places[:, 1:] + places[:, :-1],
  ):
    counts = np.bincount(counted.ravel())
    assert stats.chisquare(counts).pvalue > 1e-6
  each = np.array([np.bincount(row, minlength=5) for row in places])
  assert np.abs(each - 80).max() < 5 * np.sqrt(400 * 0.2 * 0.8)


def test_a_client_draws_its_round_without_the_others():
  # Neighbours: with one client less, and in another order, nobody else moves.
  sampler, neighbour = (
    _sampler('RandomAllocationSampler', ids, rounds_per_epoch=7, seed=9)
    for ids in (_IDS, _IDS[:0:-1])
  )
  for round_num in range(1, 30):
    expected = set(sampler.sample(round_num)) - {_IDS[0]}
    assert set(neighbour.sample(round_num)) == expected
  key = client_sampling.derive_key(9)
  for epoch in range(3):
    place = client_sampling.draw_round(
      _IDS[0], key=key, epoch=epoch, rounds_per_epoch=7
    )
    assert _IDS[0] in sampler.sample(7 * epoch + place + 1)


def test_random_allocation_looks_each_client_up_once_an_epoch(monkeypatch):
  ids = [f'c{i}' for i in range(2000)]
  sampler = _sampler('RandomAllocationSampler', ids, rounds_per_epoch=100)
  drawn, draw_round = [], client_sampling.draw_round
  monkeypatch.setattr(
    client_sampling,
    'draw_round',
    lambda client, **kwargs: (
      drawn.append(client) or draw_round(client, **kwargs)
    ),
  )
  for round_num in range(1, 201):
    sampler.sample(round_num)
  assert len(drawn) == 2 * 2000


# In unequal groups too, of three clients or four, the probability is P b / N.
@pytest.mark.parametrize(
  ('num_clients', 'cohort_size', 'separation', 'num_rounds'),
  [(100, 10, 4, 2000), (10, 2, 3, 6000)],
)
def test_grouped_poisson_draws_each_client_in_its_turn_by_its_probability(
  num_clients, cohort_size, separation, num_rounds
):
  plan = privacy.CorrelatedNoisePlan(
    num_clients=num_clients,
    clients_per_round=cohort_size,
    num_rounds=num_rounds,
    target_delta=1e-3,
    noise_multiplier=9.0,
    strategy=privacy.identity_strategy(num_rounds=num_rounds),
    min_separation=separation,
    sampling='grouped_poisson',
  )
  ids = _IDS[:num_clients]
  sampler = client_sampling.build_private_sampler(plan, ids, seed=3)
  cohorts = [set(sampler.sample(t)) for t in range(1, num_rounds + 1)]
  prob = cohort_size * separation / num_clients
  turns = num_rounds / separation
  for client in ids:
    came = [t for t, cohort in enumerate(cohorts) if client in cohort]
    # Only in the turns of its group: five deviations.
    assert len({t % separation for t in came}) == 1
    deviation = (turns * prob * (1 - prob)) ** 0.5
    assert abs(len(came) - turns * prob) < 5 * deviation
  if num_clients % separation == 0:
    sizes = [len(cohort) for cohort in cohorts]
    # Of 25 coins each; the standard error of the mean is 0.055.
    assert abs(np.mean(sizes) - 10) < 0.3
    assert abs(np.var(sizes) - 25 * 0.4 * 0.6) < 1


def test_the_digest_tells_other_cohorts():
  def digest(ids=_IDS, seed=3):
    return _sampler('FixedSizeSampler', ids, seed=seed).digest

  assert digest() == digest(list(_IDS))
  assert len({digest(), digest(_IDS[::-1]), digest(seed=4)}) == 3


def test_the_digest_tells_what_another_numpy_makes_of_a_seed(monkeypatch):
  before = _sampler('RoundRobinSampler').digest
  monkeypatch.setattr(
    np.random,
    'default_rng',
    lambda seed: np.random.Generator(np.random.MT19937(seed)),
  )
  assert _sampler('RoundRobinSampler').digest != before


def test_a_sampler_of_ones_own_has_no_digest_but_its_own():
  class Own(client_sampling.ClientSampler):
    def sample(self, round_num, draw=0):
      return [self.client_ids[round_num]]

  assert Own(_IDS, seed=3).digest is None


@pytest.mark.parametrize(
  ('name', 'changed', 'message'),
  [
    ('Poisson', dict(client_ids=[]), '`client_ids` must not be empty'),
    ('Poisson', dict(client_ids=['a', 'a']), '`client_ids` must be all diff'),
    # One client in two spellings would count twice in a cohort.
    ('Poisson', dict(client_ids=['a', b'a']), '`client_ids` must be all diff'),
    ('FixedSize', dict(client_ids=[1, '1']), '`client_ids` must be all diff'),
    ('Poisson', dict(client_ids=['a', 'a ']), "in one way, found 'a' and 'a '"),
    ('Poisson', dict(client_ids=[1, '01']), "in one way, found '1' and '01'"),
    ('Poisson', dict(client_ids=['\u00e9', 'e\u0301']), 'an id in one way'),
    *(
      (
        'Poisson',
        dict(client_ids=ids),
        '`client_ids` must be a list of ids, in the same order in each process',
      )
      for ids in ('client', {'a', 'b'}, None, 3)
    ),
    # As for a loop of TFF.
    (
      'Poisson',
      dict(client_ids=[[1.0], [2.0]]),
      '`client_ids` must be the names of clients, not their data, found list',
    ),
    ('Poisson', dict(sampling_prob=0.0), 'above 0 and at most 1, found 0.0'),
    ('Poisson', dict(sampling_prob=2), 'above 0 and at most 1, found 2'),
    ('Poisson', dict(sampling_prob='x'), '`sampling_prob` must be a number'),
    ('Poisson', dict(seed=-1), '`seed` must be at least 0'),
    ('Poisson', dict(seed=0.5), '`seed` must be an integer'),
    ('FixedSize', dict(clients_per_round=101), '`clients_per_round` must be'),
    ('RoundRobin', dict(clients_per_round='5'), '`clients_per_round` must be'),
    (
      'RoundRobin',
      dict(min_separation=11),
      '`min_separation` must be from 1 t',
    ),
    ('RandomAllocation', dict(client_ids=[1]), '`client_ids` must be strings'),
  ],
)
def test_bad_arguments_are_refused(name, changed, message):
  with pytest.raises((TypeError, ValueError), match=message):
    _sampler(f'{name}Sampler', **changed)


def test_what_is_no_plan_or_of_another_population_has_no_sampler():
  with pytest.raises(TypeError, match='`plan` must be a PrivacyPlan or anothe'):
    client_sampling.build_private_sampler(3, _IDS, seed=0)
  plan = privacy.PrivacyPlan(
    num_clients=60,
    clients_per_round=12,
    num_rounds=1,
    target_delta=1e-3,
    noise_multiplier=1.0,
  )
  with pytest.raises(ValueError, match='60 clients that the plan is for'):
    client_sampling.build_private_sampler(plan, _IDS, seed=0)
