"""Tests of tff_clipping.privacy.ledger.spending."""

import dataclasses
import json
import math
import re
import shutil

import pytest

from tests.privacy.ledgers import PLAN, charge, correlated_plan
from tff_clipping import privacy
from tff_clipping.privacy.ledger import spending

PLD = dataclasses.replace(PLAN, accountant='pld')
ALLOCATION = dataclasses.replace(PLD, sampling='random_allocation')
CORRELATED = correlated_plan(20, noise_multiplier=5, min_separation=24)
GROUPED = dataclasses.replace(
  CORRELATED,
  num_rounds=24,
  strategy=privacy.banded_strategy(
    num_rounds=24, participation=privacy.Participation(min_separation=4)
  ),
  min_separation=4,
  sampling='grouped_poisson',
)


@pytest.fixture(name='write')
def _write(tmp_path):
  """Returns a function that writes ledgers and reads them."""

  def write(*runs):
    contents = []
    for plan, num_releases in runs:
      path = tmp_path / f'{len([*tmp_path.iterdir()])}.jsonl'
      charge(path, range(1, num_releases + 1), plan)
      contents.append(privacy.read_ledger(path))
    return contents

  return write


def test_parts_of_a_run_have_spent_what_the_run_does(write):
  ledgers = write((PLAN, 7), (PLAN, 13), (PLAN, 0))
  spent = privacy.compute_spending(ledgers)
  assert spent.epsilon == pytest.approx(PLAN.epsilon_after(20), rel=1e-6)
  assert spent.accountant == PLAN.accountant
  assert spent.relation is privacy.Relation.ADD_OR_REMOVE_ONE
  alone = privacy.compute_spending(ledgers[:1])
  assert (alone.epsilon, alone.num_releases) == (ledgers[0].epsilon, 7)


def test_runs_of_two_accountants_are_added_up_by_what_holds_for_both(write):
  spent = privacy.compute_spending(write((PLAN, 7), (PLD, 13)))
  assert spent.accountant == 'rdp'
  assert spent.epsilon == pytest.approx(PLAN.epsilon_after(20), rel=1e-6)


def test_random_allocation_is_not_added_up_by_renyi_divergences(write):
  # All clients: noise may come in integers, for which 'pld' is not proved.
  of_all = dataclasses.replace(
    PLAN, sampling='none', clients_per_round=1920, noise_multiplier=30.0
  )
  with pytest.raises(
    ValueError, match="must be 'pld' .* 'random_allocation', found 'rdp'"
  ):
    privacy.compute_spending(write((ALLOCATION, 7), (PLAN, 7), (of_all, 13)))
  # Not with Poisson cohorts.
  mixed = privacy.compute_spending(write((ALLOCATION, 7), (PLAN, 13)))
  expected = privacy.compute_spending(write((ALLOCATION, 7), (PLD, 13)))
  assert (mixed.accountant, mixed.epsilon) == ('pld', expected.epsilon)


def test_gaussian_runs_add_up_exactly(write):
  ledgers = write((CORRELATED, 20), (CORRELATED, 12))
  spent = privacy.compute_spending(ledgers)
  participation = privacy.Participation(min_separation=24)
  squares = sum(
    CORRELATED.strategy.compute_sensitivity(participation, num_rounds) ** 2
    for num_rounds in (20, 12)
  )
  assert spent.accountant == 'gaussian'
  assert spent.relation is privacy.Relation.ZERO_OUT
  assert spent.epsilon == pytest.approx(
    privacy.gaussian_epsilon(5 / squares**0.5, 1e-5), rel=1e-9
  )


def test_turns_of_groups_add_up_as_those_of_one_run(write):
  spent = privacy.compute_spending(write((GROUPED, 12), (GROUPED, 8)))
  # A group of 480 clients has 3 turns of 12 and 2 of 8, in each of which 80 of
  # them are drawn.
  expected = privacy.compute_epsilon(
    num_clients=480,
    clients_per_round=80,
    num_rounds=5,
    noise_multiplier=5 / GROUPED.sensitivity,
    target_delta=1e-5,
    sampling='poisson',
    accountant='pld',
  )
  assert spent.epsilon == pytest.approx(expected, rel=1e-3)
  mixed = privacy.compute_spending(write((GROUPED, 12), (CORRELATED, 8)))
  assert mixed.accountant == 'pld'
  assert mixed.epsilon > spent.epsilon


