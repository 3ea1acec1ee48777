"""Figures over seeds, and what each run lost: the one meaning of ± and drop.

± is half of the 95 % interval of the mean over seeds by Student's t. It needs
three seeds: from two, its factor is 12.7. All seeds of a setting share the test
images, so ± says nothing about other test images.

A drop compares a run with the run of another algorithm that is the same in all
else: by row, scale and variants where both runs are of a published experiment,
else by setting and seed.
"""

import collections
import json
import math
import os
import pathlib
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy import stats

from analysis import runs as run_files
from analysis.experiments import ALGORITHMS, DATA_NAMES, MODEL_NAMES
from analysis.runs import CLIENT_METRICS, Run
from tff_clipping.privacy.accounting import rounding

MISSING = '–'
# What an estimate without values says.
NOT_RUN = 'not run'
MIN_SEEDS = 3

SEED_KEYS = ('seed', 'model_seed')
# Runs are compared only if all of these are equal. What may differ is what is
# compared: the algorithm, its threshold, its noise and its privacy; and the
# seed of the cohorts, which a private run draws for itself.
SETTING_KEYS = (
  *('task', 'partition', 'model', 'examples_per_client', 'num_clients'),
  *('dirichlet_alpha', 'shards_per_client', 'held_out_clients'),
  *('clients_per_round', 'local_steps', 'batch_size', 'num_rounds'),
  *('client_learning_rate', 'server_learning_rate', 'server_optimizer'),
  *('compute_dtype', 'local_step', 'local_momentum', 'proximal_mu'),
  # Two of these only runs of version 0.2 have.
  *('sharpness_rho', 'fed_pd_penalty', 'client_rate_decay', 'loss'),
  *SEED_KEYS,
)
# The round t of Figs. 1 and 2, 0 being the first; the appendix shows others.
FIGURE_ROUND = 16
# Data that are a part of other data have clients in common with them.
_PART = re.compile('_(even|odd|digits)$')
# The paper's quantity skew: 5 examples of each of 10 classes a client.
_QUANTITY_SKEW_EXAMPLES = 50


# Columns of a table: by title the column of another and how a cell says it. ''
# is for an `Estimate`, a text or a truth value, another text the format of a
# number.
Columns = Mapping[str, tuple[str, str | Callable[[Any], str]]]


class Estimate(NamedTuple):
  """A figure by seed, in percent or points, and its mean.

  Attributes:
    values: One a seed; without any the estimate is false. Those of a drop are
      differences of two runs with the same seed, which share the split and the
      initial model.
  """

  values: tuple[float, ...]

  @property
  def mean(self) -> float:
    """The mean over seeds; NaN without any."""
    return float(np.mean(self.values)) if self else math.nan

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

  def __bool__(self) -> bool:
    return bool(self.values)

  def text(self, decimals: int) -> str:
    """The mean with its decimals and its margin."""
    return with_margin(self.mean, self.margin, decimals)

  def __str__(self) -> str:
    return self.text(2) if self else NOT_RUN


def estimate(values: Iterable[float]) -> Estimate:
  """The estimate of the finite ones of some values."""
  return Estimate(tuple(float(each) for each in values if math.isfinite(each)))


def difference_margin(one: Estimate, other: Estimate) -> float:
  """Half of Welch's 95 % interval of the difference of two means.

  The two are of runs of other seeds or rows; NaN below `MIN_SEEDS` seeds of
  either.
  """
  if min(one.num_seeds, other.num_seeds) < MIN_SEEDS:
    return math.nan
  squares = np.array([stats.sem(each.values) ** 2 for each in (one, other)])
  if not squares.any():
    return 0.0
  freedom = np.array([one.num_seeds - 1, other.num_seeds - 1])
  degrees = squares.sum() ** 2 / (squares**2 / freedom).sum()
  return _quantile(degrees) * math.sqrt(squares.sum())


