"""Tests of tff_clipping.privacy.ledger.ledger."""

import dataclasses
import hashlib
import json
import math

import pytest

from tests.privacy.ledgers import DIGEST, OTHER_DIGEST, PLAN, SETTING, charge
from tff_clipping import privacy
from tff_clipping.privacy import correlated_noise


def test_charge_returns_the_epsilon_so_far(path):
  with privacy.PrivacyLedger(path, PLAN) as ledger:
    assert ledger.num_releases == 0
    assert ledger.epsilon == 0
    for number in range(1, 4):
      assert ledger.charge(number, DIGEST) == PLAN.epsilon_after(number)
    assert ledger.num_releases == 3
    assert ledger.epsilon == PLAN.epsilon_after(3)


def test_line_is_in_the_file_when_charge_returns(path):
  with privacy.PrivacyLedger(path, PLAN) as ledger:
    ledger.charge(7, DIGEST)
    lines = path.read_text().splitlines()
    assert len(lines) == 2
    assert json.loads(lines[0])['plan'] == PLAN.to_json()
    release = json.loads(lines[1])
    assert release['round_num'] == 7
    assert release['num_releases'] == 1
    assert release['epsilon'] == PLAN.epsilon_after(1)


def test_resumed_run_goes_on_counting(path):
  charge(path, [0, 1, 2])
  with privacy.PrivacyLedger(path, PLAN) as ledger:
    assert ledger.num_releases == 3
    assert ledger.charge(3, DIGEST) == PLAN.epsilon_after(4)
    assert ledger.rounds == [0, 1, 2, 3]


def test_a_round_that_releases_the_same_bits_again_costs_nothing(path):
  charge(path, [0, 1])
  before = path.read_bytes()
  with privacy.PrivacyLedger(path, PLAN) as ledger:
    for round_num in (0, 1):
      assert ledger.charge(round_num, DIGEST) == PLAN.epsilon_after(2)
    assert ledger.rounds == [0, 1]
  assert path.read_bytes() == before


def test_other_bits_of_the_same_cohort_are_refused_and_not_written(path):
  charge(path, [0, 1])
  before = path.read_bytes()
  with privacy.PrivacyLedger(path, PLAN) as ledger:
    with pytest.raises(
      privacy.ChangedReleaseError, match='Round 1, run again, gives another'
    ):
      ledger.charge(1, OTHER_DIGEST)
    assert ledger.num_releases == 2
  assert path.read_bytes() == before


def test_another_draw_of_a_round_is_charged_and_takes_its_place(path):
  charge(path, [0, 1])
  with privacy.PrivacyLedger(path, PLAN) as ledger:
    assert ledger.last_draw(1) == 0
    assert ledger.charge(1, OTHER_DIGEST, draw=1) == PLAN.epsilon_after(3)
    assert ledger.last_draw(1) == 1
  with privacy.PrivacyLedger(path, PLAN) as ledger:
    assert ledger.rounds == [0, 1, 1]
    assert ledger.last_draw(1) == 1
    assert ledger.charge(1, OTHER_DIGEST, draw=1) == PLAN.epsilon_after(3)
    # The first draw is not the state that the run is in.
    with pytest.raises(
      ValueError, match='`draw` must be the next one of round'
    ):
      ledger.charge(1, DIGEST, draw=0)


def test_a_draw_cannot_be_left_out(path):
  with privacy.PrivacyLedger(path, PLAN) as ledger:
    assert ledger.last_draw(3) is None
    with pytest.raises(ValueError, match='round 3, 0, found 1'):
      ledger.charge(3, DIGEST, draw=1)


def test_a_line_cut_short_leaves_the_draw_of_its_round_open(path):
  charge(path, [0])
  with open(path, 'ab') as file:
    file.write(b'{"draw":0')
  with privacy.PrivacyLedger(path, PLAN) as ledger:
    assert ledger.last_draw(1) is None
    assert ledger.charge(1, DIGEST) == PLAN.epsilon_after(3)


