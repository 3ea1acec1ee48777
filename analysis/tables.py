"""The tables of the pages on the paper's rows.

`Evidence.lines` has a line for each row of the paper and scale at which it was
run. A table is a selection of lines, and of columns by `cells`.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from analysis import experiments, stats
from analysis.stats import Runs

# In percent, of ten classes. A model below twice chance hardly knows anything,
# and where FedAvg is below three times chance there is little to lose.
CHANCE = 10.0
NEAR_CHANCE = 'near chance'
NOT_RUN = 'not run'
# What a cell says where runs of one setting and seed cannot be told apart.
_SEVERAL = 'several'
VERDICTS = ('holds', 'does not hold', 'not decided')

# The algorithm whose model a figure is of.
_MODELS = {
  'fed_avg': 'fed_avg',
  'clipping_drop': 'ce_fed_avg',
  'dp_drop': 'dp_fed_avg',
}
# "Many layers, has convolution layers, skip connections, etc" (Sec. 4).
_STRUCTURE = {'MLP': 0, 'AlexNet': 1, 'MobileNetV2': 2, 'ResNet-18': 2}
# Of Tables 3 and 4.
_LAYERS = {'MLP': 2, 'AlexNet': 7, 'ResNet-18': 18, 'MobileNetV2': 24}

_Line = Mapping[str, Any]
# What the paper says of two drops: in short, the drop, what both lines share,
# and whether a pair tests it, the first with the drop that is called smaller.
_FINDINGS: Mapping[
  str, tuple[str, str, Sequence[str], Callable[[_Line, _Line], bool]]
] = {
  # Table 2.
  'split': (
    'clipping costs more on non-IID data',
    'clipping_drop',
    ('table', 'model', 'data'),
    lambda one, two: one['table'] == 2 and one['is_iid'] > two['is_iid'],
  ),
  # Table 2.
  'data': (
    'clipping costs more on CIFAR-10',
    'clipping_drop',
    ('table', 'model', 'is_iid'),
    lambda one, two: (
      one['table'] == 2
      and (one['paper_data'], two['paper_data']) == ('EMNIST', 'CIFAR-10')
    ),
  ),
  # Sec. 2.2 and 4; Table 4 repeats AlexNet and ResNet-18 of Table 2.
  'structure': (
    'structured models lose less by clipping',
    'clipping_drop',
    ('table', 'data', 'is_iid'),
    lambda one, two: (
      _STRUCTURE[one['model']] > _STRUCTURE[two['model']]
      and (two['table'], two['model']) != (4, 'AlexNet')
    ),
  ),
  # Tables 3 and 4. Of a pair with more of one and less of the other it says
  # nothing.
  'size': (
    'models with more parameters and/or layers lose more by noise',
    'dp_drop',
    ('table',),
    lambda one, two: (
      one['table'] in (3, 4)
      and one['num_parameters'] < two['num_parameters']
      and _LAYERS[one['model']] < _LAYERS[two['model']]
    ),
  ),
}

# Columns of a table: by title the column of the lines and how a cell says it.
# '±' is for an `Estimate`, '' for a text, anything else the format of a number.
_Columns = Mapping[str, tuple[str, str]]

_CLIPPING: _Columns = {
  'row': ('row', ''),
  'scale': ('scale', ''),
  'seeds': ('num_seeds', ''),
  'test images': ('num_test_examples', ',.0f'),
  'FedAvg (%)': ('fed_avg', '±'),
  'CE-FedAvg (%)': ('ce_fed_avg', '±'),
  'drop, paper': ('paper_clipping_drop', '.2f'),
  'drop, ours': ('clipping_drop', '±'),
  'FedAvg at equal path (%)': ('equal_path', '±'),
  'CE-FedAvg above FedAvg at equal path': ('equal_path_lead', '±'),
  'clipped (%)': ('clipped', '.0f'),
  'std / mean of norms (%)': ('spread', '.1f'),
  'cosine of two updates': ('cosine_at', '.3f'),
  'mean of clipped updates / c': ('mean_update', '.2f'),
}
_NOISE: _Columns = {
  'row': ('row', ''),
  'scale': ('scale', ''),
  'seeds': ('dp_seeds', ''),
  'd': ('num_parameters', ',.0f'),
  'z': ('noise_multiplier', '.3g'),
  'ε': ('epsilon', ''),
  'noise / c': ('noise_over_c', '.0f'),
  'noise / signal': ('noise_over_signal', '.1f'),
  'mean of clipped updates / c': ('mean_update', '.2f'),
  'DP-FedAvg (%)': ('dp_fed_avg', '±'),
  'drop, paper': ('paper_dp_drop', '.2f'),
  'drop, ours': ('dp_drop', '±'),
}
_PUBLISHED: _Columns = {
  'model': ('model', ''),
  'data': ('data', ''),
  'clients': ('split', ''),
  'FedAvg, paper (%)': ('paper_fed_avg', '.2f'),
  'FedAvg, ours (%)': ('fed_avg', ''),
  'clipping drop, paper': ('paper_clipping_drop', '.2f'),
  'clipping drop, ours': ('clipping_drop', ''),
  'DP drop, paper': ('paper_dp_drop', '.2f'),
  'DP drop, ours': ('dp_drop', ''),
  'ε, paper': ('paper_epsilon', 'g'),
  'ε, ours': ('epsilon', ''),
  'P, Q, batch, T': ('size', ''),
  'seeds': ('num_seeds', ''),
}


class Evidence:
  """What the pages are made of.

  Attributes:
    found: All runs.
    rows: The finished runs of the table that are of the paper, not of the
      systems beside it.
    lines: Those of `_lines`, of the rows that are in the paper's tables.
    noisy: The same of runs of DP-FedAvg with the noise on the mean that P = 80
      has, in place of those with the noise of their own P.
  """

  def __init__(self, found: Runs):
    """Raises ValueError where there is no run of a row of the paper."""
    table = found.table
    self.found = found
    self.rows = table[
      ~table['row'].isin(experiments.SYSTEM_ROWS) & table['is_complete']
    ]
    self.lines = _lines(self.rows, is_study=False)
    self.noisy = _lines(self.rows, is_study=True)
    if self.lines.empty:
      raise ValueError('there is no finished run of a row of the paper')


def cells(lines: pd.DataFrame, columns: _Columns) -> pd.DataFrame:
  """The texts of some columns of lines, under their titles."""
  return pd.DataFrame(
    {
      title: [_cell(value, spec) for value in lines[column]]
      for title, (column, spec) in columns.items()
    }
  )


def _cell(value: Any, spec: str) -> str:
  if spec == '±':
    return NOT_RUN if value is None else str(value)
  if spec:
    return stats.number(value, spec)
  return stats.MISSING if pd.isna(value) else str(value)


def _lines(table: pd.DataFrame, *, is_study: bool) -> pd.DataFrame:
  """Each row in the paper's tables at each scale at which it was run.

  A run repeats a row where model, data, split and examples a client are the
  row's; rows on data that stand in for the paper's have its figures. Runs that
  were audited or have an aggregator of a user's own do not count, nor do runs
  with variants. With `is_study`, the runs of DP-FedAvg are those with the noise
  on the mean that the paper's P has.

  Returns:
    A line for each row and scale as `_line` has it, in the order of the paper,
    the best evidence of a row first: with a drop, the most seeds, and then the
    largest scale.
  """
  is_simulated = table['noise_cohort'] == experiments.PAPERS_CLIENTS_PER_ROUND
  has_papers_noise = is_simulated | table['variants'].isin(
    experiments.NOISE_VARIANTS
  )
  counts = table['variants'].eq('') & ~has_papers_noise
  if is_study:
    counts = counts.mask(table['is_private'], has_papers_noise)
  table = table[counts & ~table['is_audited'] & ~table['own_aggregator']]
  lines = [
    _line(row, part, is_study)
    for row in experiments.ROWS
    for _, part in table[of_row(table, row.settings)].groupby(
      'series', sort=False
    )
  ]
  if is_study:
    lines = [line for line in lines if line['dp_fed_avg'] is not None]
  places = {row.name: place for place, row in enumerate(experiments.ROWS)}
  lines.sort(
    key=lambda line: (
      places[line['row']],
      line['clipping_drop'] is None,
      -line['num_seeds'],
      -line['examples'],
    )
  )
  return pd.DataFrame(lines)


def of_row(table: pd.DataFrame, row: Mapping[str, Any]) -> pd.Series:
  """Which runs have the model, data, split and client size of a row."""
  return (
    (table['model'] == row['model'])
    & (table['data'] == experiments.DATA_NAMES[row['task']])
    & (table['partition'] == row['partition'])
    & (table['examples_per_client'] == row['examples_per_client'])
  )


def _line(
  row: experiments.Row, part: pd.DataFrame, is_study: bool
) -> dict[str, Any]:
  """What a row is like and came to at one scale.

  The figures over seeds are `Estimate`s, None where not run, or `_SEVERAL`:
  final accuracies by algorithm, drops, and figures at equal path. The others
  are means: of FedAvg the spread of the norms in percent, and the figures at
  `stats.FIGURE_ROUND`; the share that CE-FedAvg clips in percent, and its mean
  update over c. Noise and ε are those of the first run of DP-FedAvg: of
  several, those with Poisson cohorts count, and of these those with the ε of
  the row. The runs of `part` differ in the seed and the algorithm.
  """
  of_paper = experiments.SETTINGS[row.paper]
  plain, clipped, private = (
    part[part['algorithm'] == name]
    for name in ('fed_avg', 'ce_fed_avg', 'dp_fed_avg')
  )
  if row.dp_drop is None:
    private = private[:0]
  for column, value in (
    ('sampling', 'poisson'),
    ('target_epsilon', of_paper['target_epsilon']),
  ):
    preferred = private[private[column] == value]
    private = preferred if len(preferred) else private
  multiplier, epsilon = (
    private[key].iloc[0] if len(private) else math.nan
    for key in ('noise_multiplier', 'epsilon')
  )
  run = part.iloc[0]
  ours = {
    'P': int(run['clients_per_round']),
    'Q': int(run['local_steps']),
    'batch': int(run['batch_size']),
    'T': int(run['num_rounds']),
  }
  scale = run['scale'] or ', '.join(f'{key} = {n}' for key, n in ours.items())
  length = multiplier * run['num_parameters'] ** 0.5 / ours['P']
  keys = ['path', 'num_rounds', 'server_learning_rate', 'clipping_norm']
  steps = [
    path[-1] / (num_rounds * rate * norm)
    for path, num_rounds, rate, norm in clipped[keys].itertuples(index=False)
    if path
  ]
  both = {*plain['seed']} & {*clipped['seed']}
  return {
    'row': row.name,
    'table': row.table,
    'model': run['model_name'],
    'data': run['data'],
    'split': run['split'],
    'is_iid': run['is_iid'],
    'paper_data': experiments.DATA_NAMES[of_paper['task']],
    'paper_fed_avg': row.fed_avg,
    'paper_clipping_drop': row.clipping_drop,
    'paper_dp_drop': row.dp_drop,
    'paper_epsilon': of_paper['target_epsilon'],
    **ours,
    'size': ', '.join(map(str, ours.values())),
    'scale': f'{scale}, the noise of P = 80' if is_study else scale,
    # Gradients of single examples, in a run.
    'examples': math.prod(ours.values()),
    'num_test_examples': run['num_test_examples'],
    'num_parameters': run['num_parameters'],
    'runs': tuple(part.index),
    # Of a scale that is still being run, the seeds that have both.
    'num_seeds': len(both or {*plain['seed']}),
    'fed_avg': _over_seeds(plain, 'final_score'),
    'ce_fed_avg': _over_seeds(clipped, 'final_score'),
    'dp_fed_avg': _over_seeds(private, 'final_score'),
    'clipping_drop': _over_seeds(clipped, 'drop'),
    'dp_drop': _over_seeds(private, 'dp_drop'),
    'equal_path': _over_seeds(clipped, 'equal_path_accuracy'),
    'equal_path_lead': _over_seeds(clipped, 'equal_path_lead'),
    'spread': 100 * plain['relative_spread'].mean(),
    **{key: plain[key].mean() for key in ('spread_at', 'std_at', 'cosine_at')},
    'clipped': 100 * clipped['clipped_fraction'].mean(),
    'mean_update': sum(steps) / len(steps) if steps else math.nan,
    'noise_multiplier': multiplier,
    'noise_over_c': length,
    'noise_over_signal': length / ours['T'] ** 0.5,
    'epsilon': 'as P = 80' if is_study else _epsilon(epsilon),
  }


def _epsilon(value: float) -> str:
  return NOT_RUN if math.isnan(value) else stats.at_most(value)


def _over_seeds(part: pd.DataFrame, column: str) -> stats.Estimate | str | None:
  """A figure over seeds; two runs of one seed are never averaged."""
  if part['seed'].duplicated().any():
    return _SEVERAL
  return stats.estimate(part[column])


def is_near_chance(line: _Line, figure: str) -> bool:
  """Whether a figure of `_MODELS` says nothing: its model or FedAvg guesses."""
  return any(
    isinstance(line[model], stats.Estimate)
    and line[model].mean < times * CHANCE
    for model, times in ((_MODELS[figure], 2), ('fed_avg', 3))
  )


def learned(lines: pd.DataFrame, figure: str) -> pd.DataFrame:
  """The lines of which a figure is not near chance."""
  is_near = [is_near_chance(each, figure) for each in lines.to_dict('records')]
  return lines[~pd.Series(is_near, lines.index, dtype=bool)]


def best_scale(lines: pd.DataFrame) -> pd.DataFrame:
  """The best evidence of each row: the most seeds, then the largest scale."""
  return lines.drop_duplicates('row')


def published(found: Evidence, number: int) -> pd.DataFrame:
  """A table of the paper beside ours: the best evidence of each row.

  Where DP-FedAvg was not run at its scale, or is near chance, the drop by noise
  is that with the noise on the mean of the paper's P there, marked *.
  """
  lines = found.lines[found.lines['table'] == number]
  shown = []
  for line in best_scale(lines).to_dict('records'):
    if line['dp_drop'] is None or is_near_chance(line, 'dp_drop'):
      for other in found.noisy.to_dict('records'):
        if (other['row'], other['size']) == (line['row'], line['size']):
          line |= {'dp_drop': f'{_learned(other, "dp_drop")} *'}
          line |= {'epsilon': other['epsilon']}
    shown.append(line | {figure: _learned(line, figure) for figure in _MODELS})
  has_noise = lines['paper_dp_drop'].notna().any()
  columns = {
    title: column
    for title, column in _PUBLISHED.items()
    if has_noise or title.split(',')[0] not in ('DP drop', 'ε')
  }
  return cells(pd.DataFrame(shown, columns=lines.columns), columns)


def _learned(line: _Line, figure: str) -> str:
  """A figure to stand beside the paper's, or that it says nothing."""
  if isinstance(line[figure], stats.Estimate) and is_near_chance(line, figure):
    return NEAR_CHANCE
  return _cell(line[figure], '±')


