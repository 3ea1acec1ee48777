"""Attempts to get an epsilon for a process that nobody has checked.

An aggregator without a record of its mechanism runs, is charged by its plan,
and whatever shows the epsilon says that nobody has checked it.
"""

import collections
import dataclasses
import json

import numpy as np
import pandas as pd
import pytest

from tests.programs import noised_scalar, small_program
from tests.programs.counted_rounds import Output
from tff_clipping import privacy
from tff_clipping.mechanism import MECHANISM
from tff_clipping.privacy.calculator import ledger_main
from tff_clipping.privacy.ledger import ledger_contents
from tff_clipping.programs.checks import records
from tff_clipping.programs.clients.client_sampling import build_private_sampler
from tff_clipping.programs.training import round_metrics

_RECORD = noised_scalar.record(noised_scalar.plan(), clipping_norm=0.5)


def _round(run, metrics, round_num=1):
  """Runs a round that measures this."""
  return run.round(
    round_num,
    np.float32(round_num - 1),
    lambda state, cohort: Output(np.float32(state + 1), metrics),
  )


def _under(*names, record=None):
  """Returns metrics with a record below these names."""
  value = collections.OrderedDict(
    [
      (MECHANISM, _RECORD.to_json() if record is None else record),
      ('clipping_norm', np.float32(0.5)),
    ]
  )
  for name in reversed(names):
    value = collections.OrderedDict([(name, value)])
  return value


def test_declared_names_over_an_exact_sum_are_unchecked_wherever_it_is_read(
  tmp_path, capsys
):
  # Its state has `clipping_norm` and `privacy_noise`, and it sums exactly.
  process, plan = small_program.build_process(), small_program.plan('poisson')
  assert not records.has_record(process)
  path = tmp_path / 'ledger.jsonl'
  with privacy.PrivacyLedger(path, plan) as ledger:
    small_program.program(
      tmp_path,
      process=process,
      ledger=ledger,
      sampler=build_private_sampler(plan, small_program.IDS, seed=0),
    ).run()
    assert ledger.num_releases == 6
    assert ledger.caveats == (records.UNCHECKED,)
  # Of what the aggregator measured, nothing is published.
  assert not [n for n in pd.read_csv(tmp_path / 'metrics.csv') if '/' in n]
  assert ledger_contents.read_ledger(path).caveats == (records.UNCHECKED,)
  statement = tmp_path / 'statement.md'
  for flags in ([], ['--format=json'], [f'--statement={statement}']):
    assert not ledger_main.run(['tff-clipping-ledger', str(path), *flags])
    if flags[:1] != [f'--statement={statement}']:
      assert records.UNCHECKED in capsys.readouterr().out
  assert records.UNCHECKED in statement.read_text()


def test_a_record_of_the_plan_has_no_caveat(run):
  _round(run, _under('aggregator'))
  assert (run.ledger.num_releases, run.ledger.caveats) == (1, ())


@pytest.mark.parametrize(
  'metrics',
  [
    _under(),
    _under('client_work'),
    _under('finalizer'),
    _under('aggregator', 'clipping'),
    _under('aggregator', 'mean_value'),
    _under('aggregator', 'aggregator'),
    _under('metrics', 'aggregator'),
    (),
    np.float32(1),
    # By its fields alone, nobody is known.
    {'aggregator': {'clipping_norm': np.float32(1), 'noise_stddev': 1}},
  ],
)
def test_a_record_that_is_elsewhere_is_none(run, metrics):
  _round(run, metrics)
  assert run.ledger.num_releases == 1
  assert run.ledger.caveats == (records.UNCHECKED,)
  # Nor is anything public then.
  assert not run.store.outcomes()[-1].released
  assert not round_metrics.flatten_metrics(metrics, is_private=True)


@pytest.mark.parametrize(
  'record',
  [
    dataclasses.replace(_RECORD, noise_multiplier=2.0).to_json(),
    dataclasses.replace(_RECORD, clients_per_round=1).to_json(),
    json.dumps({**json.loads(_RECORD.to_json()), 'kind': 'exact'}),
    '{}',
    b'\xff',
    b'gaussian',
    np.float32(1),
    np.array([b'{}', b'{}']),
  ],
)
def test_a_record_that_is_not_the_plans_is_charged_nothing(run, record):
  with pytest.raises(ValueError, match='nothing is charged'):
    _round(run, _under('aggregator', record=record))
  assert (run.ledger.num_releases, run.ledger.caveats) == (0, ())


@pytest.mark.parametrize('name', ['clipping_norm', 'canary_products'])
def test_a_figure_under_a_public_name_is_not_released(run, name):
  # As `tff.aggregators.add_measurements` around a private mean has it.
  exact = np.full([2] if name == 'canary_products' else [], 1e6, np.float32)
  metrics = _under('aggregator')
  metrics['aggregator'][name] = exact
  if name == 'clipping_norm':
    with pytest.raises(ValueError, match='another figure.*nothing is charged'):
      _round(run, metrics)
    assert not run.ledger.num_releases
    return
  _round(run, metrics)
  assert run.store.outcomes()[-1].released == {'aggregator/clipping_norm': 0.5}


def test_one_round_without_a_record_is_enough(run):
  for i, name in enumerate(('aggregator', 'client_work', 'aggregator')):
    _round(run, _under(name), i + 1)
  assert run.ledger.num_releases == 3
  run.restart()
  assert run.ledger.caveats == (records.UNCHECKED,)


def test_the_caveat_is_on_disk_before_the_charge(run, monkeypatch):
  def fail(*args, **kwargs):
    raise OSError('Killed before the charge.')

  monkeypatch.setattr(run.ledger, 'charge', fail)
  with pytest.raises(OSError, match='Killed'):
    _round(run, _under('client_work'))
  run.kill()
  run.start()
  assert (run.ledger.num_releases, run.ledger.caveats) == (
    0,
    (records.UNCHECKED,),
  )
