"""The paper's rows with our figures: a line for each row and scale.

Every table on the paper's rows is a selection of these lines and columns.
"""

import math
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import pandas as pd

from analysis.runs import experiments, frame, margins, titles

_PUBLISHED = {row.name: row for row in experiments.PUBLISHED_ROWS}

# The round t of Figs. 1 and 2, 0 being the first; the appendix shows others.
FIGURE_ROUND = 16

# In percent, of ten classes. A model below twice that hardly knows anything,
# and where FedAvg is below three times that there is little to lose.
CHANCE = 10.0

# What a cell says where runs of one setting and seed cannot be told apart.
SEVERAL = 'several'

# Of the scale of such a run.
NOISE_TITLE = '{}, the noise of P = 80'
_MATCHED = 'matched_steps'

# The algorithm whose model a figure is of.
_MODELS = {
  'fed_avg': 'fed_avg',
  'clipping_drop': 'ce_fed_avg',
  'dp_drop': 'dp_fed_avg',
}


def paper_rows(frames: frame.Frames) -> pd.DataFrame:
  """Each row with published figures at each scale at which it was run.

  A run repeats a row where model, data, split and examples a client are the
  row's; rows on data that stand in for the paper's have its figures. Of several
  runs of DP-FedAvg, those with Poisson cohorts count, and of these those with
  the ε of the row. Runs that are not finished, were audited or have an
  aggregator of a user's own do not count, and those with variants only where a
  column says so.

  Args:
    frames: The runs.

  Returns:
    A line for each row and scale, in the order of the paper, the best evidence
    of a row first: with a drop, the most seeds, and then the largest scale. Its
    columns are those that `_line` and `_figures` name.
  """
  return _lines(frames, ())


def noise_rows(frames: frame.Frames) -> pd.DataFrame:
  """The rows that were run with the noise on the mean that P = 80 has.

  At one ε and one P / N a smaller cohort has more noise on its mean update.
  These runs have that of the paper's P, and so a larger ε, which holds.

  Args:
    frames: The runs.

  Returns:
    As from `paper_rows`, with these runs in place of DP-FedAvg's, and scales
    that are named for the noise; empty where there are none.
  """
  lines = _lines(frames, experiments.NOISE_VARIANTS)
  if lines.empty:
    return lines
  lines = lines[lines['table'].notna() & lines['dp_fed_avg'].notna()]
  return lines.assign(scale=lines['scale'].map(NOISE_TITLE.format))


def best_scale(lines: pd.DataFrame) -> pd.DataFrame:
  """The best evidence of each row: the most seeds, then the largest scale."""
  return lines.drop_duplicates('row')


def without_shared(lines: pd.DataFrame) -> pd.DataFrame:
  """Without the lines whose runs another line has: two rows can share them."""
  return lines[~lines['runs'].duplicated()]


def is_near_chance(line: Mapping[str, Any], figure: str) -> bool:
  """Whether a figure says nothing: its model is near chance, or FedAvg is.

  Args:
    line: A line of `paper_rows`.
    figure: `fed_avg`, `clipping_drop` or `dp_drop`.
  """
  return any(
    isinstance(line[model], margins.Estimate)
    and line[model].mean < times * CHANCE
    for model, times in ((_MODELS[figure], 2), ('fed_avg', 3))
  )


def mean_cosines(updates: pd.DataFrame, t: int) -> pd.Series:
  """The mean cosine of two clients' updates in round t, by run.

  The squared norm of the sum of n updates is the sum of their squared norms and
  of the inner products of all pairs: these follow from the norms and the norm
  of the mean. A pair counts by the product of its norms. It is that of what the
  clients sent, and of their updates only where nothing was clipped.
  """
  updates = updates[updates['t'] == t]
  clients = updates[~updates['is_mean']].groupby('run')['update_norm']
  mean = updates[updates['is_mean']].set_index('run')['update_norm']
  squares = clients.apply(lambda norms: np.square(norms).sum())
  inner = (clients.size() * mean) ** 2 - squares
  return inner / (clients.sum() ** 2 - squares)


def of_row(runs: pd.DataFrame, row: experiments.Row) -> pd.Series:
  """Which runs have the model, data, split and client size of a row."""
  return (
    (runs['model'] == row.model)
    & (runs['task'] == row.task)
    & (runs['partition'] == row.partition)
    & (runs['examples_per_client'] == row.examples_per_client)
  )


def _lines(
  frames: frame.Frames, noise_variants: Collection[str]
) -> pd.DataFrame:
  runs = frames.runs
  runs = runs[
    runs['is_complete'] & ~runs['is_audited'] & ~runs['has_own_aggregator']
  ]
  private = runs['variants'].isin(noise_variants or ('',))
  is_plain = runs['variants'].eq('') & ~runs['is_private']
  runs = runs[
    is_plain | (private & runs['is_private']) | runs['variants'].eq(_MATCHED)
  ]
  runs = runs.assign(**_at_rounds(frames, runs))
  plain = runs[runs['variants'] != _MATCHED]
  lines = [
    _line(row, part)
    | _figures(row, part)
    | {'matched_drop': _matched_drop(runs, part)}
    for row in experiments.ROWS
    for _, part in plain[of_row(plain, row)].groupby('series', sort=False)
  ]
  table = pd.DataFrame(lines)
  if table.empty:
    return table
  ranked = table.assign(has_drop=table['clipping_drop'].notna()).sort_values(
    ['has_drop', 'num_seeds', 'examples'], ascending=False, kind='stable'
  )
  places = {row.name: place for place, row in enumerate(experiments.ROWS)}
  return ranked.sort_values(
    'row', key=lambda names: names.map(places), kind='stable', ignore_index=True
  )


