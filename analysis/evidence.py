"""The paper's rows with our figures: a line for each row and scale.

Every table on the paper's rows is a selection of these lines and columns.
"""

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd

from analysis import equal_path, frame, margins, titles
from tasks.experiments import experiment_table

_PUBLISHED = {row.name: row for row in experiment_table.PUBLISHED_ROWS}

# Rows with published figures, their own or those of what they stand for, in the
# order of the paper's tables.
ROWS = tuple(
  row
  for name in _PUBLISHED
  for row in experiment_table.ROWS.values()
  if name in (row.name, row.stands_for)
)

# The round t of Figs. 1 and 2, 0 being the first; the appendix shows others.
FIGURE_ROUND = 16
# The last one that they show.
LAST_FIGURE_ROUND = 64

# In percent, of ten classes. A model below twice that hardly knows anything,
# and where FedAvg is below three times that there is little to lose.
CHANCE = 10.0

# The algorithm whose model a figure is of.
_MODELS = {
  'fed_avg': 'fed_avg',
  'clipping_drop': 'ce_fed_avg',
  'dp_drop': 'dp_fed_avg',
}

# What a cell says where runs of one setting and seed cannot be told apart.
SEVERAL = 'several'


def paper_lines(frames: frame.Frames) -> pd.DataFrame:
  """Each row with published figures at each scale at which it was run.

  A run repeats a row where model, data, split and examples a client are the
  row's; rows on data that stand in for the paper's have its figures. Of several
  runs of DP-FedAvg, those with Poisson cohorts count, and of these those with
  the ε of the row. Runs that are not finished, were audited or have an
  aggregator of a user's own do not count.

  Args:
    frames: The runs.

  Returns:
    A line for each row and scale, in the order of the paper, the best evidence
    of a row first, with the columns that `_line` and `_figures` name.
  """
  runs = frames.runs
  runs = runs[
    runs['is_complete'] & ~runs['is_audited'] & ~runs['has_own_aggregator']
  ]
  norms = frames.rounds[frames.rounds['round_num'] == FIGURE_ROUND + 1]
  norms = norms.set_index('run')
  runs = runs.assign(
    spread_at=norms['update_norm_std'] / norms['update_norm_mean'],
    std_at=norms['update_norm_std'],
  )
  last = frames.rounds[frames.rounds['round_num'] == LAST_FIGURE_ROUND]
  accuracy = runs.index.to_series().map(last.set_index('run')['accuracy'])
  runs = runs.assign(early_drop=runs['fed_avg_run'].map(accuracy) - accuracy)
  runs = equal_path.with_equal_path(runs, frames.rounds)
  lines = [
    _line(row, part)
    for row in ROWS
    for _, part in runs[of_row(runs, row)].groupby('series', sort=False)
  ]
  table = pd.DataFrame(lines)
  if table.empty:
    return table
  # With a drop, then the most seeds, then the largest scale.
  ranked = table.assign(has_drop=table['clipping_drop'].notna()).sort_values(
    ['has_drop', 'num_seeds', 'examples'], ascending=False, kind='stable'
  )
  places = {row.name: place for place, row in enumerate(ROWS)}
  return ranked.sort_values(
    'row', key=lambda names: names.map(places), kind='stable', ignore_index=True
  )


def headlines(lines: pd.DataFrame) -> pd.DataFrame:
  """The best evidence of each row: the most seeds, then the largest scale."""
  return lines.drop_duplicates('row')


def once(lines: pd.DataFrame, keep: str = 'first') -> pd.DataFrame:
  """Without the lines whose runs another line has: two rows can share them."""
  return lines[~lines['runs'].duplicated(keep=keep)]


def has_little_to_lose(fed_avg: margins.Estimate | str | None) -> bool:
  """Whether FedAvg itself is near chance."""
  return isinstance(fed_avg, margins.Estimate) and fed_avg.mean < 3 * CHANCE


def is_near_chance(line: Mapping[str, Any], figure: str) -> bool:
  """Whether a figure says nothing: its model is near chance, or FedAvg is.

  Args:
    line: A line of `paper_lines`.
    figure: `fed_avg`, `clipping_drop` or `dp_drop`.
  """
  left = line[_MODELS[figure]]
  return (
    isinstance(left, margins.Estimate) and left.mean < 2 * CHANCE
  ) or has_little_to_lose(line['fed_avg'])


def not_run(table: int, lines: pd.DataFrame) -> list[str]:
  """The titles of those rows of a table of the paper that were not run."""
  shown = set() if lines.empty else set(lines['title'])
  return [
    _title(row)
    for row in _PUBLISHED.values()
    if row.table == table and _title(row) not in shown
  ]


def of_row(runs: pd.DataFrame, row: experiment_table.Row) -> pd.Series:
  """Which runs have the model, data, split and client size of a row."""
  split = row.split
  same = (
    (runs['model'] == row.model)
    & (runs['task'] == split.task)
    & (runs['partition'] == split.partition)
  )
  if split.examples_per_client is not None:
    same &= runs['examples_per_client'] == split.examples_per_client
  return same


def published(row: str) -> experiment_table.Row:
  """The row of the paper that has the figures of a row."""
  found = experiment_table.ROWS[row]
  return _PUBLISHED[found.stands_for or found.name]


