"""Settings for all tests.

TFF computations run in the in-process context, so no test starts a worker.
TensorFlow is imported only by the tests that need it: the budget calculator and
the theory are tested without it too.
"""

import importlib.util
import os

import pytest

os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')

_NEEDS_TFF = ('aggregators', 'learning', 'runtime', 'programs', 'tasks')


@pytest.fixture(autouse=True)
def in_process_context(request):
  """Makes the in-process context the default for tests that need TFF."""
  folder = request.path.parent.name
  if folder in _NEEDS_TFF and importlib.util.find_spec('tensorflow_federated'):
    from tff_clipping import runtime

    runtime.set_default_context()
