"""Figures over seeds, and what each run lost: the one meaning of ± and drop.

± is half of the 95 % interval of the mean over seeds by Student's t. It needs
three seeds: from two, its factor is 12.7. All seeds of a setting share the test
images, so ± says nothing about other test images.

A drop compares a run with the run of another algorithm that is the same in all
else: by row, scale and variants where both runs are of a published experiment,
else by setting and seed.
"""

import collections
import dataclasses
import json
import math
import os
import pathlib
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy import stats

from analysis import runs as run_files
from analysis.experiments import ALGORITHMS, DATA_NAMES, MODEL_NAMES, VARIANTS
from analysis.runs import CLIENT_METRICS, UPDATE_COLUMNS, Run
from tff_clipping.privacy.accounting import rounding

MISSING = '–'
MIN_SEEDS = 3


SEED_KEYS = ('seed', 'model_seed')
# Runs are compared only if all of these are equal. What may differ is what is
# compared: the algorithm, its threshold, its noise and its privacy; and the
# seed of the cohorts, which a private run draws for itself.
SETTING_KEYS = (
  'task',
  'partition',
  'model',
  'examples_per_client',
  'num_clients',
  'dirichlet_alpha',
  'shards_per_client',
  'held_out_clients',
  'clients_per_round',
  'local_steps',
  'batch_size',
  'num_rounds',
  'client_learning_rate',
  'server_learning_rate',
  'server_optimizer',
  'compute_dtype',
  'local_step',
  'local_momentum',
  'proximal_mu',
  'sharpness_rho',
  'fed_pd_penalty',
  'client_rate_decay',
  'loss',
  *SEED_KEYS,
)
# The paper's quantity skew: 5 examples of each of 10 classes a client.
_QUANTITY_SKEW_EXAMPLES = 50


class Estimate(NamedTuple):
  """A figure by seed, in percent or points, and its mean.

  Attributes:
    values: One a seed, at least one. Those of a drop are differences of two
      runs with the same seed, which share the split and the initial model.
  """

  values: tuple[float, ...]

  @property
  def mean(self) -> float:
    """The mean over seeds."""
    return float(np.mean(self.values))

  @property
  def num_seeds(self) -> int:
    """The number of seeds."""
    return len(self.values)

  @property
  def margin(self) -> float:
    """Half of the 95 % interval of the mean; NaN below `MIN_SEEDS` seeds."""
    if self.num_seeds < MIN_SEEDS:
      return math.nan
    return _quantile(self.num_seeds - 1) * float(stats.sem(self.values))

  def __str__(self) -> str:
    return with_margin(self.mean, self.margin)


class Difference(NamedTuple):
  """The mean of one figure less the mean of another, in points.

  Attributes:
    mean: The difference.
    margin: Half of its 95 % interval; NaN below `MIN_SEEDS` seeds of either.
  """

  mean: float
  margin: float

  @property
  def sign(self) -> int | None:
    """1 or -1 if 0 is outside of the interval, else 0; None without one."""
    if math.isnan(self.margin):
      return None
    return int(np.sign(self.mean)) if abs(self.mean) > self.margin else 0

  def __str__(self) -> str:
    return with_margin(self.mean, self.margin)


def estimate(values: Iterable[float]) -> Estimate | None:
  """The estimate of the finite ones of some values; None where none is."""
  finite = tuple(float(value) for value in values if math.isfinite(value))
  return Estimate(finite) if finite else None


def difference(one: Estimate, other: Estimate) -> Difference:
  """One less another, of runs of other seeds or rows: Welch's interval."""
  value = one.mean - other.mean
  if min(one.num_seeds, other.num_seeds) < MIN_SEEDS:
    return Difference(value, math.nan)
  squares = [stats.sem(e.values) ** 2 for e in (one, other)]
  shares = [
    square**2 / (e.num_seeds - 1)
    for square, e in zip(squares, (one, other), strict=True)
  ]
  if sum(shares) == 0:
    return Difference(value, 0.0)
  degrees, error = sum(squares) ** 2 / sum(shares), math.sqrt(sum(squares))
  return Difference(value, _quantile(degrees) * error)


def prediction_margin(published: Estimate) -> float:
  """How far a new seed may be from the mean of others, by its 95 % interval.

  Returns:
    The margin in points; NaN from a single seed.
  """
  count = published.num_seeds
  if count < 2:
    return math.nan
  spread = float(np.std(published.values, ddof=1))
  return _quantile(count - 1) * spread * math.sqrt(1.0 + 1.0 / count)