def test_a_copy_of_a_ledger_that_went_on_is_refused(tmp_path):
  paths = tmp_path / 'one.jsonl', tmp_path / 'two.jsonl'
  charge(paths[0], [1, 2])
  for end in ('', '.seal'):
    shutil.copy(f'{paths[0]}{end}', f'{paths[1]}{end}')
  charge(paths[0], [3])
  charge(paths[1], [3, 4])
  with pytest.raises(ValueError, match='which began as one'):
    privacy.compute_spending([privacy.read_ledger(path) for path in paths])


@pytest.mark.parametrize(
  ('plans', 'seeds', 'expected'),
  [
    ([PLAN, PLAN], ['a', None], ['1']),
    ([PLAN, PLAN], [None, None], ['0', '1']),
    ([PLAN, PLAN], ['a', 'b'], []),
    ([PLAN, PLAN], ['a', 'a'], 'refused'),
    ([PLAN], [None], []),
    # Nothing is charged less because the order is secret.
    ([CORRELATED, CORRELATED], [None, None], []),
    ([CORRELATED, CORRELATED], ['a', 'a'], []),
    # Who knows the public cohorts knows more of the secret ones.
    ([GROUPED, CORRELATED], ['a', 'a'], 'refused'),
    ([GROUPED, CORRELATED], ['a', 'b'], []),
    ([GROUPED, CORRELATED], ['a', None], ['1']),
  ],
)
def test_cohorts_of_one_seed_are_refused_and_of_an_unknown_one_named(
  tmp_path, plans, seeds, expected
):
  contents = []
  for number, (plan, seed) in enumerate(zip(plans, seeds, strict=True)):
    path = tmp_path / f'{number}'
    charge(path, [1, 2], plan)
    if seed is not None:
      with privacy.PrivacyLedger(path, plan) as ledger:
        ledger.record_seed(seed)
        ledger.record_seed(seed)
    contents.append(privacy.read_ledger(path))
    assert contents[-1].seeds == (() if seed is None else (seed,))
  if expected == 'refused':
    with pytest.raises(ValueError, match='found one seed in .*0 and .*1:'):
      privacy.compute_spending(contents)
    return
  spent = privacy.compute_spending(contents)
  assumed = spending.find_assumed_independent(contents)
  assert [path.name for path in assumed] == expected
  text = spending.describe_spending(contents, spent)
  assert ('cohorts were drawn independently' in text) == bool(expected)


def test_one_ledger_at_least_is_added_up_and_none_twice(write):
  first, second = write((PLAN, 0), (PLAN, 0))
  assert privacy.compute_spending([first, second]).epsilon == 0
  with pytest.raises(ValueError, match='`ledgers` must be different ones'):
    privacy.compute_spending([first, first])
  with pytest.raises(ValueError, match='`ledgers` must be at least one'):
    privacy.compute_spending([])


def test_a_delta_that_was_computed_elsewhere_is_added_up(write):
  less = dataclasses.replace(PLAN, target_delta=math.nextafter(1e-5, 0))
  for plans in ((PLAN, less), (less, PLAN)):
    spent = privacy.compute_spending(write(*((plan, 5) for plan in plans)))
    # It holds for both.
    assert spent.target_delta == less.target_delta
    assert spent.epsilon == pytest.approx(PLAN.epsilon_after(10))


@pytest.mark.parametrize('plan', [PLAN, CORRELATED])
def test_runs_of_several_deltas_are_added_up_at_a_given_one(write, plan):
  loose = dataclasses.replace(plan, target_delta=1e-4)
  for ledgers in (write((plan, 7), (loose, 13)), write((loose, 7), (plan, 13))):
    spent = privacy.compute_spending(ledgers, target_delta=1e-5)
    alike = privacy.compute_spending(write((plan, 7), (plan, 13)))
    assert spent.target_delta == 1e-5
    assert spent.epsilon == pytest.approx(alike.epsilon, rel=1e-6)
  (alone,) = write((loose, 13))
  spent = privacy.compute_spending([alone], target_delta=1e-5)
  assert spent.epsilon == pytest.approx(plan.epsilon_after(13), rel=1e-6)


