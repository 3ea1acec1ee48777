"""The folder of a run: whose it is, and that only one program writes to it."""

import contextlib
import dataclasses
import errno
import fcntl
import io
import json
import os
import pathlib
import secrets
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tasks.algorithms.experiment import ExperimentConfig
from tff_clipping import atomic_files, gone

# What config.json has for the source of a clipping norm that is no figure of
# the clients' data.
GIVEN = 'given'
_SEED_BITS = {'sampling_seed': 128, 'audit_seed': 63}


class RunFolderError(ValueError):
  """The folder cannot be used for this run."""


class RunFolder:
  """The files of one run.

  Attributes:
    path: The folder.
    config: The settings, the data and the machine; see `read_description`.
    metrics: A line for each round.
    privacy: What the plan promises, and what takes that away.
    ledger: What was charged.
    result: How the run ended.
    model: The trained model.
    updates: The folder of figures on single updates.
    audit: The folder of an audit.
    checkpoints: The folder of checkpoints.
    client_states: The folder of what clients keep from round to round.
    tensorboard: The folder of TensorBoard's logs.
  """

  def __init__(self, path: str | os.PathLike):
    self.path = pathlib.Path(path)
    self.config = self.path / 'config.json'
    self.metrics = self.path / 'metrics.csv'
    self.privacy = self.path / 'privacy.json'
    self.ledger = self.path / 'ledger.jsonl'
    self.result = self.path / 'result.json'
    self.model = self.path / 'model.weights.h5'
    self.updates = self.path / 'updates'
    self.audit = self.path / 'audit'
    self.checkpoints = self.path / 'checkpoints'
    self.client_states = self.path / 'client_states'
    self.tensorboard = self.path / 'tensorboard'

  @contextlib.contextmanager
  def open(self, config: ExperimentConfig, *, resume: bool) -> Iterator[None]:
    """Claims the folder for one program and one configuration.

    Args:
      config: What the run is asked to do.
      resume: Whether to go on with a run of the same configuration.

    Raises:
      RunFolderError: If the folder holds something else, another program has
        it open, or it cannot be written.
    """
    made = self._missing_folders()
    self._make()
    with contextlib.ExitStack() as stack:
      try:
        self._check_contents(config, resume=resume)
        stack.enter_context(locked(self.path))
      except OSError as e:
        raise self._unwritable(e) from e
      stack.callback(self._remove_if_bare, made)
      # Again, now that nobody else can change it.
      self._check_contents(config, resume=resume)
      yield

  @contextlib.contextmanager
  def temporary_files(self) -> Iterator[None]:
    """Keeps Python's temporary files in a folder of the run, until the end.

    TensorFlow writes a file for each function that it compiles, and a program
    that is killed leaves them. Here the next one finds and deletes them. Only
    whoever has the folder open may ask for it.
    """
    folder, before = self.path / '.tmp', tempfile.tempdir
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700)
    tempfile.tempdir = str(folder.absolute())
    try:
      yield
    finally:
      tempfile.tempdir = before
      shutil.rmtree(folder, ignore_errors=True)

  def check(self, config: ExperimentConfig, *, resume: bool) -> None:
    """Raises what `open` would raise, and leaves nothing behind.

    That another program has the folder open, `open` alone finds.

    Args:
      config: What the run is asked to do.
      resume: Whether to go on with a run of the same configuration.

    Raises:
      RunFolderError: If the folder holds something else, or cannot be written.
    """
    made = self._missing_folders()
    try:
      self._make()
      self._check_contents(config, resume=resume)
    finally:
      _remove_empty(made)

  def read_config(self) -> ExperimentConfig:
    """Returns the settings of the run in the folder.

    Raises:
      RunFolderError: If there is none.
    """
    saved = self.read_description()
    try:
      if saved is None:
        raise FileNotFoundError(f'there is no {self.config.name}')
      return ExperimentConfig.from_json(saved['experiment'])
    except (OSError, ValueError, KeyError, TypeError) as e:
      raise RunFolderError(
        f'`run_dir` must be the folder of a run, found {self.path}: {e}'
      ) from e

  def kept_settings(self, config: ExperimentConfig) -> ExperimentConfig:
    """Returns the settings with the numbers of the run in the folder, if any.

    Args:
      config: What the run is asked to do, of which `check` finds no differences
        to the run. The last digits of a clipping norm that comes from a run may
        differ all the same.

    Raises:
      RunFolderError: If the run's config.json cannot be read.
    """
    saved = (self.read_description() or {'experiment': {}})['experiment']
    numbers = {
      field.name: saved[field.name]
      for field in dataclasses.fields(config)
      if isinstance(saved.get(field.name), float)
    }
    return dataclasses.replace(config, **numbers)

  def read_description(self) -> dict[str, Any] | None:
    """Returns the contents of config.json; `None` if there is none.

    Returns:
      `experiment`, the settings as they were asked for, without those that this
      version has no more, and whatever else the run wrote there.

    Raises:
      RunFolderError: If it cannot be read, or its run is of a kind that this
        version has no more.
    """
    if not self.config.exists():
      return None
    try:
      saved = json.loads(self.config.read_text())
      if not isinstance(saved['experiment'], dict):
        raise TypeError('`experiment` must be an object')
      saved['experiment'] = gone.read(saved['experiment'])
    except (OSError, ValueError, KeyError, TypeError) as e:
      raise RunFolderError(
        f'{self.config} must be the config.json of a run, found one that '
        f'cannot be read: {e}'
      ) from e
    return saved

  def read_metrics(self) -> Any:
    """Returns metrics.csv, without a last line that a crash has cut short.

    Returns:
      A pandas data frame.

    Raises:
      OSError: If there is none.
      ValueError: If it is no table.
    """
    import pandas as pd  # Takes long, and few commands come here.

    data = self.metrics.read_bytes()
    return pd.read_csv(io.BytesIO(data[: data.rfind(b'\n') + 1]))

  def clipping_norm_source(self) -> str | None:
    """From what data of the clients the run has its clipping norm.

    Returns:
      `None` if it was given, or there is no run yet.

    Raises:
      RunFolderError: If the run's config.json cannot be read.
    """
    source = (self.read_description() or {}).get('clipping_norm_source')
    return None if source == GIVEN else source

  def check_unchanged(self, description: Mapping[str, Any]) -> None:
    """Raises if the run in the folder had other data, or another model.

    Settings name both; what a name of a user's own stands for may change.

    Args:
      description: What config.json is to hold.

    Raises:
      RunFolderError: If it is another run. Nothing has been written.
    """
    saved = self.read_description() or {}
    drawn = self._drawn_seeds(saved) or description['drawn_seeds']
    if drawn != description['drawn_seeds']:
      raise RunFolderError(
        '`output_dir` must be used by one program at a time, found that '
        f'another one began a run in {self.path} meanwhile: the same command '
        'goes on with it.'
      )
    for section, key, what in (
      ('task', 'digest', 'the SHA-256 of the data'),
      ('model', 'num_parameters', 'the number of parameters of the model'),
    ):
      before = saved.get(section, {}).get(key)
      now = description[section][key]
      if before is not None and before != now:
        raise RunFolderError(
          f'`output_dir` must be empty or hold this same run, found another '
          f'one in {self.path}: {what} changed from {before} to {now}.'
          f'{self._say_if_empty()}'
        )

  def draw_seeds(self, config: ExperimentConfig) -> dict[str, int]:
    """Returns the secret seeds that the run has drawn, or new ones.

    Args:
      config: What the run is asked to do.

    Returns:
      By name, those that it was not given, for `drawn_seeds` of config.json.

    Raises:
      RunFolderError: If the run's config.json cannot be read.
    """
    drawn = self._drawn_seeds(self.read_description() or {})
    return {
      name: drawn.get(name, secrets.randbits(_SEED_BITS[name]))
      for name in config.seeds_to_draw
    }

  def _drawn_seeds(self, saved: Mapping[str, Any]) -> Mapping[str, int]:
    """Returns the seeds in a config.json, if releases may have come of them.

    Where nothing else of a run is there, none have. Then the file may be a copy
    of another run's, with which this one must not share its cohorts.
    """
    others = self.ledger, self.checkpoints, self.metrics
    has_begun = any(path.exists() for path in others)
    return saved.get('drawn_seeds', {}) if has_begun else {}

  def write_json(
    self,
    path: pathlib.Path,
    content: Mapping[str, Any],
    *,
    is_secret: bool = False,
  ) -> None:
    """Writes a file whole or not at all.

    Args:
      path: The file.
      content: What `json.dump` takes.
      is_secret: Whether its owner alone may read it.
    """
    with atomic_files.replacing(path, is_secret=is_secret) as new:
      with open(new, 'w') as file:
        json.dump(content, file, indent=2)
        file.write('\n')

  def read_result(self, config: ExperimentConfig) -> dict[str, Any] | None:
    """Returns how the run of a configuration ended.

    Args:
      config: What the run was asked to do.

    Returns:
      The contents of result.json: `reason`, a value of `StopReason`, `message`
      and `round_num`; `None` if the run is not there or not at an end.

    Raises:
      RunFolderError: If the folder holds something else.
    """
    if not self.path.is_dir():
      return None
    self._check_contents(config, resume=True)
    try:
      result = json.loads(self.result.read_text())
      return {key: result[key] for key in ('reason', 'message', 'round_num')}
    except (OSError, ValueError, KeyError, TypeError):
      return None

  def _missing_folders(self) -> list[pathlib.Path]:
    """Returns which of the folder and those around it are not there."""
    return [p for p in (self.path, *self.path.parents) if not p.exists()]

  def _remove_if_bare(self, made: Sequence[pathlib.Path]) -> None:
    """Removes folders that were made for a run that has not begun."""
    if made and [each.name for each in self.path.iterdir()] == ['.lock']:
      (self.path / '.lock').unlink()
      _remove_empty(made)

  def _make(self) -> None:
    try:
      if self.path.exists() and not self.path.is_dir():
        raise RunFolderError(
          f'`output_dir` must be a folder, found the file {self.path}.'
        )
      self.path.mkdir(parents=True, exist_ok=True)
      if not os.access(self.path, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as e:
      raise self._unwritable(e) from e

  def _unwritable(self, error: OSError) -> RunFolderError:
    # As in /proc: that it is not there is no news.
    reason = (
      'no folder can be made there'
      if isinstance(error, FileNotFoundError)
      else error.strerror
    )
    return RunFolderError(
      '`output_dir` must be a folder that can be written, found '
      f'{str(self.path)!r} ({reason}).'
    )

  def _say_if_empty(self) -> str:
    """Returns a sentence on a run that has ended and kept nothing."""
    kept = {each.name for each in self.checkpoints.glob('round_*')}
    if kept - {'round_0'} or self.result.exists() or self.ledger.exists():
      return ''
    return ' No round of it was kept: delete the folder, or give another.'

  def _check_contents(self, config: ExperimentConfig, *, resume: bool) -> None:
    found = [e.name for e in self.path.iterdir() if not e.name.startswith('.')]
    if not found:
      return
    if self.config.name not in found:
      raise RunFolderError(
        '`output_dir` must be empty or hold a run, found '
        f'{", ".join(sorted(found)[:3])} in {self.path}.'
      )
    saved = self.read_description()
    if 'drawn_seeds' not in saved and any(
      saved['experiment'].get(name) is not None for name in config.seeds_to_draw
    ):
      # It may be secret: not a word of which it is.
      raise RunFolderError(
        '`output_dir` must be empty or hold a run of this version, found one '
        f'of an earlier version in {self.path}, which does not go on.'
      )
    differences = config.differences(saved['experiment'])
    if differences:
      raise RunFolderError(
        '`output_dir` must be empty or hold this same run, found another one '
        f'in {self.path}: {"; ".join(differences)}.'
      )
    if not resume:
      raise RunFolderError(
        '`output_dir` must be empty with --noresume, found this same run in '
        f'{self.path}.'
      )


@contextlib.contextmanager
def locked(folder: pathlib.Path) -> Iterator[None]:
  """Holds the lock of a folder, which one program at a time can have.

  Raises:
    RunFolderError: If another program has it.
    OSError: If the folder cannot be written.
  """
  with open(folder / '.lock', 'w') as lock:
    try:
      fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as e:
      raise RunFolderError(
        '`output_dir` must be used by one program at a time, found that '
        f'another one is writing to {folder}.'
      ) from e
    yield


def _remove_empty(folders: Sequence[pathlib.Path]) -> None:
  """Removes those that are empty, from the innermost on."""
  for folder in folders:
    with contextlib.suppress(OSError):
      folder.rmdir()
