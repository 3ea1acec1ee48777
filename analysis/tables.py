"""Tables of runs, alone and beside the paper's."""

import math
from collections.abc import Sequence
from typing import Any

import pandas as pd

from analysis import paper, results
from tff_clipping.theory import claims

MISSING = '–'

_ALGORITHM_ORDER = ('fed_avg', 'ce_fed_avg', 'dp_fed_avg')

# Marks a figure that is exact although the run is private.
SIMULATION_MARK = '†'


def ordered(runs: Sequence[results.Run]) -> list[results.Run]:
  """Runs in the paper's order: FedAvg, CE-FedAvg, DP-FedAvg, then others."""

  def position(run: results.Run) -> tuple[int, float, str]:
    known = run.algorithm in _ALGORITHM_ORDER
    rank = _ALGORITHM_ORDER.index(run.algorithm) if known else 3
    epsilon = epsilon_spent(run)
    return rank, -epsilon if math.isfinite(epsilon) else 0.0, run.name

  return sorted(runs, key=position)


def epsilon_spent(run: results.Run) -> float:
  """The ε of the rounds that were run, by the plan's accounting.

  Args:
    run: The run.

  Returns:
    The last round's ε of the metrics, where they hold one, else the plan's;
    NaN where neither does, or where the run is not private.
  """
  spent = run.metrics['epsilon'].dropna()
  if len(spent):
    return float(spent.iloc[-1])
  return privacy_number(run, 'epsilon')


def sampler_epsilon(run: results.Run) -> float:
  """The ε that the sampler really gives over all planned rounds.

  Args:
    run: The run.

  Returns:
    The plan's `actual_epsilon`; NaN where it is the plan's own ε, or unknown.
  """
  actual = privacy_number(run, 'actual_epsilon')
  return math.nan if actual == privacy_number(run, 'epsilon') else actual


def find_baseline(
  run: results.Run, group: Sequence[results.Run], algorithm: str = 'fed_avg'
) -> tuple[results.Run | None, str]:
  """The one run of a group that another's accuracy is compared with.

  Args:
    run: The run to compare.
    group: Runs of the same setting.
    algorithm: The algorithm of the run to compare with. Where this is
      'ce_fed_avg', its threshold must be the run's own.

  Returns:
    The run to compare with and '', or None and the reason why there is none.
    Two that could both be meant are never averaged nor chosen from.
  """
  name = paper.ALGORITHM_NAMES[algorithm]
  candidates = [
    other
    for other in group
    if other.algorithm == algorithm
    and (algorithm == 'fed_avg' or other.clipping_norm == run.clipping_norm)
  ]
  if not candidates:
    return None, f'no {name} run of the same setting'
  if len(candidates) > 1:
    names = ', '.join(sorted(other.name for other in candidates))
    return None, f'more than one {name} run of the same setting: {names}'
  baseline = candidates[0]
  for partial in (baseline, run):
    if not partial.is_complete:
      return None, f'{partial.name} is not finished'
  return baseline, ''


def accuracy_drop(
  run: results.Run, group: Sequence[results.Run], algorithm: str = 'fed_avg'
) -> float:
  """Final accuracy lost against a baseline, in points; NaN where none is."""
  baseline, _ = find_baseline(run, group, algorithm)
  if baseline is None or baseline is run:
    return math.nan
  return baseline.final_accuracy - run.final_accuracy