def reductions(line: pd.Series) -> str:
  """Where a line departs from what the paper states, whose value is in ()."""
  departures = []
  if line['data'] != line['paper_data']:
    departures.append(f'{line["data"]} for {line["paper_data"]}')
  for name, of_paper in line['paper_scale'].items():
    if not math.isnan(line[name]) and line[name] != of_paper:
      departures.append(f'{name} = {line[name]:g} ({of_paper})')
  delta, of_paper = line['target_delta'], line['paper_delta']
  if not math.isnan(delta) and delta != of_paper:
    departures.append(f'δ = {format_delta(delta)} ({format_delta(of_paper)})')
  return ', '.join(departures) or 'none'


def format_delta(delta: float) -> str:
  """A δ as 1e-5 or 2.5e-5."""
  mantissa, exponent = f'{delta:.2e}'.split('e')
  return f'{float(mantissa):g}e{int(exponent)}'


def _scale_name(run: pd.Series) -> str:
  """The named scale of a run; P, Q, batch and T where it has none."""
  if run['named'] is not None:
    return run['named'].scale.name
  cohort, steps, batch, rounds = run['scale']
  return f'P = {cohort}, Q = {steps}, batch = {batch}, T = {rounds}'


def _line(row: experiment_table.Row, part: pd.DataFrame) -> dict:
  """What a row is like at one scale.

  Args:
    row: The row.
    part: The finished runs, which differ in the seed and the algorithm.
  """
  of_table = published(row.name)
  any_run = part.iloc[0]
  cohort, steps, batch, rounds = any_run['scale']
  full = experiment_table.SCALES['paper'].settings
  of_paper = {
    'N': of_table.split.num_clients,
    'P': of_table.clients_per_round.value,
    'Q': full['local_steps'].value,
    'batch': full['batch_size'].value,
  }
  ours = {'N': any_run['num_clients'], 'P': cohort, 'Q': steps, 'batch': batch}
  return {
    'row': row.name,
    # None where the row is ours.
    'table': row.table,
    'title': _title(of_table),
    'model': any_run['model_name'],
    'data': any_run['data'],
    'split': any_run['split'],
    'is_iid': any_run['is_iid'],
    'paper_data': titles.DATA_NAMES[of_table.split.task],
    'paper_fed_avg': of_table.fed_avg,
    'paper_clipping_drop': of_table.clipping_drop,
    'paper_dp_drop': of_table.dp_drop,
    'paper_epsilon': of_table.epsilon,
    'paper_delta': of_table.delta.value,
    'paper_scale': of_paper,
    **ours,
    'T': rounds,
    'scale': any_run['scale'],
    'scale_name': _scale_name(any_run),
    'is_paper_scale': ours == of_paper,
    # Gradients of single examples, in a run.
    'examples': math.prod(any_run['scale']),
    'num_test_examples': any_run['num_test_examples'],
    'num_parameters': any_run['num_parameters'],
    'runs': tuple(part.index),
    **_figures(row, part),
  }


def _figures(row: experiment_table.Row, part: pd.DataFrame) -> dict:
  """What a row came to at one scale.

  The figures over seeds are `Estimate`s, None where not run, or `SEVERAL`:
  final accuracies by algorithm, drops, that by clipping after
  `LAST_FIGURE_ROUND` rounds (`early_drop`), FedAvg's accuracy where it has
  moved as far as CE-FedAvg at T (`equal_path`) and by how much CE-FedAvg ends
  above that (`equal_path_lead`). The others are means: the spread of the norms,
  std / mean, in FedAvg; that and the standard deviation at `FIGURE_ROUND`; the
  share that CE-FedAvg clips. The rest is of the first run of DP-FedAvg.
  """
  plain, clipped, private = (
    part[part['algorithm'] == name]
    for name in ('fed_avg', 'ce_fed_avg', 'dp_fed_avg')
  )
  if row.dp_drop is None:
    private = private[:0]
  for column, value in (
    ('privacy_sampling', 'poisson'),
    ('target_epsilon', row.epsilon),
  ):
    preferred = private[private[column] == value]
    private = preferred if len(preferred) else private
  noise = private.iloc[0] if len(private) else pd.Series(dtype=object)
  return {
    # Of one that is still being run, those that have both.
    'num_seeds': len(
      set(plain['seed']) & set(clipped['seed']) or set(plain['seed'])
    ),
    'fed_avg': _estimate(plain, 'final_accuracy'),
    'ce_fed_avg': _estimate(clipped, 'final_accuracy'),
    'dp_fed_avg': _estimate(private, 'final_accuracy'),
    'clipping_drop': _estimate(clipped, 'drop'),
    'dp_drop': _estimate(private, 'dp_drop'),
    'early_drop': _estimate(clipped, 'early_drop'),
    'equal_path': _estimate(clipped, 'equal_path_accuracy'),
    'equal_path_lead': _estimate(clipped, 'equal_path_lead'),
    'spread': plain['relative_spread'].mean(),
    'spread_at': plain['spread_at'].mean(),
    'std_at': plain['std_at'].mean(),
    'clipped_fraction': clipped['clipped_fraction'].mean(),
    **{
      key: noise.get(f'privacy_{key}', math.nan)
      for key in ('noise_multiplier', 'target_delta')
    },
    'epsilon': noise.get('epsilon_spent', math.nan),
  }


def _estimate(runs: pd.DataFrame, column: str) -> margins.Estimate | str | None:
  """A figure over seeds; two runs of one seed are never averaged."""
  if runs['seed'].duplicated().any():
    return SEVERAL
  return margins.estimate(runs[column])


def _title(row: experiment_table.Row) -> str:
  """Model, data and split of a published row, by the paper's names."""
  model = titles.MODEL_NAMES[row.model]
  split = 'IID' if row.split.is_iid else 'non-IID'
  return f'{model}, {titles.DATA_NAMES[row.split.task]}, {split}'
