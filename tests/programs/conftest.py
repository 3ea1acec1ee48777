"""What the tests of programs share."""

import pytest

from tests.programs import counted_rounds


@pytest.fixture(name='run')
def _run(tmp_path):
  """A run of rounds that count how often they ran."""
  run = counted_rounds.Run(tmp_path / 'run')
  yield run
  run.kill()