@pytest.mark.parametrize('digest', ['', 63 * '0', 64 * 'g', 64 * 'F', 65 * '0'])
def test_a_digest_that_is_none_raises(path, digest):
  with privacy.PrivacyLedger(path, PLAN) as ledger:
    with pytest.raises(ValueError, match='`digest` must be 64 hexadecimal'):
      ledger.charge(0, digest)
    with pytest.raises(TypeError, match='`digest` must be a string'):
      ledger.charge(0, None)
    assert ledger.num_releases == 0


def test_caveats_are_kept_with_the_plan(path):
  with privacy.PrivacyLedger(path, PLAN, caveats=['the noise is known']):
    pass
  header = json.loads(path.read_text().splitlines()[0])
  assert header['plan']['caveats'] == ['the noise is known']
  assert header['plan']['description'].startswith(
    'No guarantee as it was run: the noise is known. The plan: Training for'
  )
  both = ('the noise is known', 'so is the cohort')
  with privacy.PrivacyLedger(path, PLAN, caveats=both[1:]) as ledger:
    assert ledger.caveats == both
    assert ledger.num_releases == 0
  assert privacy.read_ledger(path).caveats == both


def test_where_a_round_was_computed_is_kept_with_its_last_draw(path):
  with privacy.PrivacyLedger(path, PLAN) as ledger:
    assert ledger.last_environment(1) is None
    ledger.charge(1, DIGEST, environment='here')
    ledger.charge(1, DIGEST, environment='there')  # The same bits: no charge.
    ledger.charge(2, DIGEST)
  with privacy.PrivacyLedger(path, PLAN) as ledger:
    assert ledger.last_environment(1) == 'here'
    assert ledger.last_environment(2) is None
    ledger.charge(1, OTHER_DIGEST, draw=1, environment='there')
    assert ledger.last_environment(1) == 'there'
    with pytest.raises(TypeError, match='`environment` must be a string'):
      ledger.charge(3, DIGEST, environment=1)


def test_caveats_that_come_later_are_no_releases(path):
  charge(path, [1, 2])
  with privacy.PrivacyLedger(path, PLAN, caveats=['exact figures']) as ledger:
    assert (ledger.num_releases, ledger.rounds) == (2, [1, 2])
    ledger.charge(3, DIGEST)
  with open(path, 'a') as file:
    file.write('{"line":6,"kind":"ca')
  with privacy.PrivacyLedger(path, PLAN, caveats=['exact figures']) as ledger:
    # A line that was cut short may be a release.
    assert ledger.rounds == [1, 2, 3, None]
    assert ledger.num_releases == 4
    assert ledger.caveats == ('exact figures',)
  assert privacy.read_ledger(path).num_releases == 4
  kinds = [json.loads(line)['kind'] for line in path.read_text().splitlines()]
  assert kinds == ['plan', *['release'] * 2, 'caveats', *['release'] * 2]


@pytest.mark.parametrize('is_earliest', [True, False])
def test_a_ledger_of_an_earlier_version_is_refused_by_name(path, is_earliest):
  charge(path, [])
  line = json.loads(path.read_text())
  if is_earliest:
    line['format'] = 1
  else:
    # Whose noise a state had, none of these knew.
    del line['run_id']
  text = json.dumps(line, separators=(',', ':'))
  path.write_text(text + '\n')
  path.with_name('ledger.jsonl.seal').write_text(
    json.dumps(
      {'digest': hashlib.sha256(text.encode()).hexdigest(), 'lines': 1}
    )
    + '\n'
  )
  with pytest.raises(ValueError, match='is of an earlier version'):
    privacy.PrivacyLedger(path, PLAN)


def test_release_beyond_the_plan_is_refused_and_not_written(path):
  charge(path, range(20))
  before = path.read_bytes()
  with privacy.PrivacyLedger(path, PLAN) as ledger:
    with pytest.raises(
      privacy.BudgetExhaustedError, match='20 releases have cost'
    ):
      ledger.charge(20, DIGEST)
    assert ledger.num_releases == 20
  assert path.read_bytes() == before


