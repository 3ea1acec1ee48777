"""Rounds on a cluster of two nodes, which are raylets of this machine.

  python -m tests.runtime.ray.nodes FOLDER

Prints what has happened as JSON, a line each. A program of its own, since Ray
is told when it is imported to stay on the loopback interface.
"""

import contextlib
import json
import logging
import os
import pathlib
import sys
import warnings
from collections.abc import Iterator

# Read when Ray is imported.
os.environ['RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER'] = '0'
os.environ['RAY_USAGE_STATS_ENABLED'] = '0'
warnings.simplefilter('ignore')

# ruff: noqa: E402
import ray
from ray import cluster_utils

from tests import processes
from tests.runtime.ray import rounds
from tff_clipping import runtime


def main(folder_name: str) -> None:
  """Starts two nodes, one of which lacks a path, and kills both in turn."""
  logging.getLogger('tff_clipping').addHandler(_Printer())
  folder = pathlib.Path(folder_name)
  (folder / 'first' / 'store').mkdir(parents=True)
  for name in ('second', 'clients'):
    (folder / name).mkdir()
  comp = rounds.build_slow_sum(folder / 'clients', seconds=0.2)
  cluster = cluster_utils.Cluster()
  try:
    # The head has no room for workers. The program is connected to it alone:
    # Ray ends a program whose own node is lost.
    _add_node(cluster, 'head', num_cpus=0)
    ray.init(
      address=cluster.address,
      log_to_driver=False,
      logging_level=logging.CRITICAL,
    )
    nodes = {}
    for name in ('first', 'second'):
      # The nodes are of one machine: what differs is the folder they run in.
      os.chdir(folder / name)
      nodes[name] = _add_node(cluster, name, num_cpus=1)
    try:
      runtime.set_ray_context(required_paths=['/proc/self/cwd/store', '/'])
    except runtime.ClusterError as e:
      _print(lacking=str(e))
    runtime.set_default_context(num_shards=2)
    _print(expected=float(comp(rounds.FLOATS)))
    with runtime.set_ray_context(required_paths=['/proc/self/cwd']):
      with _killed_in_mid_round(nodes['second'], folder / 'clients'):
        _print(result=float(comp(rounds.FLOATS)))
      with _killed_in_mid_round(nodes['first'], folder / 'clients'):
        try:
          comp(rounds.FLOATS)
        except runtime.ClusterError as e:
          _print(error=str(e))
  finally:
    ray.shutdown()
    cluster.shutdown()


class _Printer(logging.Handler):
  """Prints warnings as the other things."""

  def emit(self, record: logging.LogRecord) -> None:
    _print(warning=record.getMessage())


def _print(**values) -> None:
  print(json.dumps(values), flush=True)


def _add_node(cluster: cluster_utils.Cluster, name: str, **resources):
  node = cluster.add_node(
    wait=False,
    node_name=name,
    node_ip_address='127.0.0.1',
    include_dashboard=False,
    **resources,
  )
  # Longer than Ray itself would.
  cluster._wait_for_node(node, timeout=300)
  return node


@contextlib.contextmanager
def _killed_in_mid_round(node, folder: pathlib.Path) -> Iterator[None]:
  """Kills a node when a few clients have started in the body."""
  pid = node.all_processes['raylet'][0].process.pid
  with rounds.when_clients_work(
    # With its workers: what they do after its end may still arrive, or not.
    folder,
    lambda: processes.kill_with_descendants(pid),
  ):
    yield


if __name__ == '__main__':
  main(*sys.argv[1:])
