"""What runs in a worker process of the cluster: shards of clients."""

import functools
import os
import pathlib
from collections.abc import Mapping, Sequence

import numpy as np
import ray
import tensorflow_federated as tff

from tff_clipping.runtime import environment
from tff_clipping.runtime.in_process import ClientError, InProcessContext
from tff_clipping.runtime.map_reduce import Accumulator, MapReduceRound

_MAX_COMPUTATIONS = 64


class Worker:
  """A worker; Ray makes an actor of it, which runs one call after the other."""

  def __init__(self, num_threads: int):
    """Initializes a worker in which so many clients work at a time."""
    self._context = InProcessContext(num_threads=num_threads)
    self._compiled = functools.lru_cache(_MAX_COMPUTATIONS)(self._compile)

  # Ray repeats the call until the worker has been started again.
  @ray.method(max_task_retries=-1)
  def greet(
    self, versions: Mapping[str, str], required_paths: Sequence[str]
  ) -> tuple[str, str]:
    """Returns the node and the process, and why they cannot be used, if so.

    Args:
      versions: Those of the program that drives the workers.
      required_paths: What each node must have.
    """
    node_id = ray.get_runtime_context().get_node_id()
    names = {node['NodeID']: node['NodeName'] for node in ray.nodes()}
    return (
      f'node {names.get(node_id, "unknown")} ({node_id[:8]}, process '
      f'{os.getpid()})',
      find_fault(versions, required_paths),
    )

  # A shard of a lost worker is run again by whichever worker is idle.
  @ray.method(max_task_retries=0)
  def run(
    self,
    computation: Sequence[ray.ObjectRef],
    broadcast: Sequence[np.ndarray],
    clients: Sequence[Sequence],
    first: int,
    num_clients: int,
  ) -> Accumulator | str:
    """Runs a shard, and returns its sum, or the message of a client's error.

    Args:
      computation: The reference to the serialized computation, in a list, so
        that Ray does not fetch it for each shard.
      broadcast: What the server sends to all clients.
      clients: The leaves of the clients of the shard.
      first: The position of the first client among all clients.
      num_clients: The number of all clients.
    """
    try:
      return self._context.run_shard(
        self._compiled(*computation),
        broadcast,
        clients,
        first=first,
        num_clients=num_clients,
      )
    except ClientError as e:
      # Not raised: Ray would put its own traceback around it.
      return str(e)

  def _compile(self, computation: ray.ObjectRef) -> MapReduceRound:
    compiled = self._context.compile(
      tff.framework.deserialize_computation(ray.get(computation))
    )
    # The program that drives the workers has compiled it too.
    assert isinstance(compiled, MapReduceRound)
    return compiled


def find_fault(
  versions: Mapping[str, str], required_paths: Sequence[str]
) -> str:
  """Returns why this process cannot be a worker; empty if it can.

  Args:
    versions: The versions that the packages must have.
    required_paths: What must be there.
  """
  missing = [p for p in required_paths if not pathlib.Path(p).exists()]
  if missing:
    return (
      f'lacks {", ".join(missing)}. Every node must have the same files at the '
      'same place: share the folder, or copy it there.'
    )
  differences = [
    f'{name} {found} (here {versions[name]})'
    for name, found in environment.versions().items()
    if found != versions[name]
  ]
  if differences:
    return (
      f'has {", ".join(differences)}: install the same versions on all nodes.'
    )
  return ''