def run_table(group: Sequence[results.Run]) -> pd.DataFrame:
  """The numbers of a group of comparable runs, a row for each.

  Args:
    group: Runs of one setting.

  Returns:
    Columns run, algorithm, model, rounds_done, num_rounds, final_accuracy and
    best_accuracy (percent), drop (points below FedAvg), clipping_norm,
    clipped_fraction, noise_multiplier, epsilon, sampler_epsilon, delta,
    sampling, median_round_seconds, has_simulation_figures (whether
    clipped_fraction is exact beside a private release). NaN or None is what is
    missing.
  """
  rows = []
  for run in ordered(group):
    privacy = run.privacy or {}
    norm = run.threshold
    rows.append(
      {
        'run': run.name,
        'algorithm': paper.algorithm_name(run),
        'model': paper.model_name(run),
        'rounds_done': run.rounds_done,
        'num_rounds': run.num_rounds,
        'final_accuracy': run.final_accuracy,
        'best_accuracy': run.best_accuracy,
        'drop': accuracy_drop(run, group),
        'clipping_norm': math.nan if norm is None else float(norm),
        'clipped_fraction': run.clipped_fraction,
        'noise_multiplier': privacy_number(run, 'noise_multiplier'),
        'epsilon': epsilon_spent(run) if run.is_private else math.nan,
        'sampler_epsilon': sampler_epsilon(run),
        'delta': privacy_number(run, 'target_delta'),
        'sampling': privacy.get('sampling'),
        'median_round_seconds': run.median_round_seconds,
        'has_simulation_figures': run.has_simulation_figures,
      }
    )
  return pd.DataFrame(rows)


def format_run_table(table: pd.DataFrame) -> pd.DataFrame:
  """`run_table` in words, with the units in the headings."""
  rows = []
  for row in table.to_dict('records'):
    rounds = f'{row["rounds_done"]}'
    if row['rounds_done'] < row['num_rounds']:
      rounds += f' of {row["num_rounds"]}'
    epsilon = format_number(row['epsilon'], '.3g')
    if math.isfinite(row['sampler_epsilon']):
      epsilon += f' (sampler: {row["sampler_epsilon"]:.3g})'
    rows.append(
      {
        'algorithm': row['algorithm'],
        'model': row['model'],
        'rounds': rounds,
        'final accuracy (%)': format_number(row['final_accuracy'], '.2f'),
        'best (%)': format_number(row['best_accuracy'], '.2f'),
        'drop (points)': format_number(row['drop'], '.2f'),
        'c': format_number(row['clipping_norm'], '.4g'),
        'clipped (%)': _clipped_share(row),
        'noise multiplier': format_number(row['noise_multiplier'], '.4g'),
        'ε': epsilon,
        'δ': (
          paper.format_delta(row['delta'])
          if math.isfinite(row['delta'])
          else MISSING
        ),
        'sampling': row['sampling'] or MISSING,
        's/round': format_number(row['median_round_seconds'], '.2f'),
      }
    )
  formatted = pd.DataFrame(rows)
  if table['algorithm'].duplicated().any():
    formatted.insert(0, 'run', table['run'].to_list())
  return formatted


def _clipped_share(row: dict[str, Any]) -> str:
  text = format_number(100.0 * row['clipped_fraction'], '.0f')
  marked = row['has_simulation_figures'] and text != MISSING
  return text + SIMULATION_MARK if marked else text


def table_1() -> pd.DataFrame:
  """The paper's Table 1, and the same points from the closed form."""
  points = claims.table_1()
  return pd.DataFrame(
    [
      {
        'c': '∞' if math.isinf(norm) else f'{norm:g}',
        'Q': '∞' if math.isinf(steps) else f'{steps:g}',
        'x∞, paper': paper.TABLE_1[norm, steps],
        'x∞, ours': str(point),
      }
      for (norm, steps), point in points.items()
    ]
  )


def published_table(
  table: int, groups: Sequence[Sequence[results.Run]]
) -> tuple[pd.DataFrame, list[str]]:
  """The paper's Table 2, 3 or 4 with our figures beside the published ones.

  Groups that differ in the seed alone make one row of means, which names the
  number of seeds and gives the standard deviation over them. Groups that differ
  in anything else make rows of their own.

  Args:
    table: 2, 3 or 4.
    groups: Groups of comparable runs.

  Returns:
    The rows that were run, formatted, and the titles of those that were not.
  """
  rows, not_run = [], []
  for published in paper.rows_of_table(table):
    matching = [group for group in groups if paper.repeats(group[0], published)]
    if not matching:
      not_run.append(published.title)
    for same in _group_without_seed(matching):
      rows.append(_published_row(published, same))
  return pd.DataFrame(rows), not_run


