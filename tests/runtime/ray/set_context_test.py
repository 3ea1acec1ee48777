"""Tests of what is refused before a cluster is touched."""

import importlib.util
import socket

import pytest

from tff_clipping import runtime


def test_without_ray_the_extra_is_named(monkeypatch):
  find_spec = importlib.util.find_spec
  monkeypatch.setattr(
    importlib.util,
    'find_spec',
    lambda name: None if name == 'ray' else find_spec(name),
  )
  with pytest.raises(ModuleNotFoundError) as error:
    runtime.set_ray_context()
  assert "pip install '.[cluster]'" in str(error.value)


def test_nobody_at_the_address_is_said_at_once():
  with socket.socket() as unused:
    unused.bind(('127.0.0.1', 0))
    address = f'127.0.0.1:{unused.getsockname()[1]}'
    with pytest.raises(runtime.ClusterError, match='ray start --head') as error:
      runtime.set_ray_context(address=address)
  assert address in str(error.value)


_COUNTS = ('num_workers', 'threads_per_worker', 'num_shards')


@pytest.mark.parametrize(
  ('arguments', 'error', 'message'),
  [
    *(
      ({'address': address}, ValueError, '`address` must be')
      for address in ('somewhere', '10.0.0.1', 'ray://10.0.0.1:10001', ':1', '')
    ),
    *(
      ({name: value}, error, f'`{name}` must be')
      for name in _COUNTS
      for value, error in ((0, ValueError), (1.5, TypeError), (True, TypeError))
    ),
    *(
      ({'max_client_seconds': value}, error, '`max_client_seconds` must be')
      for value, error in (
        (0, ValueError),
        (float('nan'), ValueError),
        ('1', TypeError),
      )
    ),
    ({'num_gpus': -1}, ValueError, '`num_gpus` must'),
    (
      {'required_paths': ['store']},
      ValueError,
      '`required_paths` must be absolute',
    ),
  ],
)
def test_bad_arguments_are_refused(arguments, error, message):
  with pytest.raises(error, match=message):
    runtime.set_ray_context(**arguments)
