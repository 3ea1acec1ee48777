"""Tests of tff_clipping.privacy.ledger.ledger."""

import dataclasses
import datetime
import hashlib
import json
import math

import pytest

from tests.privacy.ledgers import (
  PLAN,
  SETTING,
  charge,
  correlated_plan,
  new_id,
)
from tff_clipping import privacy
from tff_clipping.privacy import correlated_noise
from tff_clipping.privacy.accounting import renyi

CORRELATED = correlated_plan(20)


def test_a_charge_is_in_the_file_with_the_epsilon_so_far(path):
  with privacy.PrivacyLedger(path, PLAN) as ledger:
    assert (ledger.num_releases, ledger.epsilon) == (0, 0)
    assert ledger.charge(7, new_id()) == PLAN.epsilon_after(1)
    header, line = map(json.loads, path.read_text().splitlines())
    assert header['plan'] == privacy.plan_to_json(PLAN)
    assert (line['round_num'], line['num_releases']) == (7, 1)
    assert line['epsilon'] == ledger.epsilon == PLAN.epsilon_after(1)
    assert datetime.datetime.fromisoformat(line['time']).utcoffset() is not None
  with privacy.PrivacyLedger(path, PLAN) as ledger:
    assert ledger.charge(8, new_id()) == PLAN.epsilon_after(2)
    assert (ledger.num_releases, ledger.rounds) == (2, [7, 8])
  with pytest.raises(ValueError, match='is closed'):
    ledger.charge(9, new_id())


def test_what_is_no_charge_is_refused_and_not_written(path):
  with privacy.PrivacyLedger(path, PLAN) as ledger:
    ledger.charge(1, 'one')
    before = path.read_bytes()
    for arguments, draw, message in (
      ((-1, 'two'), 0, '`round_num` must be at least 0'),
      ((2, None), 0, '`release_id` must be a string'),
      ((1, 'one'), 0, "must be new, found 'one'"),
      ((1, 'one'), 1, "must be new, found 'one'"),
      ((2, 'one'), 0, "must be new, found 'one'"),
      ((1, 'two'), 0, '`draw` must be the next one of round 1, 1, found 0'),
      ((1, 'two'), 2, '`draw` must be the next one of round 1, 1, found 2'),
      ((3, 'two'), 1, '`draw` must be the next one of round 3, 0, found 1'),
    ):
      with pytest.raises((TypeError, ValueError), match=message):
        ledger.charge(*arguments, draw=draw)
    with pytest.raises(ValueError, match='must have been cut short'):
      ledger.name_cut_short('two', round_num=1, draw=0)
    assert path.read_bytes() == before
  with pytest.raises(TypeError, match='`plan` must be a PrivacyPlan'):
    privacy.PrivacyLedger(path, privacy.plan_to_json(PLAN))


def test_another_draw_of_a_round_is_charged_with_its_number(path):
  charge(path, [0, 1])
  with privacy.PrivacyLedger(path, PLAN) as ledger:
    assert [ledger.next_draw(each) for each in (1, 3)] == [1, 0]
    assert ledger.charge(1, 'two', draw=1) == PLAN.epsilon_after(3)
  with privacy.PrivacyLedger(path, PLAN) as ledger:
    assert ledger.rounds == [0, 1, 1]
    assert ledger.releases[-1] == ('two', 1, 1)
    assert ledger.next_draw(1) == 2


@pytest.mark.parametrize(('round_num', 'draw'), [(1, 0), (None, None)])
def test_a_line_cut_short_is_given_its_release_at_no_cost(
  path, round_num, draw
):
  charge(path, [0])
  with open(path, 'ab') as file:
    file.write(b'{"draw":0')
  with privacy.PrivacyLedger(path, PLAN) as ledger:
    # It may have been a draw of any round.
    assert ledger.releases[1] == (None, None, None)
    assert [ledger.next_draw(each) for each in (0, 1)] == [2, 1]
    ledger.name_cut_short('two', round_num=round_num, draw=draw)
    assert ledger.num_releases == 2
    with pytest.raises(ValueError, match='must have been cut short'):
      ledger.name_cut_short('three')
  with privacy.PrivacyLedger(path, PLAN) as ledger:
    assert ledger.releases[1] == ('two', round_num, draw)
    assert ledger.next_draw(1) == 1
    assert ledger.epsilon == PLAN.epsilon_after(2)
    with pytest.raises(ValueError, match='must be new'):
      ledger.charge(2, 'two', draw=int(round_num is None))