def mean_and_spread(values: Sequence[float]) -> str:
  """Mean and, from two values on, the sample standard deviation, in text."""
  finite = [value for value in values if math.isfinite(value)]
  if not finite:
    return MISSING
  mean = f'{sum(finite) / len(finite):.2f}'
  if len(finite) == 1:
    return mean
  return f'{mean} ± {pd.Series(finite).std():.2f} (n = {len(finite)})'


def format_number(value: float | None, spec: str) -> str:
  """A number in text, `MISSING` where there is none."""
  if value is None or not math.isfinite(value):
    return MISSING
  text = format(value, spec)
  return '0.00' if text == '-0.00' else text


def privacy_number(run: results.Run, key: str) -> float:
  """A number of privacy.json; NaN where it is not there."""
  value = (run.privacy or {}).get(key)
  if isinstance(value, bool) or not isinstance(value, (int, float)):
    return math.nan
  return float(value)


def _group_without_seed(
  groups: Sequence[Sequence[results.Run]],
) -> list[list[Sequence[results.Run]]]:
  by_setting: dict[Any, list[Sequence[results.Run]]] = {}
  for group in groups:
    setting = results.setting_without_seed(group[0])
    by_setting.setdefault(setting, []).append(group)
  return list(by_setting.values())


def _published_row(
  published: paper.PublishedRow, groups: Sequence[Sequence[results.Run]]
) -> dict[str, str]:
  """One row over the seeds of one setting."""
  accuracies: dict[str, list[float]] = {}
  clipping: dict[str, list[float]] = {}
  private: dict[str, list[float]] = {}
  epsilons: dict[str, None] = {}
  for group in groups:
    for run in ordered(group):
      if run.algorithm == 'fed_avg':
        key = _variant(run, group, run.name)
        accuracy = run.final_accuracy if run.is_complete else math.nan
        accuracies.setdefault(key, []).append(accuracy)
      elif run.algorithm == 'ce_fed_avg':
        key = _variant(run, group, f'c = {run.clipping_norm:.4g}')
        clipping.setdefault(key, []).append(accuracy_drop(run, group))
      elif run.algorithm == 'dp_fed_avg':
        epsilon = format_number(epsilon_spent(run), '.3g')
        sampling = (run.privacy or {}).get('sampling', 'sampling not known')
        key = _variant(run, group, f'ε = {epsilon}, {sampling}')
        drop = accuracy_drop(run, group, 'ce_fed_avg')
        private.setdefault(key, []).append(drop)
        if run.is_complete:
          epsilons[epsilon] = None
  row = {
    'model': published.model,
    'data': published.data,
    'clients': 'IID' if published.is_iid else 'non-IID',
    'FedAvg, paper (%)': f'{published.fed_avg:.2f}',
    'FedAvg, ours (%)': _variants_text(accuracies),
    'clipping drop, paper': f'{published.clipping_drop:.2f}',
    'clipping drop, ours': _variants_text(clipping),
  }
  if published.dp_drop is not None:
    row['DP drop, paper'] = f'{published.dp_drop:.2f}'
    row['DP drop, ours'] = _variants_text(private)
    row['ε, paper'] = f'{published.epsilon:g}'
    row['ε, ours'] = ', '.join(epsilons) or (MISSING if private else 'not run')
  first = groups[0][0]
  row['rounds T'] = str(first.num_rounds)
  row['seeds'] = ', '.join(sorted({str(group[0].seed) for group in groups}))
  row['reduced (paper)'] = paper.reductions(
    [run for group in groups for run in group], published
  )
  return row


def _variant(
  run: results.Run, group: Sequence[results.Run], description: str
) -> str:
  """'' where the group has one run of the algorithm, else what tells it."""
  same = [other for other in group if other.algorithm == run.algorithm]
  return description if len(same) > 1 else ''


def _variants_text(drops: dict[str, list[float]]) -> str:
  """The mean of each variant over seeds; variants are never averaged."""
  return (
    '; '.join(
      mean_and_spread(values) + (f' ({variant})' if variant else '')
      for variant, values in drops.items()
    )
    or 'not run'
  )