def _quantile(degrees: float) -> float:
  return float(stats.t.ppf(0.975, degrees))


def with_margin(value: float, margin: float, decimals: int = 2) -> str:
  """A figure with its decimals and, where there is one, its margin.

  With one more where they do not tell whether 0 is in the interval.
  """
  spec = f'.{decimals}f'
  if math.isnan(margin):
    return number(value, spec)
  if f'{abs(value):{spec}}' == f'{margin:{spec}}' != f'{0:{spec}}':
    spec = f'.{decimals + 1}f'
  return f'{number(value, spec)} ± {margin:{spec}}'


def number(value: float | None, spec: str) -> str:
  """A number in text, `MISSING` where there is none."""
  if value is None or not math.isfinite(value):
    return MISSING
  text = format(value, spec)
  # No negative zero.
  return text.removeprefix('-') if set(text) <= set('-0.') else text


def at_most(value: float | None) -> str:
  """A cost, such as an ε or noise, rounded up to four digits."""
  is_missing = value is None or math.isnan(value)
  return MISSING if is_missing else rounding.format_up(value)


def at_least(value: float | None) -> str:
  """A lower bound, rounded down to four digits."""
  is_missing = value is None or math.isnan(value)
  return MISSING if is_missing else rounding.format_down(value)


@dataclasses.dataclass(frozen=True, eq=False)
class Runs:
  """Runs, and a row for each.

  Attributes:
    runs: The runs, by name.
    table: A row for each run, with its name as index; NaN, None or an empty
      text is what is missing. Its columns are every setting of `config.json`
      (`settings` has them in one), what `with_drops` adds, and

      - `row`, `scale` and `variants` (with commas) of a published experiment,
        empty else; `algorithm`, `algorithm_name`, `own_aggregator` (whether
        there is one), `is_audited` (there are canaries among the clients),
        `noise_cohort` (the P whose noise on the mean it simulates),
        `clips` (what c bounds: updates, models, gradients or nothing), `model`,
        `model_name`, `num_parameters`, `data`, `is_iid` (whether the paper
        would call it so), `split` (that in a word), `num_clients`,
        `num_test_examples`, `metric`, `target_epsilon`, `clipping_norm`,
        `setting` (all of `SETTING_KEYS` as text: runs with the same may be
        compared) and `series` (that without seeds: runs with the same repeat
        each other);
      - what it came to: `rounds_done`, `is_complete`, `final_score` (of its
        metric; an accuracy in percent, of the test set or the part of it that
        the run evaluates), `scores` (pairs of a round and its score),
        `clipped_fraction` (mean over rounds), `relative_spread` (of the
        clients' update norms, standard deviation over mean, mean over rounds),
        `path` (how far the model has moved after each round, from 0 to T),
        `round_seconds` (the median);
      - `is_private`, `has_simulation_figures` (a private run shows exact
        figures of its clients), `has_caveats` (the ε of its plan does not hold
        for the run as it was run), `epsilon` (of the rounds that were run, for
        the cohorts that were drawn), `paper_epsilon` (the paper's figure where
        it is another), and of its plan `noise_multiplier`, `delta`,
        `sampling`, `accountant`, `relation`, `unit`.
    left_out: Folder and reason of each that is no run.
  """

  runs: Mapping[str, Run]
  table: pd.DataFrame
  left_out: tuple[tuple[str, str], ...] = ()

  def updates(self, names: Iterable[str]) -> pd.DataFrame:
    """The recorded updates of some runs, with the column `run`."""
    tables = [self.runs[name].updates.assign(run=name) for name in names]
    columns = ['t', *UPDATE_COLUMNS, 'is_mean', 'run']
    found = [each for each in tables if len(each)]
    return pd.concat(found) if found else pd.DataFrame(columns=columns)


def read_folders(directories: Iterable[str | os.PathLike[str]]) -> Runs:
  """Reads run folders, and leaves out by name those that are none.

  Args:
    directories: The folders. One that is given twice counts once.

  Returns:
    The runs in the order given, each under the name of its folder, with the
    parents' where two are equal.
  """
  found: dict[pathlib.Path, Run] = {}
  left_out = []
  for directory in map(pathlib.Path, directories):
    if directory.resolve() in found:
      left_out.append((str(directory), 'given twice, read once'))
      continue
    try:
      found[directory.resolve()] = run_files.read_folder(directory)
    except run_files.NotARunError as error:
      left_out.append((str(directory), str(error)))
  names = _distinct_names([*found])
  return collect(dict(zip(names, found.values(), strict=True)), left_out)