def test_release_beyond_the_target_is_refused(path):
  plan = privacy.PrivacyPlan(**{**SETTING, 'num_rounds': 1}, target_epsilon=1)
  with privacy.PrivacyLedger(path, plan) as ledger:
    while plan.epsilon_after(ledger.num_releases + 1) <= 1:
      assert ledger.charge(ledger.num_releases, DIGEST) <= 1
    assert ledger.num_releases > 1
    with pytest.raises(privacy.BudgetExhaustedError, match='would pass 1'):
      ledger.charge(ledger.num_releases, DIGEST)


def test_ledger_of_the_paper_records_what_the_sampler_gives(path):
  plan = privacy.PrivacyPlan(**SETTING, sampling='paper')
  with privacy.PrivacyLedger(path, plan) as ledger:
    ledger.charge(0, DIGEST)
    assert ledger.actual_epsilon == plan.actual_epsilon_after(1)
  release = json.loads(path.read_text().splitlines()[1])
  assert release['actual_epsilon'] == plan.actual_epsilon_after(1)
  assert release['actual_epsilon'] > release['epsilon']


@pytest.mark.parametrize(
  'change',
  [
    {'noise_multiplier': 1.6},
    {'num_rounds': 21},
    {'target_delta': 1e-6},
    {'sampling': 'paper'},
    {'accountant': 'pld'},
    {'target_epsilon': 30.0},
  ],
)
def test_ledger_of_another_plan_is_refused(path, change):
  charge(path, [0])
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
    assert ledger.charge(1, DIGEST) == written.epsilon_after(2)


def test_a_ledger_of_its_plans_own_epsilon_is_read_elsewhere(path, monkeypatch):
  plan = dataclasses.replace(PLAN, target_epsilon=PLAN.epsilon)
  charge(path, range(19), plan)
  compute = privacy.PrivacyPlan._compute_epsilon
  monkeypatch.setattr(
    privacy.PrivacyPlan,
    '_compute_epsilon',
    lambda self, num_rounds: math.nextafter(compute(self, num_rounds), 9.0),
  )
  # Not the one that has its epsilon in its cache.
  there = privacy.read_plan(path, **SETTING, target_epsilon=PLAN.epsilon)
  assert there == plan
  charge(path, [19], there)
  with pytest.raises(privacy.BudgetExhaustedError):
    charge(path, [20], there)


def test_a_strategy_that_was_optimised_anew_is_refused_with_what_to_do(path):
  first, second = (
    privacy.CorrelatedNoisePlan(
      **SETTING,
      strategy=correlated_noise.BandedStrategy(
        num_rounds=20, coefficients=(1.0, coefficient)
      ),
      min_separation=4,
    )
    for coefficient in (0.5, math.nextafter(0.5, 1))
  )
  charge(path, [1], first)
  with pytest.raises(ValueError, match='`strategy` is .*privacy.read_plan'):
    charge(path, [2], second)
  charge(path, [2], privacy.read_plan(path))


def test_closed_ledger_raises(path):
  ledger = privacy.PrivacyLedger(path, PLAN)
  ledger.close()
  with pytest.raises(ValueError, match='is closed'):
    ledger.charge(0, DIGEST)


@pytest.mark.parametrize('round_num', [-1, 1.0, None, True, '3'])
def test_bad_round_raises(path, round_num):
  with privacy.PrivacyLedger(path, PLAN) as ledger:
    with pytest.raises((TypeError, ValueError), match='`round_num` must be'):
      ledger.charge(round_num, DIGEST)
    assert ledger.num_releases == 0


def test_bad_plan_raises(path):
  with pytest.raises(TypeError, match='`plan` must be a PrivacyPlan'):
    privacy.PrivacyLedger(path, PLAN.to_json())
  assert not path.exists()


