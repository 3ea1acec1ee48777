"""How a run is executed: with what folders, in one process or on a cluster.

It is no part of the experiment: a run may go on on a cluster that was begun in
one process, and the other way round. Only the number of shards, in which the
clients are added up, decides about the last bits of the results. It is kept
with the run, so that a run that was stopped ends with the same model anywhere.
"""

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from tasks.running.run_folder import RunFolder
from tasks.settings.data_folders import DataFolders
from tasks.settings.setting_fields import (
  at_least,
  check_settings,
  one_of,
  positive,
  setting,
)

RUNTIMES = ('in_process', 'ray')
_OF_RAY = (
  'ray_address',
  'num_workers',
  'threads_per_worker',
  'max_client_seconds',
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Execution(DataFolders):
  """How a run is executed; each is a flag of `tasks.train`.

  Raises:
    TypeError: If one is of the wrong kind.
    ValueError: If one is out of range or does not fit the runtime.
  """

  resume: bool = setting(
    'Go on with a run of the same settings in --output_dir.', True
  )
  checkpoints_to_keep: int = setting(
    'How many checkpoints to keep.', 2, check=at_least(1)
  )
  runtime: str = setting(
    'in_process, or ray for several; docs/cluster.md.',
    'in_process',
    check=one_of(*RUNTIMES),
  )
  ray_address: str | None = setting(
    "The 'host:port' of a running Ray cluster's head; else one is started on "
    'this machine.',
    None,
  )
  num_workers: int | None = setting(
    "Ray's worker processes; else one for each CPU.", None, check=at_least(1)
  )
  threads_per_worker: int = setting(
    'Clients at a time in each worker.', 1, check=at_least(1)
  )
  max_client_seconds: float = setting(
    'How long a client may work before its worker is given up.',
    3600.0,
    check=positive,
  )
  num_shards: int | None = setting(
    'The parts in which clients are added up, which decides about the last '
    'bits; else 1, or the number of workers. A run keeps it.',
    None,
    check=at_least(1),
  )

  def __post_init__(self):
    check_settings(self)
    for field in dataclasses.fields(self):
      value = getattr(self, field.name)
      if (
        field.name in _OF_RAY
        and self.runtime != 'ray'
        and value != field.default
      ):
        raise ValueError(
          f'`{field.name}` must be given with `runtime` ray only, found '
          f'{value!r}.'
        )

  @contextlib.contextmanager
  def start(
    self, folder: RunFolder, *, required_paths: Sequence
  ) -> Iterator[dict[str, Any]]:
    """Makes TFF compute as described, until the body ends.

    Args:
      folder: The folder of the run, which may have been begun.
      required_paths: What the machines of a cluster must be able to read.

    Yields:
      What config.json is to hold of it.

    Raises:
      ValueError: If the run has another number of shards.
      ModuleNotFoundError: If Ray is needed and not installed.
      ClusterError: If the cluster cannot be used.
    """
    # TensorFlow takes seconds to import: wrong flags are found before that.
    from tff_clipping import runtime

    num_shards = self._num_shards(folder)
    if self.runtime == 'in_process':
      num_shards = num_shards or 1
      runtime.set_default_context(num_shards=num_shards)
      yield dict(runtime=self.runtime, num_shards=num_shards)
      return
    with runtime.set_ray_context(
      address=self.ray_address,
      num_workers=self.num_workers,
      threads_per_worker=self.threads_per_worker,
      num_shards=num_shards,
      max_client_seconds=self.max_client_seconds,
      required_paths=required_paths,
    ) as context:
      yield dict(runtime=self.runtime, num_shards=context.num_shards)

  def _num_shards(self, folder: RunFolder) -> int | None:
    """Returns the number of shards that is given, or that the run has."""
    saved = folder.read_description()
    if saved is None:
      return self.num_shards
    # A run of before there were shards has one.
    found = saved.get('execution', {}).get('num_shards', 1)
    if self.num_shards not in (None, found):
      raise ValueError(
        f'`num_shards` must be that of the run in {folder.path}, {found}, or '
        'its last bits would change, found '
        f'{self.num_shards}.'
      )
    return found
