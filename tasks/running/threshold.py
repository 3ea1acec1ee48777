"""The threshold c as the paper sets it, from a run of FedAvg."""

import os
import pathlib
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from tasks.running import run_folder
from tff_clipping import argument_checks

# Settings on which the norms of updates depend.
_NORMS_DEPEND_ON = (
  'task',
  'partition',
  'examples_per_client',
  'dirichlet_alpha',
  'shards_per_client',
  'model',
  'loss',
  'local_steps',
  'batch_size',
  'client_learning_rate',
)


class ThresholdWarning(UserWarning):
  """A threshold comes from a run whose updates have other norms."""


def warn_of_other_settings(
  run_dir: str | os.PathLike, values: Mapping[str, Any]
) -> None:
  """Warns if c comes from a run whose norms are not those to be clipped.

  Args:
    run_dir: The folder that `compute_clipping_norm` has read.
    values: The settings of the run that takes c, as config.json has them.
  """
  theirs = run_folder.RunFolder(run_dir).read_description()['experiment']
  different = [
    f'`{name}` {theirs[name]} and not {values[name]}'
    for name in _NORMS_DEPEND_ON
    if name in theirs and _file_name(theirs[name]) != _file_name(values[name])
  ]
  if different:
    warnings.warn(
      f'`clipping_norm_from` is a run with {", ".join(different)}: its updates '
      'have other norms than those that are clipped here.',
      ThresholdWarning,
      stacklevel=2,
    )


def _file_name(value: Any) -> Any:
  """Returns a path without its folder: a run may be started from anywhere."""
  return pathlib.PurePath(value).name if isinstance(value, str) else value


def compute_clipping_norm(
  run_dir: str | os.PathLike, factor: float = 0.5
) -> float:
  """Returns c: a multiple of the mean norm of the updates of a run.

  Source: Sec. 2.2: half of the mean, over clients and rounds, of the norms of
  the updates of an unclipped run.

  Args:
    run_dir: The folder of a finished run of fed_avg.
    factor: What the mean norm is multiplied by, positive.

  Raises:
    ValueError: If the folder is not that of such a run, or the factor is not
      positive.
  """
  argument_checks.check_positive('clipping_factor', factor)
  folder = run_folder.RunFolder(run_dir)
  if not folder.config.exists():
    raise ValueError(
      '`clipping_norm_from` must be the folder of a run, found '
      f'{os.fspath(run_dir)!r}, which has no {folder.config.name}.'
    )
  try:
    config = folder.read_description() or {}
    metrics = folder.read_metrics()
    rounds = metrics[metrics['round_num'] > 0]
    algorithm = config['algorithm']
    num_rounds = config['experiment']['num_rounds']
    norms, sizes = rounds['update_norm_mean'], rounds['num_clients']
  except (OSError, ValueError, KeyError) as e:
    raise ValueError(
      '`clipping_norm_from` must be the folder of a run, found '
      f'{os.fspath(run_dir)!r}: {e}'
    ) from e
  if algorithm != 'fed_avg' or len(rounds) < num_rounds:
    raise ValueError(
      '`clipping_norm_from` must be a finished run of fed_avg, found '
      f'{len(rounds)} of {num_rounds} rounds of {algorithm} in '
      f'{os.fspath(run_dir)!r}.'
    )
  mean = float(np.average(norms, weights=sizes))
  if not 0 < mean < np.inf:
    raise ValueError(
      '`clipping_norm_from` must be a run whose updates have a norm, found '
      f'the mean norm {mean:g} in {os.fspath(run_dir)!r}.'
    )
  return factor * mean