CORRELATED = privacy.CorrelatedNoisePlan(
  **SETTING, strategy=privacy.TreeStrategy(num_rounds=20), min_separation=4
)


def test_correlated_noise_is_charged_as_a_run_up_to_a_round(path):
  charge(path, range(1, 6), CORRELATED)
  with privacy.PrivacyLedger(path, CORRELATED) as ledger:
    assert ledger.num_releases == 5
    # The fifth round is the second that a client may be in.
    assert ledger.epsilon == CORRELATED.epsilon_after(5)
    assert CORRELATED.epsilon_after(5) > CORRELATED.epsilon_after(4)
    for each in range(6, 21):
      ledger.charge(each, DIGEST)
    with pytest.raises(privacy.BudgetExhaustedError):
      ledger.charge(21, DIGEST)


def test_correlated_noise_leaves_no_round_out(path):
  with privacy.PrivacyLedger(path, CORRELATED) as ledger:
    # Who is in how many of the rounds is known of those from the first.
    for charged in range(3):
      for round_num in (0, *range(charged + 2, 6), 27):
        with pytest.raises(
          ValueError, match=f'`round_num` must be {charged + 1}, the round'
        ):
          ledger.charge(round_num, DIGEST)
      ledger.charge(charged + 1, DIGEST)
    ledger.charge(3, DIGEST)
    assert ledger.rounds == [1, 2, 3]


def test_correlated_noise_is_never_drawn_anew(path):
  charge(path, [1], CORRELATED)
  with privacy.PrivacyLedger(path, CORRELATED) as ledger:
    # The same bits cost nothing.
    assert ledger.charge(1, DIGEST) == CORRELATED.epsilon_after(1)
    with pytest.raises(privacy.ChangedReleaseError, match='the run ends with'):
      ledger.charge(1, OTHER_DIGEST)
    with pytest.raises(ValueError, match='`draw` must be 0'):
      ledger.charge(1, OTHER_DIGEST, draw=1)
    assert ledger.num_releases == 1


def test_random_allocation_is_charged_by_epochs_and_never_drawn_anew(path):
  plan = privacy.PrivacyPlan(
    **{**SETTING, 'num_rounds': 30},
    sampling='random_allocation',
    accountant='pld',
  )
  charge(path, range(1, 25), plan)
  with privacy.PrivacyLedger(path, plan) as ledger:
    assert ledger.epsilon == plan.epsilon_after(24) == plan.epsilon_after(1)
    assert ledger.charge(24, DIGEST) == plan.epsilon_after(24)
    # In another draw of round 24, a client could come a second time.
    with pytest.raises(privacy.ChangedReleaseError, match='cannot be drawn an'):
      ledger.charge(24, OTHER_DIGEST)
    with pytest.raises(ValueError, match='`draw` must be 0'):
      ledger.charge(24, OTHER_DIGEST, draw=1)
    with pytest.raises(ValueError, match='`round_num` must be 25, the round'):
      ledger.charge(26, DIGEST)
    assert ledger.charge(25, DIGEST) == plan.epsilon > plan.epsilon_after(24)


@pytest.mark.parametrize(
  ('first', 'second'), [(PLAN, CORRELATED), (CORRELATED, PLAN)]
)
def test_ledger_of_another_mechanism_is_refused(path, first, second):
  charge(path, [1], first)
  with pytest.raises(ValueError, match='must be that of the ledger'):
    charge(path, [2], second)


def test_a_repeated_release_takes_the_ledger_as_it_was_written(path):
  ledger = privacy.PrivacyLedger(path, PLAN)
  ledger.charge(1, DIGEST)
  assert ledger.charge(1, DIGEST) == PLAN.epsilon_after(1)
  with open(path, 'a') as file:
    file.write(' ')
  with pytest.raises(privacy.DamagedLedgerError):
    ledger.charge(1, DIGEST)
  with pytest.raises(ValueError, match='is closed'):
    ledger.charge(1, DIGEST)