def read_results(directory: str | os.PathLike[str]) -> Runs:
  """Reads the published runs, or all run folders in a folder, by name.

  Raises:
    ValueError: There is none, or one that cannot be read.
  """
  directory = pathlib.Path(directory)
  if (directory / run_files.RESULT_FILES[0]).is_file():
    return collect(run_files.read_published(directory)[0])
  folders = sorted(path.parent for path in directory.glob('*/config.json'))
  found = read_folders(folders)
  if found.left_out or not folders:
    reasons = '; '.join(f'{name}: {why}' for name, why in found.left_out)
    raise ValueError(
      '`directory` must hold runs that can be read, found '
      f'{reasons or f"none in {directory}"}.'
    )
  return found


def _distinct_names(directories: Sequence[pathlib.Path]) -> list[str]:
  """Adds the parent folder's name where two folders share theirs."""
  names = [path.name for path in directories]
  longer = [
    name if names.count(name) == 1 else str(pathlib.Path(*path.parts[-2:]))
    for name, path in zip(names, directories, strict=True)
  ]
  if len(set(longer)) < len(longer):
    return [str(path) for path in directories]
  return longer


def collect(
  runs: Mapping[str, Run], left_out: Iterable[tuple[str, str]] = ()
) -> Runs:
  """Some runs, by name, with their table."""
  index = pd.Index([*runs], name='run')
  table = pd.DataFrame([_row(run) for run in runs.values()], index)
  if runs:
    table = with_drops(table)
  return Runs(runs, table, tuple(left_out))


def _row(run: Run) -> dict[str, Any]:
  """The row of a run in `Runs.table`, but for its drops."""
  settings = run.settings
  return {
    **settings,
    **_describe(run),
    **_measure(run),
    **_promise(run),
    'settings': settings,
  }


def _describe(run: Run) -> dict[str, Any]:
  """What a run is, for people and to compare it."""
  config, settings = run.config, run.settings
  task, published = config.get('task') or {}, config.get('run') or {}
  algorithm, model = config['algorithm'], config['model']['name']
  known, own = ALGORITHMS.get(algorithm), settings.get('aggregator')
  title = config.get('program', known.title if known else algorithm)
  values = {key: settings.get(key) for key in SETTING_KEYS}
  # Runs that are judged by different figures are not compared.
  values['metric'] = run.metric.name
  data, is_iid = run_files.own_name(settings['task']), _is_iid(settings)
  return {
    **{key: published.get(key, '') for key in ('row', 'scale')},
    'variants': ','.join(published.get('variants', ())),
    **values,
    'algorithm': algorithm,
    'algorithm_name': f'{title} by {run_files.own_name(own)}' if own else title,
    'own_aggregator': bool(own),
    'is_audited': settings.get('audit_canaries') is not None,
    'noise_cohort': run_files.to_number(
      settings.get('noise_clients_per_round')
    ),
    'clips': known.clips if known else 'updates',
    'model': model,
    'model_name': MODEL_NAMES.get(model, run_files.own_name(model)),
    'num_parameters': run_files.to_number(
      config['model'].get('num_parameters')
    ),
    'data': DATA_NAMES.get(data, data),
    'is_iid': is_iid,
    'split': 'IID' if is_iid else 'non-IID',
    'num_clients': run_files.to_number(
      settings.get('num_clients') or task.get('num_clients')
    ),
    'num_test_examples': run_files.to_number(task.get('num_test_examples')),
    'metric': run.metric,
    'target_epsilon': run_files.to_number(settings.get('target_epsilon')),
    'clipping_norm': run_files.to_number(
      settings.get('clipping_norm') or config.get('estimated_clipping_norm')
    ),
    'setting': json.dumps([*values.values()]),
    'series': json.dumps([*(values | dict.fromkeys(SEED_KEYS)).values()]),
  }


def _measure(run: Run) -> dict[str, Any]:
  """What a run came to."""
  rounds, scores = run.rounds, run.scores
  rounds_done = int(rounds['round_num'].max()) if len(rounds) else 0
  return {
    'rounds_done': rounds_done,
    'is_complete': rounds_done >= run.settings['num_rounds'],
    'final_score': float(scores.iloc[-1]) if len(scores) else math.nan,
    'scores': tuple(scores.items()),
    'clipped_fraction': rounds['clipped_fraction'].mean(),
    'relative_spread': _relative_spread(run),
    'path': _path(run),
    'round_seconds': rounds['round_seconds'].dropna().median(),
  }


