"""Tests of privacy.accounting.accountants, by the functions of plans."""

import math
import warnings

import hypothesis
import numpy as np
import pytest
from dp_accounting import rdp
from hypothesis import strategies as st

from tests.privacy.paper import PAPER, POPULATION
from tff_clipping import privacy
from tff_clipping.privacy.accounting import (
  accountants,
  privacy_loss,
  ranges,
  rounding,
)


# TensorFlow Privacy, compute_dp_sgd_privacy_test.py: two runs of 15 and 30
# epochs; of test_compute_dp_sgd_example_privacy, 1.2 epochs of batches of a
# hundredth with and without subsampling. Opacus, tests/accountants_test.py:
# sampling rate 0.04; its PRV accountant is precise to 0.01.
@pytest.mark.parametrize(
  ('setting', 'epsilon', 'slack'),
  [
    ((60000, 150, 6000, 1.3, 1e-5, 'poisson', 'rdp'), 0.7242234026, 1e-6),
    ((100000, 100, 30000, 1.0, 1e-7, 'poisson', 'rdp'), 1.41549885, 1e-6),
    ((10000, 100, 120, 0.7, 1e-5, 'poisson', 'rdp'), 3.2392676, 5e-5),
    ((10000, 100, 120, 0.7, 1e-5, 'poisson', 'pld'), 2.4612381, 5e-5),
    ((10000, 10000, 2, 0.7, 1e-5, 'none', 'rdp'), 10.8602036, 5e-5),
    ((10000, 10000, 2, 0.7, 1e-5, 'none', 'pld'), 10.1224946, 5e-5),
    ((100000, 4000, 2250, 1.5, 1e-5, 'poisson', 'rdp'), 7.32911117, 1.3e-4),
    ((100000, 4000, 2249, 1.5, 1e-5, 'poisson', 'pld'), 6.777395712, 1.6e-3),
  ],
)
def test_published_epsilons(setting, epsilon, slack):
  names = (
    *('num_clients', 'clients_per_round', 'num_rounds', 'noise_multiplier'),
    *('target_delta', 'sampling', 'accountant'),
  )
  found = privacy.compute_epsilon(**dict(zip(names, setting, strict=True)))
  assert found == pytest.approx(epsilon, rel=slack)


@pytest.mark.slow
def test_tf_privacy_itself_says_the_same():
  # Slow for its import of TensorFlow. 100 * 80 / 1920 epochs are, rounded up in
  # floats, 101 rounds. Its best order is another, as its moments are.
  lib = pytest.importorskip(
    'tensorflow_privacy.privacy.analysis.compute_dp_sgd_privacy_lib'
  )
  theirs, _ = lib.compute_dp_sgd_privacy(1920, 80, 1.52999, 100 / 24, 1e-5)
  epsilon = privacy.compute_epsilon(
    **PAPER, num_rounds=101, noise_multiplier=1.52999
  )
  assert epsilon < theirs < 1.0005 * epsilon


def test_tutorial_of_tf_privacy():
  # TensorFlow Privacy, tutorials/README.md: N = 60000, batch 256, noise 1.1, 60
  # epochs, delta 1e-5 give 'eps = 3.01', by the conversion of Mironov 2017,
  # epsilon = rdp + log(1/delta) / (order - 1). Today's conversion gives less.
  plan = privacy.PrivacyPlan(
    num_clients=60000,
    clients_per_round=256,
    num_rounds=60 * 60000 // 256,
    noise_multiplier=1.1,
    target_delta=1e-5,
  )
  accountant = rdp.RdpAccountant().compose(plan.dp_event)
  published = np.min(accountant.rdp - math.log(1e-5) / (accountant.orders - 1))
  assert published == pytest.approx(3.01, abs=0.005)
  assert 2.3 < plan.epsilon < published


def _epsilons(**setting):
  """Returns epsilon by both accountants of sampled rounds."""
  return [
    privacy.compute_epsilon(accountant=each, **setting)
    for each in ('pld', 'rdp')
  ]


