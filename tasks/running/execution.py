"""Where the rounds are computed: in this process, or on a cluster.

It is no part of the experiment: a run may go on on a cluster that was begun in
one process, and the other way round. Only the number of shards, in which the
clients are added up, decides about the last bits of the results. A run keeps
it, so that a run that was stopped ends with the same model anywhere.
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tasks.config import Config
from tff_clipping import runtime


@contextlib.contextmanager
def start(
  config: Config, saved: Mapping[str, Any] | None, required_paths: Sequence[Any]
) -> Iterator[dict[str, Any]]:
  """Makes TFF compute as the settings say, until the body ends.

  Args:
    config: The settings.
    saved: The config.json of a run that goes on; `None` for a new one.
    required_paths: What the machines of a cluster must be able to read.

  Yields:
    What config.json is to hold of it.

  Raises:
    ValueError: If there is no such runtime.
    ModuleNotFoundError: If Ray is needed and not installed.
    ClusterError: If the cluster cannot be used.
  """
  num_shards = ((saved or {}).get('execution') or {}).get('num_shards')
  if config.runtime == 'in_process':
    num_shards = num_shards or 1
    runtime.set_default_context(num_shards=num_shards)
    yield dict(runtime='in_process', num_shards=num_shards)
    return
  with runtime.set_ray_context(
    address=None if config.runtime == 'ray' else config.runtime,
    num_workers=config.num_workers,
    num_shards=num_shards,
    required_paths=required_paths,
  ) as context:
    yield dict(runtime='ray', num_shards=context.num_shards)
