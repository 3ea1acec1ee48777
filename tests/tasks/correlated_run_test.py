"""Tests of private runs whose noise is correlated between rounds."""

import json

import pytest

from tasks import experiment, run_folder, runner
from tff_clipping import privacy

_CONFIG = dict(
  task='embedded_digits',
  partition='label_skew',
  num_clients=40,
  examples_per_client=10,
  model='mlp',
  algorithm='dp_fed_avg',
  clients_per_round=8,
  num_rounds=5,
  local_steps=1,
  batch_size=5,
  client_learning_rate=0.1,
  clipping_norm=1.0,
  target_epsilon=8.0,
  target_delta=1e-3,
)


@pytest.fixture(name='cache_dir', scope='module')
def _cache_dir(tmp_path_factory):
  return tmp_path_factory.mktemp('cache')


def _run(folder, cache_dir, **changes):
  return runner.run(
    experiment.ExperimentConfig(**{**_CONFIG, **changes}),
    run_folder.RunFolder(folder),
    cache_dir=str(cache_dir),
  )


@pytest.mark.parametrize(
  ('mechanism', 'sampling', 'min_separation', 'max_participations'),
  [
    ('blt', 'min_separation', 3, 2),
    *(
      pytest.param(*values, marks=pytest.mark.slow)
      for values in (
        ('tree', 'min_separation', 5, 1),
        ('banded', 'grouped_poisson', 2, 3),
        ('banded', 'shuffled_epochs', 1, 1),
      )
    ),
  ],
)
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
  assert result.message == 'Finished 5 rounds.'
  saved = json.loads((tmp_path / 'privacy.json').read_text())
  plan = privacy.CorrelatedNoisePlan.from_json(saved)
  assert plan.max_participations == max_participations
  assert plan.epsilon <= 8.0
  assert saved['relation'] == 'zero_out'
  assert 'zeroing out one client' in saved['description']
  with privacy.PrivacyLedger(tmp_path / 'ledger.jsonl', plan) as ledger:
    assert ledger.num_releases == 5


def test_epochs_that_are_cut_are_refused(tmp_path, cache_dir):
  with pytest.raises(ValueError, match='`num_rounds` must be a multiple of'):
    _run(
      tmp_path,
      cache_dir,
      mechanism='blt',
      sampling='shuffled_epochs',
      num_rounds=6,
    )