def clipping(found: Evidence) -> pd.DataFrame:
  """What clipping costs at every scale, with what may explain it.

  Without what is near chance, and without lines whose runs another line has:
  two rows can share them.
  """
  lines = learned(found.lines, 'clipping_drop')
  return cells(lines[~lines['runs'].duplicated()], _CLIPPING)


def noise(found: Evidence) -> pd.DataFrame:
  """What noise costs at every scale, and how large it is.

  noise / c is the expected norm of the noise on the mean update over c, and
  noise / signal that of T rounds over what T updates can be at most. Without
  what is near chance.
  """
  lines = pd.concat([found.lines, found.noisy], ignore_index=True)
  lines = learned(lines[lines['noise_multiplier'].notna()], 'dp_drop')
  seeds = [getattr(it, 'num_seeds', stats.MISSING) for it in lines['dp_drop']]
  return cells(lines.assign(dp_seeds=seeds), _NOISE)


def comparisons(found: Evidence) -> pd.DataFrame:
  """Every pair of drops that tests a finding, at each scale that both have.

  Without what is near chance. A comparison is decided where 0 is outside of the
  95 % interval of the difference, with three seeds of each drop. A run for T
  rounds begins as a longer one does, so that of several scales of two rows one
  comparison counts: one that can be tested, with the most seeds, and then the
  most examples. Whether it holds plays no part.
  """
  lines = [
    _comparison(name, *pair)
    for name, (_, drop, same, tests) in _FINDINGS.items()
    for table in (found.lines, found.noisy)
    if drop == 'dp_drop' or table is found.lines
    for pair in _pairs(learned(table, drop), ('size', *same))
    if tests(*pair)
    and all(isinstance(line[drop], stats.Estimate) for line in pair)
  ]
  table = pd.DataFrame(lines)
  if table.empty:
    return table
  ranked = table.assign(is_tested=table['verdict'].isin(VERDICTS)).sort_values(
    ['is_tested', 'num_seeds', 'examples'], ascending=False, kind='stable'
  )
  pair = ['of', 'should lose less', 'should lose more']
  counts = table.index.isin(ranked.drop_duplicates(pair).index)
  table['counts'] = pd.Series(counts).map({True: 'yes', False: 'no'})
  return table.drop(columns=['num_seeds', 'examples'])