def _promise(run: Run) -> dict[str, Any]:
  """What a private run promises, and what it shows nevertheless."""
  privacy, spent = run.privacy, run.rounds['epsilon'].dropna()
  epsilon = run_files.to_number(privacy.get('epsilon'))
  paper = run_files.to_number(privacy.get('paper_epsilon'))
  actual = run_files.to_number(privacy.get('actual_epsilon'))
  if math.isfinite(actual) and actual != epsilon:
    # A run of 0.2, whose plan charges as the paper does.
    epsilon, paper = actual, epsilon
  elif len(spent):
    # A round that has diverged, or was not recorded yet, is charged too.
    epsilon = float(np.fmax(spent.iloc[-1], run.charged))
  is_exact = bool(len(run.updates)) or bool(
    run.rounds[list(CLIENT_METRICS)].notna().any(axis=None)
  )
  return {
    'is_private': run.is_private,
    'has_simulation_figures': run.is_private and is_exact,
    'has_caveats': bool(privacy.get('caveats')),
    'epsilon': epsilon,
    'paper_epsilon': paper,
    'noise_multiplier': run_files.to_number(privacy.get('noise_multiplier')),
    'delta': run_files.to_number(privacy.get('target_delta')),
    'sampling': privacy.get('sampling'),
    'accountant': privacy.get('accountant'),
    'relation': privacy.get('relation'),
    'unit': privacy.get('unit', 'client'),
  }


def _relative_spread(run: Run) -> float:
  """Spread of the clients' update norms: standard deviation over mean.

  The ratio, and not the variance, because the threshold is itself a multiple of
  the mean norm: scaling all updates changes neither the ratio nor what is cut.

  Returns:
    The mean over rounds, from `metrics.csv` where it is measured there, else
    from the recorded updates; NaN where neither has it.
  """
  ratios = run.rounds['update_norm_std'] / run.rounds['update_norm_mean']
  ratios = ratios[np.isfinite(ratios)]
  if ratios.empty:
    norms = run.updates[~run.updates['is_mean']].groupby('t')['update_norm']
    ratios = norms.std(ddof=0) / norms.mean()
  return float(ratios.mean())


def _path(run: Run) -> tuple[float, ...]:
  """How far the model has moved after each round; empty if not recorded.

  A step is η_g times the norm of the averaged update. Most of the recorded ones
  are early: between them, logarithms are taken to be linear.
  """
  means = run.updates[run.updates['is_mean']].sort_values('t')
  norms = means['update_norm'].astype(float)
  usable = np.isfinite(norms) & (norms > 0)
  if not usable.any():
    return ()
  logs = np.interp(
    np.arange(run.settings['num_rounds']),
    means.loc[usable, 't'],
    np.log(norms[usable]),
  )
  steps = run_files.to_number(
    run.settings.get('server_learning_rate')
  ) * np.exp(logs)
  return (0.0, *np.cumsum(steps).tolist())


def _is_iid(settings: Mapping[str, Any]) -> bool:
  """Whether the paper would call the clients' data IID (Sec. 2.2).

  Clients with equally many examples of every class are, except for the few
  examples a client that the paper calls the non-IID case of CIFAR-10.
  """
  if settings['partition'] == 'class_balanced':
    size = settings.get('examples_per_client')
    return size is None or size > _QUANTITY_SKEW_EXAMPLES
  return settings['partition'] == 'iid'


