"""Tests of one phase of a run as a ledger of its own."""

import pytest

from tff_clipping import privacy
from tff_clipping.privacy.ledger.ledger_phase import LedgerPhase


def _plan(**settings):
  return privacy.PrivacyPlan.from_noise_multiplier(
    num_clients=100,
    clients_per_round=10,
    num_rounds=3,
    target_delta=1e-3,
    noise_multiplier=2.0,
    **settings,
  )


_PHASE = privacy.ThresholdPhase(num_rounds=2, noise_multiplier=6.0)


def _digest(number):
  return f'{number:064x}'


@pytest.fixture
def ledger(tmp_path):
  with privacy.PrivacyLedger(tmp_path / 'l', _plan(threshold=_PHASE)) as opened:
    yield opened


def test_both_phases_are_charged_on_one_clock(ledger):
  first, training = (
    LedgerPhase(ledger, each) for each in ('threshold', 'training')
  )
  for number in (1, 2):
    first.charge(number, _digest(number))
  assert first.rounds == [1, 2]
  assert training.rounds == []
  assert training.last_draw(1) is None
  training.charge(1, _digest(3), environment='here')
  assert ledger.rounds == [1, 2, 3]
  assert (training.rounds, first.rounds) == ([1], [1, 2])
  assert training.last_draw(1) == 0
  assert training.last_environment(1) == 'here'
  assert first.epsilon == training.epsilon == ledger.plan.epsilon_after(3)
  # Once more, the same bits.
  training.charge(1, _digest(3))
  assert ledger.num_releases == 3
  with pytest.raises(privacy.ChangedReleaseError):
    training.charge(1, _digest(4))


def test_training_begins_when_the_norm_is_known(ledger):
  training = LedgerPhase(ledger, 'training')
  LedgerPhase(ledger, 'threshold').charge(1, _digest(1))
  for attempt in (
    lambda: training.check_budget(1),
    lambda: training.charge(1, _digest(2)),
  ):
    with pytest.raises(ValueError, match='round 2 of the 2 that estimate'):
      attempt()
  assert ledger.num_releases == 1


def test_the_first_phase_has_no_more_rounds(ledger):
  first = LedgerPhase(ledger, 'threshold')
  with pytest.raises(ValueError, match='`round_num` must be'):
    first.charge(3, _digest(3))


def test_a_round_of_bits_that_is_drawn_anew_is_charged_as_one_of_training(
  ledger,
):
  first = LedgerPhase(ledger, 'threshold')
  training = LedgerPhase(ledger, 'training')
  first.charge(1, _digest(1))
  first.charge(1, _digest(2), draw=1)
  first.charge(2, _digest(3))
  training.charge(1, _digest(4))
  training.charge(2, _digest(5))
  # Two of training were run, and three are charged: all that the plan has.
  assert ledger.epsilon == ledger.plan.epsilon
  with pytest.raises(privacy.BudgetExhaustedError):
    training.charge(3, _digest(6))


def test_a_plan_without_a_threshold_has_no_phases(tmp_path):
  with (
    privacy.PrivacyLedger(tmp_path / 'l', _plan()) as ledger,
    pytest.raises(ValueError, match='`threshold` must be given'),
  ):
    LedgerPhase(ledger, 'training')