def _pairs(
  lines: pd.DataFrame, same: Iterable[str]
) -> list[tuple[_Line, _Line]]:
  """The pairs of lines that share some values."""
  return [
    (one, two)
    for one, two in itertools.product(lines.to_dict('records'), repeat=2)
    if all(one[key] == two[key] for key in same)
  ]


def _comparison(name: str, smaller: _Line, larger: _Line) -> dict[str, Any]:
  """One line of `comparisons`."""
  drop = _FINDINGS[name][1]
  paper = [line[f'paper_{drop}'] for line in (smaller, larger)]
  less, more = smaller[drop], larger[drop]
  difference = more.mean - less.mean
  margin = stats.difference_margin(more, less)
  if paper[0] > paper[1]:
    verdict = 'contrary in the paper'
  elif math.isnan(margin):
    verdict = 'too few seeds'
  elif abs(difference) <= margin:
    verdict = 'not decided'
  else:
    verdict = 'holds' if difference > 0 else 'does not hold'
  return {
    'of': name,
    'should lose less': smaller['row'],
    'should lose more': larger['row'],
    'scale': smaller['scale'],
    'paper': f'{paper[0]:.2f} and {paper[1]:.2f}',
    'ours': f'{less.mean:.2f} and {more.mean:.2f}',
    'difference': stats.with_margin(difference, margin),
    'verdict': verdict,
    'num_seeds': min(less.num_seeds, more.num_seeds),
    'examples': smaller['examples'],
  }