def test_little_noise_without_sampling_is_added_up_too(write):
  # The loss of such a round falls below the least exponential of a double.
  loud, quiet = (
    dataclasses.replace(
      PLD, num_clients=80, sampling='none', noise_multiplier=multiplier
    )
    for multiplier in (0.3, 3.0)
  )
  mixed = privacy.compute_spending(write((loud, 2), (PLD, 2)))
  alone = privacy.compute_spending(write((loud, 2)))
  assert alone.epsilon < mixed.epsilon < 1.02 * alone.epsilon
  # Two clients are no part of the sampled rounds' noise: as one Gaussian.
  assert privacy.compute_spending(write((quiet, 2))).epsilon < alone.epsilon


def _chain(folder, **changes):
  """Writes three runs, of which each gave the next its clipping norm."""
  paths, source = [], {'ledger': None}
  for name, num_releases in (('first', 20), ('second', 20), ('third', 7)):
    path = folder / name / 'ledger.jsonl'
    path.parent.mkdir()
    charge(path, range(1, num_releases + 1))
    config = {'clipping_norm_source': source}
    (path.parent / 'config.json').write_text(json.dumps(config))
    run_id = privacy.read_ledger(path).run_id
    source = {'exact': None, 'ledger': str(path), 'run_id': run_id} | changes
    paths.append(path)
  return paths


# Nothing in config.json of an earlier version tells which run it was.
@pytest.mark.parametrize('changes', [{}, {'run_id': None}])
def test_what_gave_the_clipping_norm_counts_and_what_gave_it_its_own(
  tmp_path, changes
):
  paths = _chain(tmp_path, **changes)
  assert spending.find_sources(paths[0]) == ()
  assert spending.find_sources(paths[2]) == tuple(paths[:2])
  every = [privacy.read_ledger(path) for path in paths]
  together = spending.describe_spending(every, privacy.compute_spending(every))
  for given in ([every[2]], every, every[::-1]):
    assert spending.describe_ledgers(given) == together
  # What is written down while the last run goes on holds when it was killed.
  for given in ([every[2]], every, every[::-1]):
    planned = [spending.as_planned(each) for each in given]
    told = spending.describe_ledgers(planned)
    assert told.startswith('Together, the 60 releases of 3 runs')


def test_a_run_whose_settings_cannot_be_read_is_not_taken_for_one_alone(
  tmp_path,
):
  _, second, _ = _chain(tmp_path)
  config = second.with_name('config.json')
  config.write_text(config.read_text()[:-1])
  told = f'{config} cannot be read, which tells whether another run gave'
  assert told in spending.describe_ledgers([privacy.read_ledger(second)])
  with pytest.raises(ValueError, match=re.escape(told)):
    spending.find_sources(second)


def test_a_run_that_gave_the_clipping_norm_and_is_gone_is_not_left_out(
  tmp_path,
):
  first, second, third = _chain(tmp_path)

  def describe(*paths):
    return spending.describe_ledgers([*map(privacy.read_ledger, paths)])

  copy = shutil.copytree(first.parent, tmp_path / 'copy') / first.name
  assert 'began as one' in describe(copy, third)
  moved = first.parent.rename(tmp_path / 'moved') / first.name
  for given in ([third], [second, third]):
    assert describe(*given) == (
      'What the private runs cost together is not known: the run that gave '
      f'{second.parent} its clipping norm is missing, found no ledger or that '
      f'of another run at {first}.'
    )
  # Where it is now.
  together = describe(moved, third)
  assert together.startswith('Together, the 47 releases of 3 runs')
  # Another run in its place, which cost less.
  first.parent.mkdir()
  charge(first, [1])
  for given in ([third], [first, second, third]):
    assert 'is not known: ' in describe(*given)
  with pytest.raises(ValueError, match='its clipping norm is missing'):
    privacy.compute_spending([*map(privacy.read_ledger, (first, second))])
  every = describe(first, moved, second, third)
  assert every.startswith('Together, the 48 releases of 4 runs')