def test_caveats_are_kept_and_are_no_releases(path):
  charge(path, [1, 2], caveats=['the noise is known'])
  header = json.loads(path.read_text().splitlines()[0])
  assert header['plan']['caveats'] == ['the noise is known']
  both = ('the noise is known', 'exact figures')
  with privacy.PrivacyLedger(path, PLAN, caveats=both[1:]) as ledger:
    assert (ledger.num_releases, ledger.rounds) == (2, [1, 2])
    assert ledger.caveats == both
    ledger.charge(3, new_id())
  with open(path, 'a') as file:
    file.write('{"line":6,"kind":"ca')
  with privacy.PrivacyLedger(path, PLAN, caveats=['exact figures']) as ledger:
    # A line that was cut short may be a release.
    assert ledger.rounds == [1, 2, 3, None]
  contents = privacy.read_ledger(path)
  assert (contents.num_releases, contents.caveats) == (4, both)
  kinds = [json.loads(line)['kind'] for line in path.read_text().splitlines()]
  assert kinds == ['plan', *['release'] * 2, 'caveats', *['release'] * 2]


@pytest.mark.parametrize(('version', 'name'), [(1, '0.1'), (2, '0.2')])
@pytest.mark.parametrize('torn', [b'', b'{"line":2'])
def test_a_ledger_of_an_earlier_version_is_refused_by_name(
  path, version, name, torn
):
  _write_header(path, version)
  path.write_bytes(path.read_bytes() + torn)
  before = path.read_bytes()
  with pytest.raises(ValueError, match=f'is of version {name}'):
    privacy.PrivacyLedger(path, PLAN)
  assert path.read_bytes() == before


def test_a_ledger_of_version_0_2_is_read_for_what_it_has_spent(path):
  # Its rounds could begin with 0.
  lines = [
    {'kind': 'release', 'round_num': 0, 'draw': 0, 'digest': 64 * '0'},
    {'kind': 'release', 'round_num': None, 'draw': None, 'digest': None},
    {'kind': 'release', 'round_num': 0, 'draw': 1, 'digest': 64 * '1'},
    {'kind': 'release', 'round_num': 2, 'draw': 0, 'digest': 64 * '2'},
  ]
  _write_header(path, 2, lines)
  contents = privacy.read_ledger(path)
  assert contents.num_releases == 4
  assert contents.epsilon == PLAN.epsilon_after(4)


def _write_header(path, version, releases=()):
  """Writes the ledger of an earlier version."""
  charge(path, [])
  header = json.loads(path.read_text()) | {'format': version}
  numbered = [
    {'line': place + 1, **line, 'num_releases': place, 'epsilon': 1.0}
    for place, line in enumerate(releases, start=1)
  ]
  digest, texts = '', []
  for line in (header, *numbered):
    texts.append(json.dumps(line | {'previous': digest}, separators=(',', ':')))
    digest = hashlib.sha256(texts[-1].encode()).hexdigest()
  path.write_text(''.join(text + '\n' for text in texts))
  path.with_name('ledger.jsonl.seal').write_text(
    json.dumps({'digest': digest, 'lines': len(texts)}) + '\n'
  )


