"""c from a run before: of FedAvg, as the paper sets it, or a private one."""

import pathlib
import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from tasks import algorithms
from tasks.config import Config
from tasks.running.folder import RunFolder
from tff_clipping import privacy
from tff_clipping.privacy.ledger import spending

# Settings on which the norms of updates depend.
_NORMS_DEPEND_ON = (
  *('task', 'partition', 'examples_per_client', 'dirichlet_alpha'),
  *('shards_per_client', 'model', 'loss', 'compute_dtype', 'local_steps'),
  *('batch_size', 'client_learning_rate', 'local_step', 'proximal_mu'),
  *('server_optimizer', 'server_learning_rate'),
)
_EXACT = (
  'half of the mean norm of the updates of a run of fed_avg: a figure of the '
  "clients' data, whose cost is not in any epsilon"
)
_LAST_NORM = 'aggregator/clipping_norm'


class ClippingNormWarning(UserWarning):
  """c comes from a run whose updates have other norms."""


class Source(NamedTuple):
  """Where c comes from.

  Attributes:
    norm: c.
    exact: From what exact figure of the clients' data; `None` if from none.
    ledger: The ledger of the private run that it comes from; `None` if it does
      not.
    run_id: Which run that is, as its ledger has it; `None` in config.json of an
      earlier version.
  """

  norm: float
  exact: str | None = None
  ledger: str | None = None
  run_id: str | None = None

  def to_json(self) -> dict[str, Any]:
    """Returns what config.json has of it; c itself is among the settings."""
    return {'exact': self.exact, 'ledger': self.ledger, 'run_id': self.run_id}


def find(config: Config, saved: Mapping[str, Any] | None) -> Source | None:
  """Returns where c comes from; `None` if it was given, or there is none.

  Of a finished run of FedAvg it is half of the mean, over clients and rounds,
  of the norms of the updates (Sec. 2.2); of a finished private run whose c
  adapts and whose guarantee holds, the last c. A run that goes on has the c of
  its beginning, in its config.json, `saved`. Warns if the updates of that run
  have other norms.

  Raises:
    ValueError: If `clipping_norm_from` is not the folder of such a run, or the
      private run that gave c to a run that goes on is missing.
  """
  kept = (saved or {}).get('clipping_norm_source')
  if kept is not None:
    source = Source(saved['experiment']['clipping_norm'], **kept)
    return _find_again(source, config)
  if config.clipping_norm_from is None:
    return None
  folder = RunFolder(config.clipping_norm_from)
  try:
    saved = folder.read_description()
    if saved is None:
      raise ValueError(f'there is no {folder.config.name}.')
    experiment = saved['experiment']
    metrics = folder.read_metrics()
    metrics = metrics[metrics['round_num'] > 0]
    if len(metrics) < experiment['num_rounds']:
      raise ValueError(
        f'it has {len(metrics)} of {experiment["num_rounds"]} rounds.'
      )
    if experiment['algorithm'] == 'fed_avg':
      # The mean of an empty Poisson cohort is nan.
      metrics = metrics[metrics['num_clients'] > 0]
      mean = np.average(
        metrics['update_norm_mean'], weights=metrics['num_clients']
      )
      source = Source(0.5 * float(mean), exact=_EXACT)
    elif _LAST_NORM in metrics and folder.ledger.exists():
      ledger = privacy.read_ledger(folder.ledger)
      if ledger.caveats:
        raise ValueError(
          f'its guarantee does not hold: {"; ".join(ledger.caveats)}.'
        )
      source = Source(
        float(metrics[_LAST_NORM].iloc[-1]),
        ledger=str(folder.ledger.absolute()),
        run_id=ledger.run_id,
      )
    else:
      has = 'a' if folder.ledger.exists() else 'no'
      raise ValueError(
        f'it is a run of {experiment["algorithm"]} with `clipping` '
        f'{experiment["clipping"]} and {has} ledger.'
      )
    if not 0 < source.norm < np.inf:
      raise ValueError(f'its updates have the norm {source.norm:g}.')
  except (OSError, ValueError, KeyError, ZeroDivisionError) as e:
    raise ValueError(
      '`clipping_norm_from` must be the folder of a finished run of fed_avg, '
      'or of a private run with adaptive clipping whose guarantee holds, found '
      f'{str(folder.path)!r}: {e}'
    ) from e
  _warn_of_other_norms(experiment, config.to_json())
  return source


def _find_again(source: Source, config: Config) -> Source:
  """Returns the source of a run that goes on, where its ledger is now.

  What a private run states has the cost of the run with that ledger. If that
  was moved, `clipping_norm_from` has it.
  """
  if source.ledger is None or not algorithms.is_private(config):
    return source
  places, folder = [source.ledger], config.clipping_norm_from
  if folder is not None and source.run_id is not None:
    places.append(str(RunFolder(folder).ledger.absolute()))
  for ledger in places:
    if spending.read_source(pathlib.Path(ledger), source.run_id) is not None:
      return source._replace(ledger=ledger)
  raise ValueError(
    '`clipping_norm_from` must be the folder of the run that gave c, whose '
    f'epsilon is spent too: its ledger is not {source.ledger} any more, found '
    f'{folder!r}.'
  )


def _warn_of_other_norms(
  theirs: Mapping[str, Any], mine: Mapping[str, Any]
) -> None:
  different = [
    f'`{name}` {theirs[name]} and not {mine[name]}'
    for name in _NORMS_DEPEND_ON
    if name in theirs and _file_name(theirs[name]) != _file_name(mine[name])
  ]
  if different:
    warnings.warn(
      f'`clipping_norm_from` is a run with {", ".join(different)}: its updates '
      'have other norms than those that are clipped here.',
      ClippingNormWarning,
      stacklevel=3,
    )


def _file_name(value: Any) -> Any:
  """Returns a path without its folder: a run may be started from anywhere."""
  return pathlib.PurePath(value).name if isinstance(value, str) else value
