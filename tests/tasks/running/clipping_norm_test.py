"""Tests of clipping norms that come from a run before."""

import dataclasses
import math
import warnings

import pytest

from tasks import config
from tasks.running import clipping_norm
from tests.tasks.small_runs import FED_AVG, write_adaptive, write_fed_avg
from tff_clipping import privacy

_MINE = config.Config(**FED_AVG | dict(algorithm='ce_fed_avg'))


def _find(run_dir):
  asked = dataclasses.replace(_MINE, clipping_norm_from=str(run_dir))
  return clipping_norm.find(asked, None)


def test_of_fed_avg_it_is_half_of_the_mean_norm_over_clients(tmp_path):
  # Nobody took part in the second round.
  write_fed_avg(tmp_path, ['3.0,6', 'nan,0', '6.0,3'], num_rounds=3)
  source = _find(tmp_path)
  assert source.norm == 0.5 * (3.0 * 6 + 6.0 * 3) / 9
  assert 'not in any epsilon' in source.exact
  assert source.ledger is None


def test_of_a_private_run_it_is_the_last_norm_that_was_paid_for(tmp_path):
  folder = write_adaptive(tmp_path)
  source = _find(tmp_path)
  assert (source.norm, source.exact) == (0.75, None)
  assert source.ledger == str(folder.ledger)
  assert source.run_id == privacy.read_ledger(folder.path).run_id


def test_a_run_that_gives_none_is_refused(tmp_path):
  cases = {
    'nowhere': (None, 'there is no config.json'),
    'unfinished': (
      lambda p: write_fed_avg(p, ['3.0,6']),
      'it has 1 of 2 rounds',
    ),
    'empty': (lambda p: write_fed_avg(p, ['nan,0'] * 2), 'Weights sum to zero'),
    'zero': (lambda p: write_fed_avg(p, ['0,6', '0,6']), 'have the norm 0'),
    'nan': (
      lambda p: write_fed_avg(p, [f'{math.nan},6'] * 2),
      'have the norm nan',
    ),
    'caveats': (
      lambda p: write_adaptive(p, ['x']),
      'guarantee does not hold: x',
    ),
    'constant': (
      lambda p: write_fed_avg(
        p, ['3.0,6'] * 2, algorithm='ce_fed_avg', clipping_norm=1.0
      ),
      'a run of ce_fed_avg with `clipping` fixed and no ledger',
    ),
    'adaptive': (
      lambda p: write_fed_avg(
        p,
        ['3.0,6'] * 2,
        **dict(algorithm='ce_fed_avg', clipping_norm=1.0, clipping='adaptive'),
      ),
      'a run of ce_fed_avg with `clipping` adaptive and no ledger',
    ),
  }
  for name, (write, words) in cases.items():
    if write is not None:
      write(tmp_path / name)
    with pytest.raises(ValueError, match=words) as refused:
      _find(tmp_path / name)
    assert '`clipping_norm_from` must be the folder of' in str(refused.value)


@pytest.mark.parametrize(
  ('changes', 'words'),
  [
    (dict(seed=1), None),
    (dict(task='yours.csv'), '`task` yours.csv and not embedded_digits: its'),
    (
      dict(model='a.py:b', local_steps=2),
      '`model` a.py:b and not mlp, `local_steps` 2 and not 1: its',
    ),
    (
      dict(local_step='proximal', proximal_mu=0.1, server_optimizer='adam'),
      '`local_step` proximal and not sgd, `proximal_mu` 0.1 and not None, '
      '`server_optimizer` adam and not sgd: its',
    ),
    (dict(compute_dtype='bfloat16'), '`compute_dtype` bfloat16 and not float'),
  ],
)
def test_a_run_whose_updates_have_other_norms_is_warned_of(
  tmp_path, changes, words
):
  write_fed_avg(tmp_path, ['3.0,6'] * 2, **changes)
  with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter('always')
    _find(tmp_path)
  found = [str(each.message) for each in caught]
  assert len(found) == (words is not None)
  assert words is None or words in found[0]


def test_a_run_that_goes_on_has_the_norm_of_its_beginning():
  for source in (
    {'exact': 'a figure', 'ledger': None},
    # It is gone, and what it cost counts for private runs alone.
    {'exact': None, 'ledger': 'gone/ledger.jsonl', 'run_id': 'a1'},
  ):
    saved = dict(
      experiment={'clipping_norm': 0.25}, clipping_norm_source=source
    )
    found = clipping_norm.find(_MINE, saved)
    assert (found.norm, found.exact) == (0.25, source['exact'])
    assert found.ledger == source['ledger']
  assert clipping_norm.find(_MINE, None) is None