def test_another_accountant_does_not_take_a_ledger_for_damaged(
  path, monkeypatch
):
  plan = dataclasses.replace(PLAN, target_epsilon=PLAN.epsilon)
  charge(path, range(1, 20), plan)
  once = dataclasses.replace(PLAN, num_rounds=1)
  once = dataclasses.replace(once, target_epsilon=once.epsilon)
  charge(path.with_name('once.jsonl'), [], once)
  compute = renyi.RenyiCost.compute_epsilon
  monkeypatch.setattr(
    renyi.RenyiCost,
    'compute_epsilon',
    lambda self, delta: (1 + 1e-5) * compute(self, delta),
  )
  contents = privacy.read_ledger(path)
  assert contents.num_releases == 19
  assert contents.epsilon > plan.epsilon_after(18)
  assert privacy.read_ledger(path.with_name('once.jsonl')).promised.epsilon > 0
  kept = privacy.read_plan(path, target_epsilon=plan.target_epsilon)
  with privacy.PrivacyLedger(path, kept) as ledger:
    # Which the other accountant found to be within the target.
    with pytest.raises(privacy.BudgetExhaustedError):
      ledger.charge(20, new_id())


def test_release_beyond_the_plan_is_refused_and_not_written(path):
  charge(path, range(20))
  before = path.read_bytes()
  with privacy.PrivacyLedger(path, PLAN) as ledger:
    with pytest.raises(
      privacy.BudgetExhaustedError, match='20 releases have cost'
    ):
      ledger.charge(20, new_id())
    assert ledger.num_releases == 20
  assert path.read_bytes() == before


def test_release_beyond_the_target_is_refused(path):
  plan = privacy.PrivacyPlan(**{**SETTING, 'num_rounds': 1}, target_epsilon=1)
  with privacy.PrivacyLedger(path, plan) as ledger:
    while plan.epsilon_after(ledger.num_releases + 1) <= 1:
      assert ledger.charge(ledger.num_releases, new_id()) <= 1
    assert ledger.num_releases > 1
    with pytest.raises(privacy.BudgetExhaustedError, match='would pass 1'):
      ledger.charge(ledger.num_releases, new_id())


@pytest.mark.parametrize(
  'change',
  [
    {'noise_multiplier': 1.6},
    {'num_rounds': 21},
    {'sampling': 'fixed_size'},
    {'target_epsilon': 30.0},
  ],
)
def test_ledger_of_another_plan_is_refused(path, change):
  charge(path, [0])
  with pytest.raises(ValueError, match='must be that of the ledger'):
    privacy.PrivacyLedger(path, CORRELATED)
  plan = privacy.PrivacyPlan(**{**SETTING, **change})
  with pytest.raises(
    ValueError,
    match=f'found other values: `{next(iter(change))}` is .* and was ',
  ):
    privacy.PrivacyLedger(path, plan)
  charge(path, [1])  # It was left as it was.


def test_a_ledger_of_other_last_digits_goes_on_with_its_own_plan(path):
  other = {
    name: math.nextafter(SETTING[name], 0)
    for name in ('noise_multiplier', 'target_delta')
  }
  written = privacy.PrivacyPlan(**{**SETTING, **other})
  charge(path, [0], written)
  with privacy.PrivacyLedger(path, PLAN) as ledger:
    assert ledger.plan == written != PLAN
    assert ledger.charge(1, new_id()) == written.epsilon_after(2)


def test_a_ledger_of_its_plans_own_epsilon_is_read_elsewhere(path, monkeypatch):
  plan = dataclasses.replace(PLAN, target_epsilon=PLAN.epsilon)
  charge(path, range(19), plan)
  compute = renyi.RenyiCost.compute_epsilon
  monkeypatch.setattr(
    renyi.RenyiCost,
    'compute_epsilon',
    lambda self, delta: math.nextafter(compute(self, delta), 9.0),
  )
  # Not the one that has its epsilon in its cache.
  there = privacy.read_plan(path, **SETTING, target_epsilon=PLAN.epsilon)
  assert there == plan
  charge(path, [19], there)
  with pytest.raises(privacy.BudgetExhaustedError):
    charge(path, [20], there)


