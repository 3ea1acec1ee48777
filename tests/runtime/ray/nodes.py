"""Rounds on a cluster of several nodes, which are raylets of this machine.

  python -m tests.runtime.ray.nodes SCENARIO FOLDER

Prints what has happened as JSON, a line each. A program of its own, since Ray
is told when it is imported to stay on the loopback interface.
"""

import contextlib
import json
import logging
import os
import pathlib
import sys
import threading
import warnings
from collections.abc import Iterator

# Read when Ray is imported.
os.environ['RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER'] = '0'
os.environ['RAY_USAGE_STATS_ENABLED'] = '0'
warnings.simplefilter('ignore')

# ruff: noqa: E402
import numpy as np
import ray
import tensorflow as tf
import tensorflow_federated as tff
from ray import cluster_utils

from tests import processes
from tff_clipping import runtime

_VALUES = [
  np.float32(x) for x in np.random.default_rng(0).normal(size=16) * 1e3
]


def main(scenario: str, folder: str) -> None:
  """Runs a scenario."""
  logging.getLogger('tff_clipping').addHandler(_Printer())
  cluster = cluster_utils.Cluster()
  # The head has no room for workers, so that only the others matter.
  _add_node(cluster, 'head', num_cpus=0)
  try:
    _SCENARIOS[scenario](cluster, pathlib.Path(folder))
  finally:
    ray.shutdown()
    cluster.shutdown()


def lose_nodes(cluster: cluster_utils.Cluster, folder: pathlib.Path) -> None:
  """One node is lost in mid-round, and in another round the last one."""
  _connect_to_head(cluster)
  first = _add_node(cluster, 'first', num_cpus=1)
  second = _add_node(cluster, 'second', num_cpus=1)
  comp = _slow_sum(folder)
  runtime.set_default_context(num_shards=2)
  _print(expected=float(comp(_VALUES)))
  with runtime.set_ray_context() as context:
    _print(nodes=[node for node, _ in context.workers])
    with _killed_in_mid_round(second, folder):
      result = float(comp(_VALUES))
    _print(result=result, num_repeated=context.last_round.num_repeated)
    with _killed_in_mid_round(first, folder):
      try:
        comp(_VALUES)
      except runtime.ClusterError as e:
        _print(error=str(e))


def rejoin(cluster: cluster_utils.Cluster, folder: pathlib.Path) -> None:
  """A node is lost, and another one comes later."""
  _connect_to_head(cluster)
  first = _add_node(cluster, 'first', num_cpus=1)
  _add_node(cluster, 'second', num_cpus=1)
  comp = _slow_sum(folder)
  runtime.set_default_context(num_shards=2)
  _print(expected=float(comp(_VALUES)))
  with runtime.set_ray_context() as context:
    with _killed_in_mid_round(first, folder):
      _print(result=float(comp(_VALUES)))
    third = _add_node(cluster, 'third', num_cpus=1)
    for _ in range(100):
      result = float(comp(_VALUES))
      if any('third' in node for node, _ in context.workers):
        break
    _print(result=result, nodes=[node for node, _ in context.workers])
    del third


def lack_path(cluster: cluster_utils.Cluster, folder: pathlib.Path) -> None:
  """A path is there on one node and missing on the other."""
  # The nodes are of one machine: what differs is the folder they run in.
  (folder / 'with' / 'store').mkdir(parents=True)
  (folder / 'without').mkdir()
  for name in ('with', 'without'):
    os.chdir(folder / name)
    _add_node(cluster, name, num_cpus=1)
  for paths in (['/proc/self/cwd/store', '/'], ['/proc/self/cwd']):
    try:
      runtime.set_ray_context(
        address=cluster.address, required_paths=paths
      ).close()
      _print(error=None)
    except runtime.ClusterError as e:
      _print(error=str(e))


def use_gpus(cluster: cluster_utils.Cluster, folder: pathlib.Path) -> None:
  """One node says that it has GPUs: they are asked for, and only there."""
  del folder
  _add_node(cluster, 'gpus', num_cpus=4, num_gpus=2)
  _add_node(cluster, 'cpus', num_cpus=1)
  with runtime.set_ray_context(address=cluster.address) as context:
    _print(
      nodes=[node for node, _ in context.workers],
      gpus_left=ray.available_resources().get('GPU', 0.0),
    )
  try:
    runtime.set_ray_context(address=cluster.address, num_workers=4)
  except runtime.ClusterError as e:
    _print(error=str(e))


_SCENARIOS = {f.__name__: f for f in (lose_nodes, rejoin, lack_path, use_gpus)}


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


def _connect_to_head(cluster: cluster_utils.Cluster) -> None:
  """Connects while the head is the only node, to outlive the loss of others.

  Ray ends a program whose own node is lost, and takes any of the nodes that
  have the program's IP address for that one.
  """
  ray.init(
    address=cluster.address, log_to_driver=False, logging_level=logging.CRITICAL
  )


def _slow_sum(folder: pathlib.Path):
  """Returns a sum whose clients take 0.2 seconds, and leave a file each."""

  @tff.tensorflow.computation(np.float32)
  def work(x):
    name = tf.strings.join([str(folder), '/', tf.strings.as_string(x)])
    start = tf.timestamp()
    with tf.control_dependencies([tf.io.write_file(name, '')]):
      end = tf.while_loop(
        lambda now: now < start + 0.2, lambda now: tf.timestamp(), [start]
      )[0]
    return x + 0 * tf.cast(end - start, tf.float32)

  @tff.federated_computation(tff.FederatedType(np.float32, tff.CLIENTS))
  def comp(values):
    return tff.federated_sum(tff.federated_map(work, values))

  return comp


@contextlib.contextmanager
def _killed_in_mid_round(node, folder: pathlib.Path) -> Iterator[None]:
  """Kills a node when a few clients have started in the body."""
  for path in folder.iterdir():
    path.unlink()
  pid = node.all_processes['raylet'][0].process.pid
  is_over = threading.Event()

  def wait():
    while len(list(folder.iterdir())) < 4:
      if is_over.wait(0.01):
        return
    # With its workers: what they do after its end may still arrive, or not.
    processes.kill_with_descendants(pid)

  thread = threading.Thread(target=wait)
  thread.start()
  try:
    yield
  finally:
    is_over.set()
    thread.join()


if __name__ == '__main__':
  main(*sys.argv[1:])
