"""What the tests of ledgers share."""

import pytest


@pytest.fixture(name='path')
def _path(tmp_path):
  """Returns where a ledger is to be."""
  return tmp_path / 'ledger.jsonl'
