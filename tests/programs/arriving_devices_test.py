"""Tests of the example of devices that come when they like."""

import pathlib
import runpy

import numpy as np
import pytest

from tff_clipping import privacy

_SCRIPT = (
  pathlib.Path(__file__).parents[2] / 'examples/devices/arriving_devices.py'
)
_IDS = [f'd{i}' for i in range(12)]


@pytest.fixture(name='plan', scope='module')
def _plan():
  return privacy.CorrelatedNoisePlan.from_noise_multiplier(
    num_clients=12,
    clients_per_round=3,
    min_separation=3,
    strategy=privacy.identity_strategy(num_rounds=9),
    noise_multiplier=1.0,
    target_delta=1e-3,
  )


@pytest.fixture(name='sampler_class', scope='module')
def _sampler_class():
  return runpy.run_path(str(_SCRIPT))['ArrivingDevices']


def test_who_came_too_soon_is_turned_back_after_a_restart_too(
  tmp_path, plan, sampler_class
):
  rng = np.random.default_rng(0)
  path = tmp_path / 'cohorts.jsonl'

  def waiting():
    return [*rng.choice(_IDS, 8).tolist(), 'a stranger']

  cohorts = []
  for round_num in range(1, 10):
    # Started again before each round.
    sampler = sampler_class(plan, _IDS, path, waiting)
    cohorts.append(sampler.sample(round_num))
    assert sampler.sample(round_num) == cohorts[-1]
  again = sampler_class(plan, _IDS, path, list)
  assert [again.sample(t) for t in range(1, 10)] == cohorts
  assert again.digest == sampler.digest
  assert sum(map(len, cohorts)) > 9
  for round_num, cohort in enumerate(cohorts):
    assert len(set(cohort)) == len(cohort) <= 3
    assert set(cohort) <= set(_IDS)
    for other in cohorts[max(0, round_num - 2) : round_num]:
      assert not set(cohort) & set(other)


def test_a_cohort_that_a_crash_cut_short_is_taken_anew(
  tmp_path, plan, sampler_class
):
  path = tmp_path / 'cohorts.jsonl'
  before = sampler_class(plan, _IDS, path, lambda: ['d0'])
  assert before.sample(1) == ['d0']
  with path.open('a') as file:
    file.write('["d1", "d')
  after = sampler_class(plan, _IDS, path, lambda: ['d0', 'd3'])
  assert after.digest == before.digest
  assert after.sample(2) == ['d3']
  path.write_text('')
  assert sampler_class(plan, _IDS, path, list).digest != before.digest


def test_another_file_is_another_source_and_draws_come_once_in_their_order(
  tmp_path, plan, sampler_class
):
  first, second = (
    sampler_class(plan, _IDS, tmp_path / name, list) for name in ('a', 'b')
  )
  assert first.digest != second.digest
  for place in ((1, 1), (2, 0)):
    with pytest.raises(
      ValueError,
      match=f'at most 1, .* `draw` 0, found {place[0]} and {place[1]}',
    ):
      first.sample(*place)
  assert first.sample(1) == []


@pytest.mark.slow
def test_script_trains_within_the_plan(capsys):
  runpy.run_path(str(_SCRIPT), run_name='__main__')
  assert capsys.readouterr().out.splitlines() == [
    '20 releases, epsilon 1000',
    'weights [ 1. -2.]',
  ]