def _at_rounds(frames: frame.Frames, runs: pd.DataFrame) -> dict[str, Any]:
  """What is of single rounds of each run."""
  norms = frames.rounds[frames.rounds['round_num'] == FIGURE_ROUND + 1]
  norms = norms.set_index('run')
  return {
    'spread_at': norms['update_norm_std'] / norms['update_norm_mean'],
    'std_at': norms['update_norm_std'],
    'cosine_at': mean_cosines(frames.updates, FIGURE_ROUND),
  }


def _line(row: experiments.Row, part: pd.DataFrame) -> dict[str, Any]:
  """What a row is like at one scale.

  Args:
    row: The row.
    part: The finished runs, which differ in the seed and the algorithm.
  """
  of_table = _PUBLISHED[row.stands_for or row.name]
  run = part.iloc[0]
  of_paper = {
    'N': of_table.num_clients,
    'P': experiments.PAPERS_CLIENTS_PER_ROUND,
    'Q': experiments.PAPERS_LOCAL_STEPS,
    'batch': experiments.PAPERS_BATCH_SIZE,
  }
  ours = {
    'N': run['num_clients'],
    'P': run['clients_per_round'],
    'Q': run['local_steps'],
    'batch': run['batch_size'],
  }
  rounds = run['num_rounds']
  size = 'P = {P}, Q = {Q}, batch = {batch}, T = '.format(**ours)
  return {
    'row': row.name,
    # None where the row is ours.
    'table': row.table,
    # Of the paper, which a row on other data has too.
    'paper_table': of_table.table,
    'model': run['model_name'],
    'data': run['data'],
    'split': run['split'],
    'is_iid': run['is_iid'],
    'paper_data': titles.DATA_NAMES[of_table.task],
    'paper_fed_avg': of_table.fed_avg,
    'paper_clipping_drop': of_table.clipping_drop,
    'paper_dp_drop': of_table.dp_drop,
    'paper_epsilon': of_table.epsilon,
    **ours,
    'T': rounds,
    'scale': run['scale'] or f'{size}{rounds}',
    'is_paper_scale': ours == of_paper,
    # Gradients of single examples, in a run.
    'examples': math.prod([ours['P'], ours['Q'], ours['batch'], rounds]),
    'num_test_examples': run['num_test_examples'],
    'num_parameters': run['num_parameters'],
    'runs': tuple(part.index),
  }


def _figures(row: experiments.Row, part: pd.DataFrame) -> dict[str, Any]:
  """What a row came to at one scale.

  The figures over seeds are `Estimate`s, None where not run, or `SEVERAL`:
  final accuracies by algorithm, drops, and `equal_path_lead`. The others are
  means: the spread of the norms, std / mean, in FedAvg; that, the standard
  deviation and the mean cosine of two updates at `FIGURE_ROUND`; the share that
  CE-FedAvg clips, and its mean update over c. The rest is of the first run of
  DP-FedAvg.
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
  steps = [
    run['path'][-1]
    / (run['num_rounds'] * run['server_learning_rate'] * run['clipping_norm'])
    for run in clipped.to_dict('records')
    if run['path']
  ]
  return {
    # Of one that is still being run, those that have both.
    'num_seeds': len(
      set(plain['seed']) & set(clipped['seed']) or set(plain['seed'])
    ),
    'fed_avg': _estimate(plain, 'final_score'),
    'ce_fed_avg': _estimate(clipped, 'final_score'),
    'dp_fed_avg': _estimate(private, 'final_score'),
    'clipping_drop': _estimate(clipped, 'drop'),
    'dp_drop': _estimate(private, 'dp_drop'),
    'equal_path': _estimate(clipped, 'equal_path_accuracy'),
    'equal_path_lead': _estimate(clipped, 'equal_path_lead'),
    'spread': plain['relative_spread'].mean(),
    'spread_at': plain['spread_at'].mean(),
    'std_at': plain['std_at'].mean(),
    'cosine_at': plain['cosine_at'].mean(),
    'clipped_fraction': clipped['clipped_fraction'].mean(),
    'mean_update': sum(steps) / len(steps) if steps else math.nan,
    **{
      key: noise.get(f'privacy_{key}', math.nan)
      for key in ('noise_multiplier', 'target_delta')
    },
    'epsilon': noise.get('epsilon_spent', math.nan),
  }


def _matched_drop(
  runs: pd.DataFrame, part: pd.DataFrame
) -> margins.Estimate | None:
  """What CE-FedAvg loses with steps as long as FedAvg's."""
  matched = runs[
    runs['variants'].eq(_MATCHED) & runs['plain_run'].isin(part.index)
  ]
  return margins.estimate(matched['drop'])


def _estimate(runs: pd.DataFrame, column: str) -> margins.Estimate | str | None:
  """A figure over seeds; two runs of one seed are never averaged."""
  if runs['seed'].duplicated().any():
    return SEVERAL
  return margins.estimate(runs[column])
