"""Ledgers for tests."""

import json
import pathlib
import secrets

from tests import noise_strategies
from tests.privacy.paper import PAPER
from tff_clipping import privacy

SETTING = {**PAPER, 'num_rounds': 20, 'noise_multiplier': 1.5}

PLAN = privacy.PrivacyPlan(**SETTING)

ROOT = pathlib.Path(__file__).parents[2]


def correlated_plan(num_rounds, **changes):
  """Returns a plan with no more rounds than its noise is for."""
  setting = {**SETTING, 'num_rounds': num_rounds, 'min_separation': 4}
  strategy = noise_strategies.blt(num_rounds)
  return privacy.CorrelatedNoisePlan(
    **setting | {'strategy': strategy} | changes
  )


def new_id():
  """Returns the id of an outcome."""
  return secrets.token_hex(16)


def charge(path, rounds, plan=PLAN, caveats=()):
  """Charges rounds to a ledger and closes it."""
  with privacy.PrivacyLedger(path, plan, caveats=caveats) as ledger:
    for each in rounds:
      ledger.charge(each, new_id(), draw=ledger.next_draw(each))


def read_releases(path):
  """Returns what the lines of a ledger say of its releases."""
  lines = [json.loads(line) for line in path.read_text().splitlines()]
  # What two runs of the same rounds do not have in common.
  own = dict.fromkeys(('id', 'time', 'previous'))
  return [line | own for line in lines if line['kind'] == 'release']
