"""Runs the example of two runs, of which one finds the norm of the other."""

import csv
import pathlib
import runpy

import pytest

from tff_clipping import privacy, programs
from tff_clipping.privacy.calculator import ledger_main
from tff_clipping.privacy.ledger import spending

_SCRIPT = (
  pathlib.Path(__file__).parents[2] / 'examples/estimate_clipping_norm.py'
)


def _norms(folder):
  with open(folder / 'metrics.csv') as file:
    _, *rows = csv.DictReader(file)
  return [float(row['aggregator/clipping_norm']) for row in rows]


@pytest.mark.slow
def test_both_runs_are_charged_and_no_cohort_is_repeated(tmp_path, capsys):
  main = runpy.run_path(str(_SCRIPT))['main']
  main(tmp_path)
  printed = capsys.readouterr().out
  first, second = folders = tmp_path / 'first', tmp_path / 'second'
  # The norm adapts in the first run, and its last is that of the second.
  assert len(set(_norms(first))) == 10
  assert set(_norms(second)) == {_norms(first)[-1]}

  # Each run has a seed of its own, and no cohort of the other.
  seeds = [int((each / 'sampling_seed').read_text()) for each in folders]
  ledgers = [privacy.read_ledger(each) for each in folders]
  assert seeds[0] != seeds[1]
  assert not set(ledgers[0].seeds) & set(ledgers[1].seeds)
  ids = [f'{client:04d}' for client in range(1000)]
  cohorts = [
    {
      tuple(
        programs.build_private_sampler(ledger.plan, ids, seed=seed).sample(t)
      )
      for t in range(1, ledger.num_releases + 1)
    }
    for ledger, seed in zip(ledgers, seeds, strict=True)
  ]
  assert [len(each) for each in cohorts] == [10, 20]
  assert not cohorts[0] & cohorts[1]

  # Both are added, by the function and by the command.
  spent = privacy.compute_spending(ledgers)
  assert not spending.find_assumed_independent(ledgers)
  assert not any(ledger.caveats for ledger in ledgers)
  assert 4 < spent.epsilon < 5
  assert f'1.00 and 4.00 alone, {spent.epsilon:.2f} together' in printed
  assert not ledger_main.run(['ledger', *map(str, folders)])
  assert 'Together, the 30 releases of 2 runs' in capsys.readouterr().out

  # The same command does nothing more.
  main(tmp_path)
  assert capsys.readouterr().out == printed
  assert [privacy.read_ledger(each).num_releases for each in folders] == [
    *(10, 20)
  ]