def findings(found: Evidence) -> pd.DataFrame:
  """For each finding of the paper, how many comparisons decide it."""
  table = comparisons(found)
  if table.empty:
    return table
  table = table[table['counts'] == 'yes']
  found = pd.crosstab(table['of'], table['verdict'])
  found = found.reindex([*_FINDINGS], columns=VERDICTS, fill_value=0)
  found.insert(0, 'finding', [title for title, *_ in _FINDINGS.values()])
  found.insert(1, 'can be tested', found[[*VERDICTS]].sum(axis=1))
  return found.reset_index()


def norms(found: Evidence) -> pd.DataFrame:
  """What the paper says of the norms at t = 16 (Sec. 2.2), by pairs of rows.

  Of our rows of Table 2 with one P, Q and batch that are not near chance.
  """
  lines = learned(found.lines, 'fed_avg')
  lines = lines[(lines['table'] == 2) & lines['clipping_drop'].notna()]
  # Runs of a row at another T can begin with the same rounds.
  lines = lines.sort_values('T', kind='stable').drop_duplicates(
    ['row', 'P', 'Q', 'batch'], keep='last'
  )
  table = []
  for statement, name, smaller in (
    ('less on EMNIST (here MNIST) than on CIFAR-10', 'paper_data', 'EMNIST'),
    ('less on IID data than on non-IID data', 'is_iid', True),
    ('less with ResNet-18 than with AlexNet', 'model', 'ResNet-18'),
  ):
    same = {'model', 'paper_data', 'is_iid', 'P', 'Q', 'batch'} - {name}
    pairs = [
      (one, two)
      for one, two in _pairs(lines, same)
      if one[name] == smaller != two[name]
    ]
    table.append(
      {
        'the norms spread, in the paper': statement,
        'pairs of rows': len(pairs),
        'so by std / mean in': sum(
          one['spread_at'] < two['spread_at'] for one, two in pairs
        ),
        'so by std in': sum(
          one['std_at'] < two['std_at'] for one, two in pairs
        ),
      }
    )
  return pd.DataFrame(table)
