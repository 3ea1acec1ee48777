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
import tensorflow_federated as tff

from tests.programs import small_program
from tff_clipping import privacy
from tff_clipping.mechanism import MECHANISM, Mechanism
from tff_clipping.privacy.calculator import ledger_main
from tff_clipping.privacy.ledger import ledger_contents
from tff_clipping.programs.checks import records
from tff_clipping.programs.clients.client_sampling import build_private_sampler
from tff_clipping.programs.training import private_rounds
from tff_clipping.programs.training.checkpoints import Checkpoints

_PLAN = small_program.plan('poisson')
_RECORD = Mechanism(
  kind='gaussian',
  clipping_norm=0.5,
  noise_multiplier=_PLAN.noise_multiplier,
  clients_per_round=_PLAN.clients_per_round,
  public=('clipping_norm',),
)


def _open(folder):
  return privacy.PrivacyLedger(folder / 'ledger.jsonl', _PLAN)


def _sampler():
  return build_private_sampler(_PLAN, small_program.IDS, seed=0)


class _Rounds:
  """Rounds of a process whose metrics are given."""

  def __init__(self, folder, ledger):
    self._ledger = ledger
    self._store = Checkpoints(folder / 'outcomes')
    self._state, self._round_num = np.int64(0), 0

  def run(self, metrics):
    """Runs the next round, which measures this."""

    def next_fn(state, cohort):
      del cohort  # Whatever it sends.
      return tff.learning.templates.LearningProcessOutput(state + 1, metrics)

    _, output = private_rounds.run_private_round(
      next_fn,
      _sampler(),
      self._ledger,
      self._store,
      state=self._state,
      round_num=self._round_num + 1,
    )
    self._state, self._round_num = output.state, self._round_num + 1


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


def test_declared_names_over_an_exact_sum_are_unchecked(tmp_path, capsys):
  # Its state has `clipping_norm` and `privacy_noise`, and it sums exactly.
  process = small_program.build_process()
  assert not records.has_record(process)
  with _open(tmp_path) as ledger:
    small_program.program(
      tmp_path, process=process, ledger=ledger, sampler=_sampler()
    ).run()
    assert ledger.num_releases == 6
    assert ledger.caveats == (records.UNCHECKED,)
  # Of what the aggregator measured, nothing is published.
  assert not [n for n in pd.read_csv(tmp_path / 'metrics.csv') if '/' in n]
  # Whoever reads the epsilon reads that nobody has checked it.
  path = tmp_path / 'ledger.jsonl'
  assert ledger_contents.read_ledger(path).caveats == (records.UNCHECKED,)
  statement = tmp_path / 'statement.md'
  for flags in ([], ['--format=json'], [f'--statement={statement}']):
    assert not ledger_main.run(['tff-clipping-ledger', str(path), *flags])
    if flags[:1] != [f'--statement={statement}']:
      assert records.UNCHECKED in capsys.readouterr().out
  assert records.UNCHECKED in statement.read_text()


def test_a_record_of_the_plan_has_no_caveat(tmp_path):
  with _open(tmp_path) as ledger:
    _Rounds(tmp_path, ledger).run(_under('aggregator'))
    assert (ledger.num_releases, ledger.caveats) == (1, ())


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
def test_a_record_that_is_elsewhere_is_none(tmp_path, metrics):
  with _open(tmp_path) as ledger:
    _Rounds(tmp_path, ledger).run(metrics)
    assert (ledger.num_releases, ledger.caveats) == (1, (records.UNCHECKED,))


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
def test_a_record_that_is_not_the_plans_is_charged_nothing(tmp_path, record):
  with _open(tmp_path) as ledger:
    with pytest.raises(ValueError, match='nothing is charged'):
      _Rounds(tmp_path, ledger).run(_under('aggregator', record=record))
    assert (ledger.num_releases, ledger.caveats) == (0, ())


def test_one_round_without_a_record_is_enough(tmp_path):
  with _open(tmp_path) as ledger:
    rounds = _Rounds(tmp_path, ledger)
    for name in ('aggregator', 'client_work', 'aggregator'):
      rounds.run(_under(name))
    assert (ledger.num_releases, ledger.caveats) == (3, (records.UNCHECKED,))
  with _open(tmp_path) as ledger:
    assert ledger.caveats == (records.UNCHECKED,)


def test_the_caveat_is_on_disk_before_the_charge(tmp_path, monkeypatch):
  def fail(*args, **kwargs):
    raise OSError('Killed before the charge.')

  with _open(tmp_path) as ledger:
    monkeypatch.setattr(ledger, 'charge', fail)
    with pytest.raises(OSError, match='Killed'):
      _Rounds(tmp_path, ledger).run(_under('client_work'))
  with _open(tmp_path) as ledger:
    assert (ledger.num_releases, ledger.caveats) == (0, (records.UNCHECKED,))
