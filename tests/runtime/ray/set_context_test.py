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


@pytest.mark.parametrize(
  'address', ['somewhere', '10.0.0.1', 'ray://10.0.0.1:10001', ':6379', '']
)
def test_an_address_that_is_none_is_refused(address):
  with pytest.raises(ValueError, match='`address` must be'):
    runtime.set_ray_context(address=address)


def test_nobody_at_the_address_is_said_at_once():
  with socket.socket() as unused:
    unused.bind(('127.0.0.1', 0))
    address = f'127.0.0.1:{unused.getsockname()[1]}'
    with pytest.raises(runtime.ClusterError, match='ray start --head') as error:
      runtime.set_ray_context(address=address)
  assert address in str(error.value)


@pytest.mark.parametrize(
  'name', ['num_workers', 'threads_per_worker', 'num_shards']
)
@pytest.mark.parametrize(
  ('value', 'error'), [(0, ValueError), (1.5, TypeError), (True, TypeError)]
)
def test_bad_counts_are_refused(name, value, error):
  with pytest.raises(error, match=f'`{name}`'):
    runtime.set_ray_context(**{name: value})


@pytest.mark.parametrize(
  ('value', 'error'),
  [(0, ValueError), (float('nan'), ValueError), ('1', TypeError)],
)
def test_a_bad_limit_of_a_client_is_refused(value, error):
  with pytest.raises(error, match='`max_client_seconds`'):
    runtime.set_ray_context(max_client_seconds=value)


def test_a_relative_path_is_refused():
  with pytest.raises(ValueError, match='`required_paths` must be absolute'):
    runtime.set_ray_context(required_paths=['store'])