def with_drops(table: pd.DataFrame) -> pd.DataFrame:
  """Adds the run that each run is compared with, and by how much it is worse.

  Runs with an aggregator of a user's own are compared with others, and no run
  is compared with them: what the aggregator does to updates is not known.

  Args:
    table: A row for each run, as in `Runs`, without these columns.

  Returns:
    The rows with the columns

    - `fed_avg_run`: the run of FedAvg that it is compared with, None without,
      and `no_drop`, the reason why there is none;
    - `drop`: by how much its final score is worse than that of `fed_avg_run`:
      in points for an accuracy, else in the unit of the metric;
    - `dp_drop`: the same against CE-FedAvg with the same threshold;
    - `equal_path_accuracy` (percent): that of `fed_avg_run` at the round by
      which it has moved as far as this run has at T, and `equal_path_lead`: the
      run's own less that. Clipping makes steps shorter, so that a part of a
      drop is training that is still to come;
    - `shown_norm`: the threshold on updates with which a run is drawn: its own
      c or, where it does not clip, the one c with which all others of its
      setting do; NaN where there is none, and for clipped models.
  """
  partners = _Partners(table)
  lines = []
  for _, run in table.iterrows():
    plain, clipped, reason = None, None, ''
    is_baseline = run['algorithm'] == 'fed_avg' and not run['own_aggregator']
    if run['algorithm'] in ALGORITHMS and not is_baseline:
      plain, reason = partners.find(run, 'fed_avg')
    if run['algorithm'] == 'dp_fed_avg':
      clipped, _ = partners.find(run, 'ce_fed_avg')
    scores = [
      table.at[other, 'final_score'] if other else math.nan
      for other in (plain, clipped)
    ]
    equal = _at_equal_path(run, table.loc[plain]) if plain else math.nan
    lines.append(
      {
        'fed_avg_run': plain,
        'no_drop': reason,
        'drop': run['metric'].lost(scores[0], run['final_score']),
        'dp_drop': run['metric'].lost(scores[1], run['final_score']),
        'equal_path_accuracy': equal,
        'equal_path_lead': run['final_score'] - equal,
      }
    )
  found = pd.DataFrame(lines, table.index)
  return table.join(found).assign(shown_norm=_shown_norms(table))


class _Partners:
  """Finds the run that a run is compared with."""

  def __init__(self, table: pd.DataFrame):
    self._table = table
    self._by_name = collections.defaultdict(list)
    self._by_setting = collections.defaultdict(list)
    for name, run in table[~table['own_aggregator']].iterrows():
      if run['row']:
        self._by_name[_key(run, run['algorithm'])].append(name)
      self._by_setting[run['algorithm'], run['setting']].append(name)

  def find(
    self, run: Mapping[str, Any], algorithm: str
  ) -> tuple[str | None, str]:
    """Returns the one run of an algorithm, or None and the reason."""
    found = [
      name
      for name in self._by_setting[algorithm, run['setting']]
      if not (run['row'] and self._table.at[name, 'row'])
    ]
    if algorithm == 'ce_fed_avg':
      norms = self._table['clipping_norm']
      found = [name for name in found if norms[name] == run['clipping_norm']]
    if run['row']:
      found = self._by_name[_key(run, algorithm)] + found
    title = ALGORITHMS[algorithm].title
    if not found:
      return None, f'no {title} run of the same setting'
    # Two that could both be meant are never averaged nor chosen from.
    if len(found) > 1:
      names = ', '.join(sorted(found))
      return None, f'more than one {title} run of the same setting: {names}'
    for partial in (self._table.loc[found[0]], run):
      if not partial['is_complete']:
        return None, f'{partial.name} is not finished'
    return found[0], ''


def _key(run: Mapping[str, Any], algorithm: str) -> Hashable:
  """What tells runs of experiments apart: two rows can have the same runs.

  Args:
    run: The row of a run.
    algorithm: The algorithm of the run that is looked for, which has the
      variants of `run` but those that are of other algorithms.
  """
  kept = (
    name
    for name in run['variants'].split(',')
    if name and algorithm in VARIANTS.get(name, (algorithm,))
  )
  same = ('task', 'partition', 'examples_per_client', 'model', 'scale', 'seed')
  return (*(str(run[key]) for key in same), algorithm, *kept)


def _at_equal_path(run: Mapping[str, Any], plain: Mapping[str, Any]) -> float:
  """The score of a run of FedAvg when it had moved as far as another run."""
  if not run['path'] or not plain['path']:
    return math.nan
  path = plain['path']
  equal_round = np.interp(run['path'][-1], path, np.arange(len(path)))
  # Straight lines between its evaluations.
  return float(np.interp(equal_round, *zip(*plain['scores'], strict=True)))


def _shown_norms(table: pd.DataFrame) -> pd.Series:
  norms = table['clipping_norm'].where(table['clips'] == 'updates')
  is_known = ~table['own_aggregator']
  of_setting = norms.where(is_known).groupby(
    [table['setting'], table['variants']]
  )
  is_one = of_setting.transform('nunique') == 1
  common = of_setting.transform('max').where(
    is_one & is_known & (table['clips'] != 'models')
  )
  return norms.fillna(common)
