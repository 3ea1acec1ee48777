"""Tests of private runs whose noise is correlated between rounds."""

import pytest

from tests.tasks.small_runs import DP_FED_AVG, read_json, run_small
from tff_clipping import privacy


def _run(folder, cache_dir, **changes):
  settings = {**DP_FED_AVG, 'num_rounds': 5, **changes}
  return run_small(settings, folder, cache_dir)


@pytest.mark.parametrize(
  ('mechanism', 'sampling', 'min_separation', 'max_participations'),
  [
    ('blt', 'min_separation', 3, 2),
    ('banded', 'grouped_poisson', 2, 3),
  ],
)
@pytest.mark.slow
def test_a_run_has_the_plan_of_its_sampler(
  tmp_path, cache_dir, mechanism, sampling, min_separation, max_participations
):
  result = _run(
    tmp_path,
    cache_dir,
    mechanism=mechanism,
    sampling=sampling,
    min_separation=min_separation,
  )
  assert result.message.startswith('Finished 5 rounds. Charged: ')
  saved = read_json(tmp_path / 'privacy.json')
  plan = privacy.plan_from_json(saved)
  assert plan.max_participations == max_participations
  assert plan.epsilon <= 8.0
  assert saved['relation'] == 'zero_out'
  assert 'zeroing out one client' in saved['description']
  with privacy.PrivacyLedger(tmp_path / 'ledger.jsonl', plan) as ledger:
    assert ledger.num_releases == 5