def prediction_margin(published: Estimate) -> float:
  """How far a new seed may be from the mean of others, in points.

  It is half of the 95 % interval of the new seed; of one other seed, which has
  no spread, one point, and NaN of none.
  """
  count = published.num_seeds
  if count < 2:
    return 1.0 if count else math.nan
  error = float(stats.sem(published.values))
  return _quantile(count - 1) * error * math.sqrt(1.0 + count)


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
  return MISSING if pd.isna(value) else rounding.format_up(value)


def at_least(value: float | None) -> str:
  """A lower bound, rounded down to four digits."""
  return MISSING if pd.isna(value) else rounding.format_down(value)


def cells(table: pd.DataFrame, columns: Columns) -> pd.DataFrame:
  """The texts of some columns of a table, under their titles."""
  return pd.DataFrame(
    {
      title: [_cell(value, form) for value in table[column]]
      for title, (column, form) in columns.items()
    }
  )


def _cell(value: Any, form: str | Callable[[Any], str]) -> str:
  if callable(form):
    return form(value)
  if form:
    return number(value, form)
  if isinstance(value, (bool, np.bool_)):
    return 'yes' if value else 'no'
  return MISSING if pd.isna(value) else str(value)


class Runs(NamedTuple):
  """A row for each run, and what is no run.

  Attributes:
    table: By the names of runs; NaN, None or an empty text is what is missing.
      Its columns are every setting of `config.json` (all in `settings`), and

      - `files` (the `Run`) and `folder` (the name under which it was read);
      - `row`, `scale` and `variants` (with commas) of a published experiment;
        `algorithm`, `algorithm_name`, `own_aggregator` (whether there is one),
        `is_audited` (there are canaries among the clients), `clips` (what c
        bounds: updates, models, gradients or nothing), `model`, `model_name`,
        `num_parameters`, `is_norm_from_run` (whether another run gave c),
        `data`, `population` (data whose clients these may be), `digest` (of
        examples and split), `is_iid` (whether the paper would call it so),
        `split` (that in a word), `num_clients`, `num_test_examples`, `metric`,
        `noise_clients_per_round` (the P whose noise on the mean it simulates),
        `target_epsilon`, `clipping_norm`, `setting` (all of `SETTING_KEYS` as
        text, the metric and the size of the test set: runs with the same may be
        compared) and `series` (that without seeds: runs with the same repeat
        each other);
      - what it came to: `rounds_done`, `is_complete`, `final_score` (of its
        metric; an accuracy in percent, of the test set or the part of it that
        the run evaluates), `clipped_fraction` (mean over rounds),
        `relative_spread` (of the norms of updates, standard deviation over
        mean, mean over rounds), `spread_at`, `std_at` and `cosine_at` (that,
        the standard deviation and the mean cosine of two updates, at
        `FIGURE_ROUND`), `path` (how far the model has moved after each round),
        `round_seconds` (the median), `has_updates` (some are recorded);
      - beside other runs: `drop` (by how much `final_score` is worse than that
        of the run of FedAvg: in points for an accuracy, else in the unit of the
        metric), `no_drop` (why there is none), `dp_drop` (the
        same against CE-FedAvg, with the same threshold if there is such a run),
        `equal_path_accuracy` (that of FedAvg when it had moved as far as this
        run at its end: clipping makes steps shorter, so that a part of a drop
        is training that is still to come), `equal_path_lead` (the run's own
        less that), `shown_norm` (the threshold on updates with which
        it is drawn: its own or, where it does not clip, that of all others of
        its setting; NaN where there is none, where it adapts, and for clipped
        models);
      - `is_private`, `has_simulation_figures` (a private run shows exact
        figures of its clients), `has_caveats` (the ε of its plan does not hold
        for the run as it was run), `epsilon` (of the rounds and cohorts that
        were run), `paper_epsilon` (the paper's figure where it is another), and
        of its plan `noise_multiplier`, `delta`, `sampling`, `accountant`,
        `relation`, `unit`.
    left_out: Folder and reason of each that is no run.
  """

  table: pd.DataFrame
  left_out: tuple[tuple[str, str], ...] = ()


