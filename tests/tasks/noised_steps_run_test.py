"""Tests of runs with noise in each local step."""

import pytest

from tests.tasks.small_runs import DP_FED_AVG, read_json, run_small
from tff_clipping import privacy

_SETTINGS = DP_FED_AVG | dict(
  algorithm='dp_steps_fed_avg',
  sampling='min_separation',
  min_separation=3,
  num_rounds=4,
  local_steps=2,
)


@pytest.mark.slow
def test_a_run_promises_to_single_examples_and_charges_by_turns(
  tmp_path, cache_dir
):
  result = run_small(_SETTINGS, tmp_path, cache_dir)
  assert result.message.startswith('Finished 4 rounds. Charged: ')
  assert 'one example' in result.message
  saved = read_json(tmp_path / 'privacy.json')
  plan = privacy.ExamplePlan.from_json(saved)
  # Rounds 1 and 4 are of one group.
  assert plan.max_participations == 2
  assert plan.examples_per_client == 10
  assert saved['unit'] == 'example'
  with privacy.PrivacyLedger(tmp_path / 'ledger.jsonl', plan) as ledger:
    assert ledger.num_releases == 4
    assert ledger.epsilon == plan.epsilon <= 8.0
    assert not any('local' in caveat for caveat in ledger.caveats)


@pytest.mark.parametrize(
  ('changes', 'words'),
  [
    (dict(sampling='poisson'), '`sampling` must be one of min_separation'),
    (dict(batch_size=11), '`batch_size` must be at most the 10 examples'),
    (dict(clipping_norm=None), '`clipping_norm` must be given'),
    (
      dict(local_step='momentum', local_momentum=0.5),
      '`local_step` must be sgd',
    ),
    (dict(noise_seed=1), '`noise_seed` must not be given'),
    (dict(audit_canaries=20), '`audit_canaries` must not be given'),
    (dict(examples_per_client=None), '`max_examples_per_client` must be given'),
    (dict(max_examples_per_client=9), '`max_examples_per_client` must be at'),
    (
      dict(num_clients=500, examples_per_client=10),
      '`partition` must give an example to one client',
    ),
  ],
)
def test_what_no_plan_charges_for_is_refused(
  tmp_path, cache_dir, changes, words
):
  with pytest.raises(ValueError, match=words):
    run_small(_SETTINGS | changes, tmp_path, cache_dir)


def test_its_settings_are_for_it_alone(tmp_path, cache_dir):
  with pytest.raises(ValueError, match='it is for dp_steps_fed_avg'):
    run_small(DP_FED_AVG | dict(max_batch_size=9), tmp_path, cache_dir)
