"""Tests of private runs that go on where a search would find something else."""

import pytest

from tests.tasks.small_runs import DP_FED_AVG, read_json, run_small
from tff_clipping import privacy
from tff_clipping.privacy.accounting import solve
from tff_clipping.privacy.correlated_noise import optimization

_BANDED = dict(
  mechanism='banded', sampling='min_separation', min_separation=3, num_rounds=4
)
_SETTINGS = {
  'independent': {},
  'banded': _BANDED,
  'blt': _BANDED | dict(mechanism='blt'),
  'groups': _BANDED
  | dict(sampling='grouped_poisson', min_separation=2, num_rounds=5),
  'audited': dict(audit_canaries=20, clients_per_round=20),
}


def _run(folder, cache_dir, **settings):
  return run_small(
    {**DP_FED_AVG, 'rounds_per_checkpoint': 1, **settings}, folder, cache_dir
  )


def _fail(*args, **kwargs):
  raise AssertionError('A run that goes on searches for nothing.')


def _forbid_searches(monkeypatch):
  for module, name in (
    (optimization, '_minimize'),
    (solve, 'find'),
    (privacy.CorrelatedNoisePlan, 'from_target_epsilon'),
  ):
    monkeypatch.setattr(module, name, _fail)


@pytest.mark.parametrize('kind', _SETTINGS)
@pytest.mark.slow
def test_a_run_goes_on_with_the_plan_of_its_ledger(
  tmp_path, cache_dir, monkeypatch, kind
):
  folder, settings = tmp_path / 'run', _SETTINGS[kind]
  with monkeypatch.context() as patch:
    _kill_before_the_last_charge(patch)
    with pytest.raises(_Killed):
      _run(folder, cache_dir, **settings)
  plan = privacy.read_plan(folder)
  described = read_json(folder / 'privacy.json')
  assert privacy.read_ledger(folder).num_releases == plan.num_rounds - 1
  (folder / 'privacy.json').unlink()
  _forbid_searches(monkeypatch)
  message = _run(folder, cache_dir, **settings).message
  assert f'Finished {plan.num_rounds} rounds.' in message
  assert privacy.read_plan(folder) == plan
  assert privacy.read_ledger(folder).num_releases == plan.num_rounds
  assert read_json(folder / 'privacy.json') == described


class _Killed(BaseException):  # noqa: N818
  """Stands for a kill: nothing is done on the way out."""


def _kill_before_the_last_charge(patch):
  """Lets the last outcome be saved, and kills the program after that."""
  charge = privacy.PrivacyLedger.charge

  def killing(ledger, round_num, *args, **kwargs):
    if round_num == ledger.plan.num_rounds:
      raise _Killed
    return charge(ledger, round_num, *args, **kwargs)

  patch.setattr(privacy.PrivacyLedger, 'charge', killing)