def read_folders(directories: Iterable[str | os.PathLike[str]]) -> Runs:
  """Reads run folders, and leaves out by name those that are none.

  Args:
    directories: The folders. One that is given twice counts once.

  Returns:
    The runs in the order given, each under the name of its folder, or its path
    where two names are equal.
  """
  found: dict[pathlib.Path, tuple[pathlib.Path, Run]] = {}
  left_out = []
  for directory in map(pathlib.Path, directories):
    if directory.resolve() in found:
      left_out.append((str(directory), 'given twice, read once'))
      continue
    try:
      run = run_files.read_folder(directory)
    except run_files.NotARunError as error:
      left_out.append((str(directory), str(error)))
    else:
      found[directory.resolve()] = directory, run
  times = collections.Counter(path.name for path in found)
  runs = {
    str(given) if times[path.name] > 1 else path.name: run
    for path, (given, run) in found.items()
  }
  return collect(runs, left_out)


def read_results(directory: str | os.PathLike[str]) -> Runs:
  """Reads the published runs, or all run folders in a folder, by name.

  Raises:
    ValueError: There is none, or one that cannot be read.
  """
  directory = pathlib.Path(directory)
  if (directory / run_files.RESULT_FILES[0]).is_file():
    return collect(run_files.read_published(directory))
  folders = sorted(path.parent for path in directory.glob('*/config.json'))
  found = read_folders(folders)
  if found.left_out or not folders:
    reasons = '; '.join(f'{name}: {why}' for name, why in found.left_out)
    raise ValueError(
      '`directory` must hold runs that can be read, found '
      f'{reasons or f"none in {directory}"}.'
    )
  return found


def collect(
  runs: Mapping[str, Run], left_out: Iterable[tuple[str, str]] = ()
) -> Runs:
  """Some runs, by name, with their table."""
  index = pd.Index([*runs], name='run')
  table = pd.DataFrame([_row(run) for run in runs.values()], index)
  if runs:
    table = with_drops(table.assign(folder=index))
  return Runs(table, tuple(left_out))


def updates(table: pd.DataFrame) -> pd.DataFrame:
  """The recorded updates of the runs of a table, with the column `run`."""
  return pd.concat(
    run.updates.assign(run=name) for name, run in table['files'].items()
  )


