"""What runs in a worker process of the cluster: shards of clients."""

import functools
import os
import pathlib
from collections.abc import Mapping, Sequence

import numpy as np
import ray
import tensorflow_federated as tff

from tff_clipping.runtime import environment, in_process
from tff_clipping.runtime.in_process import InProcessContext
from tff_clipping.runtime.map_reduce import Accumulator, MapReduceRound


class Worker:
  """A worker; Ray makes an actor of it, which runs one call after the other."""

  def __init__(
    self,
    num_threads: int,
    versions: Mapping[str, str],
    required_paths: Sequence[str],
  ):
    """Raises as `check_node`; Ray does not start the worker again then."""
    node_id = ray.get_runtime_context().get_node_id()
    names = {node['NodeID']: node['NodeName'] for node in ray.nodes()}
    self._name = (
      f'node {names.get(node_id, "unknown")} ({node_id[:8]}, process '
      f'{os.getpid()})'
    )
    check_node(self._name, versions, required_paths)
    self._context = InProcessContext(num_threads=num_threads)
    keep = functools.lru_cache(in_process.MAX_COMPILED)
    self._compiled = keep(self._compile)

  # Ray repeats the call until the worker has been started again.
  @ray.method(max_task_retries=-1)
  def name(self) -> str:
    """Returns the names of the node and of the process."""
    return self._name

  def run(
    self,
    computation: Sequence[ray.ObjectRef],
    broadcast: Sequence[np.ndarray],
    clients: Sequence[Sequence],
    first: int,
    num_clients: int,
  ) -> Accumulator:
    """Returns the sum of a shard; see `InProcessContext.run_shard`."""
    # The reference to the computation is in a list: Ray does not fetch it for
    # each shard then.
    return self._context.run_shard(
      self._compiled(*computation),
      broadcast,
      clients,
      first=first,
      num_clients=num_clients,
    )

  def _compile(self, computation: ray.ObjectRef) -> MapReduceRound:
    compiled = self._context.compile(
      tff.framework.deserialize_computation(ray.get(computation))
    )
    # The program that drives the workers has compiled it too.
    assert isinstance(compiled, MapReduceRound)
    return compiled


def check_node(
  name: str, versions: Mapping[str, str], required_paths: Sequence[str]
) -> None:
  """Raises if a node lacks a path, or a version that the program has."""
  missing = [p for p in required_paths if not pathlib.Path(p).exists()]
  if missing:
    raise RuntimeError(
      f'{name} lacks {", ".join(missing)}. Every node must have the same files '
      'at the same place: share the folder, or copy it there.'
    )
  differences = [
    f'{package} {found} (here {versions[package]})'
    for package, found in environment.versions().items()
    if found != versions[package]
  ]
  if differences:
    raise RuntimeError(
      f'{name} has {", ".join(differences)}: install the same versions on all '
      'nodes.'
    )
