"""What the tests of learning share."""

import pytest

from tests.learning import linear_models


@pytest.fixture(name='store', scope='session')
def _store(tmp_path_factory):
  """Returns the store of the linear regression's clients."""
  return linear_models.write_store(tmp_path_factory.mktemp('store'))
