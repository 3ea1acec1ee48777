"""Ledgers for tests."""

import json
import pathlib

from tff_clipping import privacy
from tff_clipping.privacy.ledger import ledger_contents

SETTING = {
  'num_clients': 1920,
  'clients_per_round': 80,
  'num_rounds': 20,
  'target_delta': 1e-5,
  'noise_multiplier': 1.5,
}

PLAN = privacy.PrivacyPlan(**SETTING)

DIGEST, OTHER_DIGEST = 64 * '0', 64 * 'f'

ROOT = pathlib.Path(__file__).parents[2]


def charge(path, rounds, plan=PLAN):
  """Charges rounds to a ledger and closes it."""
  with privacy.PrivacyLedger(path, plan) as ledger:
    for each in rounds:
      ledger.charge(each, DIGEST)


def read_releases(path):
  """Returns what the lines of a ledger say of its releases."""
  lines = [json.loads(line) for line in path.read_text().splitlines()]
  # Each has the digest of the one before, and the first the id of the run.
  return [line | {'previous': None} for line in ledger_contents.releases(lines)]