def _row(run: Run) -> dict[str, Any]:
  """The row of a run in `Runs.table`, but for its drops."""
  config, settings, privacy = run.config, run.settings, run.privacy
  task, published = config.get('task') or {}, config.get('run') or {}
  algorithm, model = config['algorithm'], config['model']
  known, own = ALGORITHMS.get(algorithm), settings.get('aggregator')
  title = config.get('program', known.title if known else algorithm)
  data, is_iid = run_files.own_name(settings['task']), _is_iid(settings)
  # Runs that are judged by different figures are not compared.
  values = {key: settings.get(key) for key in SETTING_KEYS}
  values['metric'] = (settings.get('metrics') or [run.metric.name])[0]
  values['num_test_examples'] = task.get('num_test_examples')
  rounds = run.rounds
  rounds_done = int(rounds['round_num'].max()) if len(rounds) else 0
  exact = rounds[[*CLIENT_METRICS]].notna().any(axis=None) or len(run.updates)
  epsilon, paper_epsilon = _epsilons(run)
  numbers = {
    'noise_clients_per_round': settings.get('noise_clients_per_round'),
    'num_parameters': model.get('num_parameters'),
    'num_clients': task.get('num_clients') or settings.get('num_clients'),
    'num_test_examples': task.get('num_test_examples'),
    'target_epsilon': settings.get('target_epsilon'),
    'clipping_norm': settings.get('clipping_norm')
    or config.get('estimated_clipping_norm'),
    'noise_multiplier': privacy.get('noise_multiplier'),
    'delta': privacy.get('target_delta'),
  }
  return {
    'files': run,
    **settings,
    **{key: published.get(key, '') for key in ('row', 'scale')},
    'variants': ','.join(published.get('variants', ())),
    **values,
    'settings': settings,
    'setting': json.dumps([*values.values()]),
    'series': json.dumps([*(values | dict.fromkeys(SEED_KEYS)).values()]),
    'algorithm': algorithm,
    'algorithm_name': f'{title} by {run_files.own_name(own)}' if own else title,
    'own_aggregator': bool(own),
    'is_audited': settings.get('audit_canaries') is not None,
    'digest': task.get('digest') or '',
    'clips': known.clips if known else 'updates',
    'is_norm_from_run': bool(config.get('clipping_norm_source')),
    'model': model['name'],
    'model_name': MODEL_NAMES.get(
      model['name'], run_files.own_name(model['name'])
    ),
    'data': DATA_NAMES.get(data, data),
    # A file may be given by several paths.
    'population': _PART.sub('', data),
    'is_iid': is_iid,
    'split': 'IID' if is_iid else 'non-IID',
    'metric': run.metric,
    **{key: run_files.to_number(value) for key, value in numbers.items()},
    'rounds_done': rounds_done,
    'is_complete': rounds_done >= settings['num_rounds'],
    'final_score': run.final_score,
    'clipped_fraction': rounds['clipped_fraction'].mean(),
    **_norms(run),
    'path': _path(run),
    'round_seconds': rounds['round_seconds'].dropna().median(),
    'is_private': run.is_private,
    'has_updates': len(run.updates) > 0,
    'has_simulation_figures': bool(run.is_private and exact),
    'has_caveats': bool(privacy.get('caveats')),
    'epsilon': epsilon,
    'paper_epsilon': paper_epsilon,
    **{key: privacy.get(key) for key in ('sampling', 'accountant', 'relation')},
    'unit': privacy.get('unit', 'client'),
  }


def _epsilons(run: Run) -> tuple[float, float]:
  """The ε of the rounds that were run, and the paper's where it is another."""
  epsilon, paper, actual = (
    run_files.to_number(run.privacy.get(key))
    for key in ('epsilon', 'paper_epsilon', 'actual_epsilon')
  )
  if math.isfinite(actual) and actual != epsilon:
    # A run of 0.2, whose plan charges as the paper does.
    return actual, epsilon
  spent = run.rounds['epsilon'].dropna()
  if len(spent):
    epsilon = float(spent.iloc[-1])
    if run.ledger is not None:
      # A round that has diverged, or was not recorded yet, is charged too.
      epsilon = max(epsilon, run.ledger.epsilon)
  return epsilon, paper


def _norms(run: Run) -> dict[str, float]:
  """The spread of the norms of updates, and the mean cosine of two updates.

  The squared norm of a sum is the sum of the squared norms and of the inner
  products of all pairs: the norms and that of the mean give the cosine, in
  which a pair counts by the product of its norms. It is that of the updates
  only where nothing was clipped.
  """
  std = run.rounds['update_norm_std']
  # Over the mean, of which the threshold is a multiple.
  spread = std / run.rounds['update_norm_mean']
  is_there = run.rounds['round_num'] == FIGURE_ROUND + 1
  updates = run.updates[run.updates['t'] == FIGURE_ROUND]
  norms = updates.loc[~updates['is_mean'], 'update_norm']
  sums = updates.loc[updates['is_mean'], 'update_norm'] * len(norms)
  squares = np.square(norms).sum()
  cosine = (sums**2 - squares) / (norms.sum() ** 2 - squares)
  return {
    'relative_spread': spread.mean(),
    # NaN where there is no such round.
    'spread_at': spread[is_there].mean(),
    'std_at': std[is_there].mean(),
    'cosine_at': cosine.mean(),
  }


