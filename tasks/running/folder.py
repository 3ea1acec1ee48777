"""The folder of a run: whose it is, and that only one program writes to it."""

import contextlib
import dataclasses
import fcntl
import io
import json
import os
import pathlib
import secrets
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from tasks import named_functions
from tasks.config import Config
from tasks.data.partitions import PartitionConfig
from tff_clipping import atomic_files, gone
from tff_clipping.privacy.ledger import ledger_contents

_SEED_BITS = {'sampling_seed': 128, 'audit_seed': 63}


class RunFolder:
  """The files of one run, `path` its folder."""

  def __init__(self, path: str | os.PathLike):
    self.path = pathlib.Path(path)
    self.config = self.path / 'config.json'  # Settings, data and machine.
    self.metrics = self.path / 'metrics.csv'  # A line for each round.
    self.privacy = self.path / 'privacy.json'  # The plan, and its caveats.
    self.ledger = self.path / 'ledger.jsonl'  # What was charged.
    self.result = self.path / 'result.json'  # How the run ended.
    self.model = self.path / 'model.weights.h5'
    # Folders.
    self.updates = self.path / 'updates'  # Figures on single updates.
    self.audit = self.path / 'audit'
    self.checkpoints = self.path / 'checkpoints'
    self.client_states = self.path / 'client_states'  # Kept between rounds.
    self.tensorboard = self.path / 'tensorboard'

  @contextlib.contextmanager
  def open(self, config: Config) -> Iterator[None]:
    """Locks the folder for one program, and checks that it is of one run.

    Raises:
      ValueError: If the folder holds something else, another program has
        it open, or it cannot be written.
    """
    with contextlib.ExitStack() as stack:
      try:
        self.path.mkdir(parents=True, exist_ok=True)
        self.check(config)
        stack.enter_context(locked(self.path))
      except OSError as e:
        raise ValueError(
          '`output_dir` must be a folder that can be written, found '
          f'{str(self.path)!r} ({e.strerror}).'
        ) from e
      # Again, now that nobody else writes to it.
      self.check(config)
      yield

  def check(self, config: Config) -> None:
    """Raises `ValueError` unless the folder is empty, or of this run.

    A run that began with c from another one is the same with c from anywhere.
    Where a function of a user's own makes the task, it may choose the settings
    of the split that are not given.
    """
    found = [e.name for e in self.path.iterdir() if not e.name.startswith('.')]
    if found and self.config.name not in found:
      raise ValueError(
        '`output_dir` must be empty or hold a run, found '
        f'{", ".join(sorted(found)[:3])} in {self.path}.'
      )
    if not found:
      return
    saved = self.read_config()
    if (
      self.read_description().get('clipping_norm_source') is not None
      and config.clipping_norm is None
      and config.clipping_norm_from is not None
    ):
      config = dataclasses.replace(config, clipping_norm=saved.clipping_norm)
    if named_functions.is_own(config.task):
      chosen = {
        name: getattr(saved, name)
        for name, default in PartitionConfig('natural').settings.items()
        if getattr(config, name) == default
      }
      config = dataclasses.replace(config, **chosen)
    differences = config.differences(saved.to_json())
    if differences:
      raise ValueError(
        '`output_dir` must be empty or hold this same run, found another one '
        f'in {self.path}: {"; ".join(differences)}.'
      )

  def read_description(self) -> dict[str, Any] | None:
    """Returns the contents of config.json; `None` if there is none.

    Its `experiment` has the settings as they were asked for, without those that
    nobody had and this version has no more.

    Raises:
      ValueError: If it cannot be read, or its run is of a kind that this
        version has no more.
    """
    if not self.config.exists():
      return None
    try:
      saved = json.loads(self.config.read_text())
      saved['experiment'] = gone.read(saved['experiment'])
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as e:
      raise ValueError(
        f'{self.config} must be the config.json of a run, found one that '
        f'cannot be read: {e}'
      ) from e
    return saved

  def read_config(self) -> Config:
    """Returns the settings of the run in it, if it is of this version.

    Raises:
      ValueError: If there is none, or it is of an earlier version.
    """
    saved = self.read_description()
    if saved is None:
      raise ValueError(
        f'`run_dir` must be the folder of a run, found {self.path} without '
        f'{self.config.name}.'
      )
    # Of an earlier version; a seed in it may be secret, and is not shown.
    if not {f.name for f in dataclasses.fields(Config)} >= {
      *saved['experiment']
    }:
      raise ValueError(
        f'`output_dir` must hold a run of this version, found one of an '
        f'earlier version in {self.path}, which does not go on.'
      )
    return Config(**saved['experiment'])

  def read_metrics(self) -> pd.DataFrame:
    """Returns metrics.csv, without a last line that a crash has cut short.

    Raises:
      OSError: If there is none.
      ValueError: If it is no table.
    """
    data = self.metrics.read_bytes()
    return pd.read_csv(io.BytesIO(data[: data.rfind(b'\n') + 1]))

  def draw_seeds(self, names: Sequence[str]) -> dict[str, int]:
    """Returns the secret seeds that the run has drawn, or new ones.

    Where nothing else of a run is there, no release has come of the seeds in
    config.json: the file may be a copy of another run's, with which this one
    must not share its cohorts.
    """
    drawn = {}
    if (
      self.metrics.exists()
      or any(self.checkpoints.glob('*.state'))
      or self._has_charged()
    ):
      drawn = (self.read_description() or {}).get('drawn_seeds', {})
    return {
      name: drawn.get(name, secrets.randbits(_SEED_BITS[name]))
      for name in names
    }

  def check_ledger(self) -> None:
    """Raises `ValueError` if rounds were run, and their ledger is lost.

    A private run would begin again at an epsilon of 0.
    """
    outcomes = self.checkpoints.glob('*.state')
    left = [p for p in (self.metrics, self.result, *outcomes) if p.exists()]
    if self.ledger.exists():
      # Before the first charge they have their heading and round 0.
      has_rounds = self.metrics.exists() and (
        self.metrics.read_bytes().count(b'\n') > 2
      )
      left = [self.metrics] if has_rounds and not self._has_charged() else []
    if left:
      raise ValueError(
        f'`output_dir` must hold the ledger of its run, found {left[0].name} '
        f'and no release in {self.ledger.name} in {self.path}.'
      )

  def _has_charged(self) -> bool:
    """Returns whether there is a ledger, but for one without a release."""
    try:
      return ledger_contents.read_ledger(self.ledger).num_releases > 0
    except FileNotFoundError:
      return False
    except (OSError, ValueError):
      return True

  def check_unchanged(self, description: Mapping[str, Any]) -> None:
    """Raises `ValueError` if the run had other data, or another model.

    Settings name both; what a name of a user's own stands for may change.
    """
    saved = self.read_description() or {}
    for section, key, what in (
      ('task', 'digest', 'the SHA-256 of the data'),
      ('model', 'num_parameters', 'the number of parameters of the model'),
    ):
      before = saved.get(section, {}).get(key)
      now = description[section][key]
      if before is not None and before != now:
        raise ValueError(
          f'`output_dir` must be empty or hold this same run, found another '
          f'one in {self.path}: {what} changed from {before} to {now}.'
        )

  def write_json(
    self,
    path: pathlib.Path,
    content: Mapping[str, Any],
    *,
    is_secret: bool = False,
  ) -> None:
    """Writes a file whole or not at all; a secret one for its owner alone."""
    with atomic_files.replacing(path, is_secret=is_secret) as new:
      new.write_text(json.dumps(content, indent=2) + '\n')


@contextlib.contextmanager
def locked(folder: pathlib.Path) -> Iterator[None]:
  """Holds the lock of a folder, which one program at a time can have.

  Raises:
    ValueError: If another program has it, or the disk has no locks.
    OSError: If the folder cannot be written.
  """
  with open(folder / '.lock', 'w') as lock:
    try:
      fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as e:
      raise ValueError(
        '`output_dir` must be used by one program at a time, on a disk that '
        f'has file locks, found {folder} ({e.strerror}).'
      ) from e
    yield