def test_a_strategy_that_was_optimised_anew_is_refused_with_what_to_do(path):
  first, second = (
    correlated_plan(
      20,
      strategy=correlated_noise.BandedStrategy(
        num_rounds=20, coefficients=(1.0, coefficient)
      ),
    )
    for coefficient in (0.5, math.nextafter(0.5, 1))
  )
  charge(path, [1], first)
  with pytest.raises(ValueError, match='`strategy` is .*privacy.read_plan'):
    charge(path, [2], second)
  charge(path, [2], privacy.read_plan(path))


def test_correlated_noise_is_charged_as_a_run_up_to_a_round(path):
  charge(path, range(1, 6), CORRELATED)
  with privacy.PrivacyLedger(path, CORRELATED) as ledger:
    assert ledger.num_releases == 5
    # The fifth round is the second that a client may be in.
    assert ledger.epsilon == CORRELATED.epsilon_after(5)
    assert CORRELATED.epsilon_after(5) > CORRELATED.epsilon_after(4)
    for each in range(6, 21):
      ledger.charge(each, new_id())
    with pytest.raises(privacy.BudgetExhaustedError):
      ledger.charge(21, new_id())


def test_correlated_noise_leaves_no_round_out(path):
  with privacy.PrivacyLedger(path, CORRELATED) as ledger:
    # Who is in how many of the rounds is known of those from the first.
    for charged in range(3):
      for round_num in (0, *range(charged + 2, 6), 27):
        with pytest.raises(
          privacy.RoundChargedError, match=f'of rounds up to {charged}'
        ):
          ledger.charge(round_num, new_id())
      ledger.charge(charged + 1, new_id())
    assert ledger.rounds == [1, 2, 3]


def test_correlated_noise_is_never_drawn_anew(path):
  charge(path, [1], CORRELATED)
  with privacy.PrivacyLedger(path, CORRELATED) as ledger:
    with pytest.raises(privacy.RoundChargedError, match='the run ends with'):
      ledger.charge(1, new_id(), draw=1)
    assert ledger.num_releases == 1
  # Nor where the line of the next round was cut short.
  with open(path, 'ab') as file:
    file.write(b'{"draw":0')
  with privacy.PrivacyLedger(path, CORRELATED) as ledger:
    with pytest.raises(privacy.RoundChargedError, match='the run ends with'):
      ledger.charge(2, new_id(), draw=1)
    ledger.name_cut_short('two', round_num=2, draw=0)
    assert ledger.charge(3, new_id()) == CORRELATED.epsilon_after(3)


def test_cohorts_stay_those_of_the_first_release(path):
  with privacy.PrivacyLedger(path, CORRELATED) as ledger:
    ledger.check_cohorts('a')
    # Nobody was in a release yet.
    ledger.check_cohorts('b')
    ledger.charge(1, new_id())
    with pytest.raises(ValueError, match='that of the releases before'):
      ledger.check_cohorts('a')
  with privacy.PrivacyLedger(path, CORRELATED) as ledger:
    with pytest.raises(ValueError, match='that of the releases before'):
      ledger.check_cohorts('a')
    ledger.check_cohorts('b')


def test_random_allocation_is_charged_by_epochs_and_never_drawn_anew(path):
  plan = privacy.PrivacyPlan(
    **SETTING | {'num_rounds': 30, 'accountant': 'pld'},
    sampling='random_allocation',
  )
  charge(path, range(1, 25), plan)
  with privacy.PrivacyLedger(path, plan) as ledger:
    assert ledger.epsilon == plan.epsilon_after(24) == plan.epsilon_after(1)
    # In another draw of round 24, a client could come a second time.
    with pytest.raises(privacy.RoundChargedError, match='cannot be drawn anew'):
      ledger.charge(24, new_id(), draw=1)
    with pytest.raises(privacy.RoundChargedError, match='of rounds up to 24'):
      ledger.charge(26, new_id())
    assert ledger.charge(25, new_id()) == plan.epsilon > plan.epsilon_after(24)