def _path(run: Run) -> tuple[float, ...]:
  """How far the model has moved after each round; empty if not recorded.

  A step is η_g times the norm of the averaged update. Between the recorded
  ones, logarithms are taken to be linear.
  """
  means = run.updates[run.updates['is_mean'] & (run.updates['update_norm'] > 0)]
  means = means[np.isfinite(means['update_norm'])].sort_values('t')
  if means.empty:
    return ()
  rounds = np.arange(run.settings['num_rounds'])
  logs = np.interp(rounds, means['t'], np.log(means['update_norm']))
  rate = run_files.to_number(run.settings.get('server_learning_rate'))
  return (0.0, *np.cumsum(rate * np.exp(logs)).tolist())


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
  """Adds what stands beside other runs, which go by their names in the index.

  Runs with an aggregator of a user's own are compared with others, and no run
  is compared with them: what the aggregator does to updates is not known.
  """
  known = table[~table['own_aggregator']]
  groups = dict(iter(known.groupby(['algorithm', 'setting'])))
  lines = []
  for _, run in table.iterrows():
    plain, clipped, reason = None, None, ''
    is_fed_avg = run['algorithm'] == 'fed_avg' and not run['own_aggregator']
    if run['algorithm'] in ALGORITHMS and not is_fed_avg:
      plain, reason = _partner(run, groups, 'fed_avg')
    if run['algorithm'] == 'dp_fed_avg':
      clipped, _ = _partner(run, groups, 'ce_fed_avg')
    baseline, clipped_one = (
      table.at[other, 'final_score'] if other else math.nan
      for other in (plain, clipped)
    )
    equal = _at_equal_path(run, table.loc[plain]) if plain else math.nan
    lines.append(
      {
        'no_drop': reason,
        'drop': run['metric'].lost(baseline, run['final_score']),
        'dp_drop': run['metric'].lost(clipped_one, run['final_score']),
        'equal_path_accuracy': equal,
        'equal_path_lead': run['final_score'] - equal,
      }
    )
  found = pd.DataFrame(lines, table.index)
  return table.assign(**found, shown_norm=_shown_norms(table))


def _partner(
  run: pd.Series, groups: Mapping[tuple[str, str], pd.DataFrame], algorithm: str
) -> tuple[str | None, str]:
  """The run of an algorithm that a run is compared with, or why there is none.

  Of several runs of a setting, it is one with the same threshold, and of these
  one without variants.
  """
  title = ALGORITHMS[algorithm].title
  if (algorithm, run['setting']) not in groups:
    return None, f'no {title} run of the same setting'
  found = groups[algorithm, run['setting']]
  for key, value in (('clipping_norm', run['clipping_norm']), ('variants', '')):
    preferred = found[found[key] == value]
    found = preferred if len(preferred) else found
  # Two that could both be meant are never averaged nor chosen from.
  if len(found) > 1:
    names = ', '.join(sorted(found.index))
    return None, f'more than one {title} run of the same setting: {names}'
  digests = {found.iloc[0]['digest'], run['digest']} - {''}
  if len(digests) > 1:
    return None, f'{found.index[0]} has other data or another split'
  for partial in (found.iloc[0], run):
    if not partial['is_complete']:
      return None, f'{partial.name} is not finished'
  return found.index[0], ''


def _at_equal_path(run: Mapping[str, Any], plain: Mapping[str, Any]) -> float:
  """The score of a run of FedAvg when it had moved as far as another run."""
  if not run['path'] or not plain['path']:
    return math.nan
  path = plain['path']
  equal_round = np.interp(run['path'][-1], path, np.arange(len(path)))
  # Straight lines between its evaluations.
  scores = plain['files'].scores
  return float(np.interp(equal_round, scores.index, scores))


def _shown_norms(table: pd.DataFrame) -> pd.Series:
  adapts = table['clipping'] == 'adaptive'
  norms = table['clipping_norm'].where(table['clips'] == 'updates')
  # That of the first round alone.
  norms = norms.mask(adapts)
  is_known = ~table['own_aggregator'] & ~adapts
  of_setting = norms.where(is_known).groupby(
    [table['setting'], table['variants']]
  )
  is_one = of_setting.transform('nunique') == 1
  common = of_setting.transform('max').where(
    is_one & is_known & (table['clips'] != 'models')
  )
  return norms.fillna(common)
