"""Settings for all tests.

TFF computations run in the in-process context, so no test starts a worker.
TensorFlow is imported only by the tests that need it: the budget calculator and
the theory are tested without it too.
"""

import functools
import gc
import importlib.util
import os
import pathlib
import sys
import tempfile

import hypothesis
import pytest

os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
# Ray gives its processes less time to start than a busy machine may need.
os.environ.setdefault('RAY_agent_register_timeout_ms', '300000')
os.environ.setdefault('RAY_worker_register_timeout_seconds', '300')

# The paths of its sockets must be short.
os.environ.setdefault('RAY_TMPDIR', '/tmp')

# A pause of the machine is no error of what is tested.
hypothesis.settings.register_profile('without_deadline', deadline=None)
hypothesis.settings.load_profile('without_deadline')

_NEEDS_TFF = ('aggregators', 'learning', 'runtime', 'programs', 'tasks')


@pytest.hookimpl(hookwrapper=True)
def pytest_collection():
  """Looks for no garbage in modules, which stay."""
  gc.disable()
  yield
  gc.enable()
  gc.freeze()


def pytest_unconfigure():
  """Deletes the context of all tests while TensorFlow is still there."""
  _shared_context.cache_clear()
  if 'tff_clipping.runtime' in sys.modules:
    sys.modules['tff_clipping.runtime'].set_default_context()
  gc.unfreeze()
  gc.collect()


@pytest.fixture(autouse=True, scope='session')
def temporary_folder(tmp_path_factory):
  """Puts what killed programs leave where pytest deletes it some day."""
  tempfile.tempdir = str(tmp_path_factory.mktemp('tmp'))
  os.environ['TMPDIR'] = tempfile.tempdir


@pytest.fixture(scope='session')
def cache_dir(tmp_path_factory):
  """Where runs keep their client stores, which those of one split share."""
  return str(tmp_path_factory.mktemp('cache'))


@pytest.fixture(autouse=True)
def in_process_context(request):
  """Makes the in-process context the default for tests that need TFF."""
  folder = request.path.relative_to(pathlib.Path(__file__).parent).parts[0]
  if folder in _NEEDS_TFF and importlib.util.find_spec('tensorflow_federated'):
    import tensorflow_federated as tff

    tff.framework.set_default_context(_shared_context())


@functools.cache
def _shared_context():
  """Returns the context of all tests: what one compiles, others may run."""
  from tff_clipping import runtime

  return runtime.InProcessContext()
