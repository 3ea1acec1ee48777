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
  with pytest.raises(ModuleNotFoundError, match=r"pip install '.\[cluster\]'"):
    runtime.set_ray_context()


def test_nobody_at_the_address_is_said_at_once():
  with socket.socket() as unused:
    unused.bind(('127.0.0.1', 0))
    address = f'127.0.0.1:{unused.getsockname()[1]}'
    message = f'{address} .*ray start --head'
    with pytest.raises(runtime.ClusterError, match=message):
      runtime.set_ray_context(address=address)


@pytest.mark.parametrize(
  ('name', 'values'),
  [
    ('address', ['somewhere', '10.0.0.1', 'ray://10.0.0.1:10001', ':1', '']),
    ('num_workers', [0, 1.5, True]),
    ('threads_per_worker', [0, 1.5, True]),
    ('num_shards', [0, 1.5, True]),
    ('max_client_seconds', [0, float('nan'), '1']),
    ('num_gpus', [-1]),
    # Not an absolute path.
    ('required_paths', [['store']]),
  ],
)
def test_bad_arguments_are_refused(name, values):
  for value in values:
    with pytest.raises((TypeError, ValueError), match=f'`{name}` must be'):
      runtime.set_ray_context(**{name: value})