@pytest.mark.parametrize('rounds', [1, 7, 100])
@pytest.mark.parametrize(
  ('sampling', 'sensitivity'),
  [('none', 1), ('poisson', 1), ('fixed_size', 2)],
)
def test_all_clients_have_the_epsilon_of_the_gaussian_mechanism(
  sampling, sensitivity, rounds
):
  exact = privacy.gaussian_epsilon(8.0 / sensitivity / math.sqrt(rounds), 1e-5)
  pld, by_rdp = _epsilons(
    num_clients=50,
    clients_per_round=50,
    num_rounds=rounds,
    noise_multiplier=8.0,
    target_delta=1e-5,
    sampling=sampling,
  )
  assert exact <= pld * (1 + 1e-9)
  assert pld == pytest.approx(exact, rel=1e-4)
  assert pld <= by_rdp < 1.25 * exact


@pytest.mark.parametrize('accountant', ['pld', 'gaussian'])
def test_a_small_delta_of_much_noise_is_not_below_the_exact_one(accountant):
  delta = privacy.compute_delta(
    num_clients=5,
    clients_per_round=5,
    num_rounds=1,
    noise_multiplier=7054.920869333204,
    target_epsilon=0.0009014659244226836,
    sampling='none',
    accountant=accountant,
  )
  exact = 2.1530182666288427e-15  # By mpmath, with 60 digits.
  assert exact <= delta <= exact * (1 + 1e-9)


@pytest.mark.parametrize(
  ('sampling', 'sensitivity'), [('poisson', 1), ('fixed_size', 2)]
)
def test_one_sampled_round_has_the_closed_form(sampling, sensitivity):
  # H(epsilon) = q G(log(1 + (e^epsilon - 1)/q)) is exact for one round: it is
  # delta where G, the Gaussian's curve, is delta/q.
  inner = privacy.gaussian_epsilon(0.8 / sensitivity, 1e-6 / 0.05)
  exact = math.log1p(0.05 * math.expm1(inner))
  pld, by_rdp = _epsilons(
    num_clients=1000,
    clients_per_round=50,
    num_rounds=1,
    noise_multiplier=0.8,
    target_delta=1e-6,
    sampling=sampling,
  )
  assert pld == pytest.approx(exact, rel=1e-4)
  assert by_rdp >= exact


@pytest.mark.parametrize('rounds', [1, 10**7])
@pytest.mark.parametrize('sampling', ['poisson', 'fixed_size'])
def test_pld_of_many_rounds_is_a_tight_bound(sampling, rounds):
  # Far more rounds than a run has: the grid must neither grow nor become loose.
  pld, by_rdp = _epsilons(
    num_rounds=rounds, noise_multiplier=300.0, sampling=sampling, **PAPER
  )
  assert 0 <= pld < by_rdp


# Arguments of `compute_epsilon`.
SETTINGS = st.builds(
  lambda fraction, log_delta, **setting: (
    setting
    | dict(clients_per_round=max(1, int(setting['num_clients'] * fraction)))
    | dict(target_delta=10**log_delta)
  ),
  num_clients=st.integers(10, 10**6),
  fraction=st.floats(0.001, 1),
  num_rounds=st.integers(1, 3000),
  noise_multiplier=st.floats(0.5, 30),
  log_delta=st.floats(-8, -2),
  sampling=st.sampled_from(['poisson', 'fixed_size']),
)


def compute_quietly(**setting):
  """Returns epsilon without the warning of a large delta; inf for no answer."""
  with warnings.catch_warnings():
    warnings.simplefilter('ignore', ranges.DeltaWarning)
    try:
      return privacy.compute_epsilon(**setting)
    except ValueError as error:
      if 'no finite epsilon' in str(error):
        return math.inf
      raise


@pytest.mark.slow
@hypothesis.settings(max_examples=12, deadline=None, derandomize=True)
@hypothesis.given(setting=SETTINGS)
def test_pld_is_never_larger_than_rdp(setting):
  pld = compute_quietly(accountant='pld', **setting)
  hypothesis.assume(math.isfinite(pld))
  assert pld <= compute_quietly(accountant='rdp', **setting) * (1 + 1e-3)


@pytest.mark.slow
@pytest.mark.parametrize('accountant', ['rdp', 'pld'])
@pytest.mark.parametrize(
  ('argument', 'larger', 'sign'),
  [
    ('num_clients', lambda value: 2 * value, -1),
    ('num_rounds', lambda value: value + 1 + value // 5, 1),
    ('noise_multiplier', lambda value: 1.2 * value, -1),
    ('target_delta', lambda value: 2 * value, -1),
    ('clients_per_round', lambda value: value + 1 + value // 5, 1),
  ],
)
@hypothesis.settings(max_examples=4, deadline=None, derandomize=True)
@hypothesis.given(setting=SETTINGS)
def test_epsilon_is_monotone(accountant, argument, larger, sign, setting):
  changed = {**setting, argument: larger(setting[argument])}
  most = changed['num_clients']
  changed['clients_per_round'] = min(changed['clients_per_round'], most)
  before = compute_quietly(accountant=accountant, **setting)
  after = compute_quietly(accountant=accountant, **changed)
  hypothesis.assume(math.isfinite(before) and math.isfinite(after))
  # By how much discretisation may hide a change.
  slack = {'rdp': 1e-9, 'pld': 2e-3}[accountant] * max(before, after) + 1e-9
  assert sign * (after - before) >= -slack


@pytest.mark.parametrize(
  ('accountant', 'multiplier'),
  [
    *(('rdp', each) for each in (0.01, 0.05, 0.3, 1e3, 1e5)),
    *(('pld', each) for each in (0.5, 1e3, 1e5)),
  ],
)
@pytest.mark.parametrize('sampling', ['poisson', 'fixed_size'])
def test_ends_of_the_range_have_answers(accountant, multiplier, sampling):
  epsilon = privacy.compute_epsilon(
    num_rounds=100,
    noise_multiplier=multiplier,
    sampling=sampling,
    accountant=accountant,
    **PAPER,
  )
  assert math.isfinite(epsilon)
  # Composing 100 Gaussians without sampling is an upper bound.
  factor = 2 if sampling == 'fixed_size' else 1
  rho = 100 * factor**2 / (2 * multiplier**2)
  # (The least order of the Renyi accountant is 1.1, not 1.)
  bound = rho + 2 * math.sqrt(rho * math.log(1e5)) + 0.01
  assert 0 <= epsilon <= 1.1 * bound
  if multiplier < 0.1:
    assert epsilon > 50


@pytest.mark.parametrize('accountant', ['rdp', 'pld'])
def test_delta_of_no_privacy_is_one(accountant):
  delta = privacy.compute_delta(
    num_rounds=1000,
    noise_multiplier=0.01,
    target_epsilon=1.0,
    accountant=accountant,
    **POPULATION,
  )
  assert delta == 1


class _Doubled(privacy_loss.PldCost):
  """An accountant whose epsilon is twice that of another one."""

  def compute_epsilon(self, delta):
    return 2 * super().compute_epsilon(delta)


def test_an_accountant_is_one_entry_of_the_table(monkeypatch):
  doubled = accountants.Accountant(_Doubled, 'twice as much')
  monkeypatch.setitem(accountants.TABLE, 'doubled', doubled)
  question = {**PAPER, 'num_rounds': 10}
  plan = privacy.PrivacyPlan.from_target_epsilon(
    **question, target_epsilon=2, accountant='doubled'
  )
  known = privacy.calibrate_noise_multiplier(
    **question, target_epsilon=1, accountant='pld'
  )
  assert plan.noise_multiplier == pytest.approx(known, rel=1e-4)
  assert 'accounted for by twice as much' in privacy.describe_plan(plan)
  assert privacy.plan_from_json(privacy.plan_to_json(plan)) == plan


def test_rdp_is_named_where_pld_has_no_answer():
  question = dict(
    num_clients=100,
    clients_per_round=100,
    num_rounds=10,
    noise_multiplier=0.1,
    target_delta=1e-5,
  )
  known = rounding.format_up(privacy.compute_epsilon(**question))
  with pytest.raises(
    ValueError, match=f"no finite epsilon .* the accountant 'rdp' it is {known}"
  ):
    privacy.compute_epsilon(accountant='pld', **question)
