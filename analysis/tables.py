"""The tables of the pages on the paper's rows.

`Evidence.lines` has a line for each row of the paper and scale at which it was
run. A table is a selection of lines, and of columns by `stats.cells`.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from analysis import experiments, stats
from analysis.stats import Columns, cells

# In percent, of ten classes. A model below twice chance hardly knows anything,
# and where FedAvg is below three times chance there is little to lose.
CHANCE = 10.0
NEAR_CHANCE = 'near chance'
_PAPERS_NOISE = 'as P = 80'
VERDICTS = ('holds', 'does not hold', 'not decided')

# The figures that stand beside the paper's: the algorithm whose runs have each.
_COMPARED = {
  'fed_avg': 'fed_avg',
  'clipping_drop': 'ce_fed_avg',
  'dp_drop': 'dp_fed_avg',
}
# The rows of the paper's tables, in its order, and whose runs a row has.
_PAPER = pd.DataFrame(experiments.ROWS).add_prefix('paper_')
_PAPER = _PAPER.assign(
  place=_PAPER.index,
  row=_PAPER['paper_name'],
  table=[row.table for row in experiments.ROWS],
  shared=_PAPER['paper_name'].replace(experiments.SHARED),
)
# "Many layers, has convolution layers, skip connections, etc" (Sec. 4).
_STRUCTURE = {'MLP': 0, 'AlexNet': 1, 'MobileNetV2': 2, 'ResNet-18': 2}
# Of Tables 3 and 4.
_LAYERS = {'MLP': 2, 'AlexNet': 7, 'ResNet-18': 18, 'MobileNetV2': 24}

# What the paper says of two drops: in short, the drop, what both lines share,
# and which pairs test it; the columns of the line with the drop that is called
# larger end in `_more`.
_FINDINGS: Mapping[str, tuple[str, str, Sequence[str], str]] = {
  # Table 2.
  'split': (
    'clipping costs more on non-IID data',
    'clipping_drop',
    ('table', 'model_name', 'data'),
    'table == 2 and split == "IID" and split_more == "non-IID"',
  ),
  # Table 2.
  'data': (
    'clipping costs more on CIFAR-10',
    'clipping_drop',
    ('table', 'model_name', 'split'),
    'table == 2 and paper_data == "EMNIST" and paper_data_more == "CIFAR-10"',
  ),
  # Sec. 2.2 and 4; Table 4 repeats AlexNet and ResNet-18 of Table 2.
  'structure': (
    'structured models lose less by clipping',
    'clipping_drop',
    ('table', 'data', 'split'),
    'structure > structure_more'
    ' and not (table == 4 and model_name_more == "AlexNet")',
  ),
  # Tables 3 and 4. Of a pair with more of one and less of the other it says
  # nothing.
  'size': (
    'models with more parameters and/or layers lose more by noise',
    'dp_drop',
    ('table',),
    'table >= 3 and num_parameters < num_parameters_more'
    ' and layers < layers_more',
  ),
}

_CLIPPING: Columns = {
  'row': ('row', ''),
  'scale': ('scale', ''),
  'seeds': ('num_seeds', ''),
  'test images': ('num_test_examples', ',.0f'),
  'FedAvg (%)': ('fed_avg', ''),
  'CE-FedAvg (%)': ('ce_fed_avg', ''),
  'drop, paper': ('paper_clipping_drop', '.2f'),
  'drop, ours': ('clipping_drop', ''),
  'FedAvg at equal path (%)': ('equal_path', ''),
  'CE-FedAvg above FedAvg at equal path': ('equal_path_lead', ''),
  'clipped (%)': ('clipped', '.0f'),
  'std / mean of norms (%)': ('spread', '.1f'),
  'cosine of two updates': ('cosine_at', '.3f'),
  'mean of clipped updates / c': ('mean_update', '.2f'),
}
_NOISE: Columns = {
  'row': ('row', ''),
  'scale': ('scale', ''),
  'seeds': ('dp_seeds', ''),
  'd': ('num_parameters', ',.0f'),
  'z': ('noise_multiplier', '.3g'),
  'ε': ('epsilon', ''),
  'noise / c': ('noise_over_c', '.0f'),
  'noise / signal': ('noise_over_signal', '.1f'),
  'mean of clipped updates / c': ('mean_update', '.2f'),
  'DP-FedAvg (%)': ('dp_fed_avg', ''),
  'drop, paper': ('paper_dp_drop', '.2f'),
  'drop, ours': ('dp_drop', ''),
}
_PUBLISHED: Columns = {
  'model': ('model_name', ''),
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
    table: That of all runs.
    rows: The finished runs of the table that are of the paper, not of the
      systems beside it.
    lines: Those of `_lines`, of the rows that are in the paper's tables.
    noisy: The same of runs of DP-FedAvg with the noise on the mean that P = 80
      has, in place of those with the noise of their own P.
  """

  def __init__(self, table: pd.DataFrame):
    """Raises ValueError where there is no run of a row of the paper."""
    self.table = table
    self.rows = table[
      ~table['row'].isin(experiments.SYSTEM_ROWS) & table['is_complete']
    ]
    self.lines = _lines(self.rows, is_study=False)
    if self.lines.empty:
      raise ValueError('there is no finished run of a row of the paper')
    noisy = _lines(self.rows, is_study=True)
    self.noisy = self.lines[:0] if noisy.empty else noisy


def _lines(table: pd.DataFrame, *, is_study: bool) -> pd.DataFrame:
  """A line for each row in the paper's tables and scale, best evidence first.

  That is a drop, then the most seeds, then the largest scale. Runs that were
  audited or have an aggregator of a user's own do not count, nor do runs with
  variants. With `is_study`, the runs of DP-FedAvg are those with the noise on
  the mean that the paper's P has.
  """
  cohort = table['noise_clients_per_round']
  has_papers_noise = cohort.eq(experiments.PAPERS_CLIENTS_PER_ROUND)
  has_papers_noise |= table['variants'].isin(experiments.NOISE_VARIANTS)
  counts = table['variants'].eq('') & ~has_papers_noise
  if is_study:
    counts = counts.mask(table['is_private'], has_papers_noise)
  table = table[counts & ~table['is_audited'] & ~table['own_aggregator']]
  shared = table['row'].replace(experiments.SHARED)
  table = table.drop(columns=['row', 'paper_epsilon'])
  table = table.assign(shared=shared, run=table.index)
  groups = _PAPER.merge(table, on='shared').groupby(['place', 'series'])
  lines = pd.DataFrame([_line(part, is_study) for _, part in groups])
  if is_study and len(lines):
    lines = lines[lines['dp_fed_avg'].map(bool)]
  if lines.empty:
    return lines
  order = lines.assign(drops=lines['clipping_drop'].map(bool)).sort_values(
    ['place', 'drops', 'num_seeds', 'examples'],
    ascending=[True, False, False, False],
    kind='stable',
  )
  return lines.loc[order.index].reset_index(drop=True)


def of_row(table: pd.DataFrame, row: str) -> pd.Series:
  """Which runs are of a row, or of one that shares its runs."""
  shared = experiments.SHARED
  return table['row'].replace(shared).eq(shared.get(row, row))


def _line(part: pd.DataFrame, is_study: bool) -> dict[str, Any]:
  """What a row is like and came to at one scale."""
  run = part.iloc[0]
  plain, clipped, private = (
    part[part['algorithm'] == name]
    for name in ('fed_avg', 'ce_fed_avg', 'dp_fed_avg')
  )
  if pd.isna(run['paper_dp_drop']):
    private = part[:0]
  for own in (plain, clipped, private):
    if own['seed'].duplicated().any():
      raise ValueError(
        'a row must have one run of an algorithm and seed, found '
        f'{[*own["run"]]}'
      )
  figures = {
    'fed_avg': stats.estimate(plain['final_score']),
    'ce_fed_avg': stats.estimate(clipped['final_score']),
    'dp_fed_avg': stats.estimate(private['final_score']),
    'clipping_drop': stats.estimate(clipped['drop']),
    'dp_drop': stats.estimate(private['dp_drop']),
    'equal_path': stats.estimate(clipped['equal_path_accuracy']),
    'equal_path_lead': stats.estimate(clipped['equal_path_lead']),
  }
  multiplier, epsilon = math.nan, stats.NOT_RUN
  if len(private):
    multiplier = private['noise_multiplier'].iloc[0]
    epsilon = stats.at_most(private['epsilon'].iloc[0])
  if is_study:
    epsilon = _PAPERS_NOISE
  ours = {
    'P': int(run['clients_per_round']),
    'Q': int(run['local_steps']),
    'batch': int(run['batch_size']),
    'T': int(run['num_rounds']),
  }
  length = multiplier * run['num_parameters'] ** 0.5 / ours['P']
  most = clipped['num_rounds'] * clipped['clipping_norm']
  most *= clipped['server_learning_rate']
  lengths = clipped['path'].map(lambda path: path[-1] if path else math.nan)
  return {
    **run[[*_PAPER]],
    **run[['model_name', 'data', 'split']],
    **run[['num_parameters', 'num_test_examples']],
    'structure': _STRUCTURE[run['model_name']],
    'layers': _LAYERS[run['model_name']],
    **ours,
    'size': ', '.join(map(str, ours.values())),
    'scale': run['scale'] + (', the noise of P = 80' if is_study else ''),
    # Gradients of single examples, in a run.
    'examples': math.prod(ours.values()),
    'runs': tuple(part['run']),
    # Of a scale that is still being run, the seeds that have both.
    'num_seeds': (figures['clipping_drop'] or figures['fed_avg']).num_seeds,
    **figures,
    'spread': 100 * plain['relative_spread'].mean(),
    **{key: plain[key].mean() for key in ('spread_at', 'std_at', 'cosine_at')},
    'clipped': 100 * clipped['clipped_fraction'].mean(),
    'mean_update': (lengths / most).mean(),
    'noise_multiplier': multiplier,
    'noise_over_c': length,
    'noise_over_signal': length / ours['T'] ** 0.5,
    'epsilon': epsilon,
  }


def learned(lines: pd.DataFrame, figure: str) -> pd.DataFrame:
  """The lines of which a figure of `_COMPARED` is not near chance."""
  plain, own = (
    lines[name].map(lambda each: each.mean)
    for name in ('fed_avg', _COMPARED[figure])
  )
  return lines[~(plain < 3 * CHANCE) & ~(own < 2 * CHANCE)]


def best_scale(lines: pd.DataFrame) -> pd.DataFrame:
  """The best evidence of each row: the most seeds, then the largest scale."""
  return lines.drop_duplicates('row')


def published(found: Evidence, number: int) -> pd.DataFrame:
  """A table of the paper beside ours: the best evidence of each row.

  Where DP-FedAvg was not run at its scale, or is near chance, the drop by noise
  is that with the noise on the mean of the paper's P there, marked *.
  """
  same = ['row', 'size']
  lines = _told(best_scale(found.lines[found.lines['table'] == number]))
  other = _told(found.noisy).drop_duplicates(same, keep='last')
  other = lines[same].merge(other, 'left').set_axis(lines.index)['dp_drop']
  is_other = lines['dp_drop'].isin([stats.NOT_RUN, NEAR_CHANCE]) & other.notna()
  shown = lines.assign(
    dp_drop=lines['dp_drop'].mask(is_other, other + ' *'),
    epsilon=lines['epsilon'].mask(is_other, _PAPERS_NOISE),
  )
  has_noise = lines['paper_dp_drop'].notna().any()
  columns = {
    title: column
    for title, column in _PUBLISHED.items()
    if has_noise or title.split(',')[0] not in ('DP drop', 'ε')
  }
  return cells(shown, columns)


def _told(lines: pd.DataFrame) -> pd.DataFrame:
  """Lines with the figures beside the paper's as text, if they say anything."""
  texts = {}
  for figure in _COMPARED:
    is_told = lines.index.isin(learned(lines, figure).index)
    is_told |= ~lines[figure].map(bool)
    texts[figure] = lines[figure].map(str).where(is_told, NEAR_CHANCE)
  return lines.assign(**texts)


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
  seeds = [drop.num_seeds or stats.MISSING for drop in lines['dp_drop']]
  return cells(lines.assign(dp_seeds=seeds), _NOISE)


def comparisons(found: Evidence) -> pd.DataFrame:
  """Every pair of drops that tests a finding, at each scale that both have.

  Without what is near chance. A comparison is decided where 0 is outside of the
  95 % interval of the difference, with three seeds of each drop. A run for T
  rounds begins as a longer one does, so that of several scales of two rows one
  comparison counts: one that can be tested, with the most seeds, and then the
  most examples. Whether it holds plays no part.
  """
  lines = []
  for name, (_, drop, same, test) in _FINDINGS.items():
    for table in (found.lines, found.noisy)[: 1 + (drop == 'dp_drop')]:
      known = learned(table, drop)
      pairs = known.merge(known, on=['size', *same], suffixes=('', '_more'))
      for pair in pairs.query(test).to_dict('records'):
        if pair[drop] and pair[f'{drop}_more']:
          lines.append({'of': name} | _comparison(pair, drop))
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


def _comparison(pair: Mapping[str, Any], drop: str) -> dict[str, Any]:
  """One line of `comparisons`."""
  paper = [pair[f'paper_{drop}{end}'] for end in ('', '_more')]
  less, more = pair[drop], pair[f'{drop}_more']
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
    'should lose less': pair['row'],
    'should lose more': pair['row_more'],
    'scale': pair['scale'],
    'paper': f'{paper[0]:.2f} and {paper[1]:.2f}',
    'ours': f'{less.mean:.2f} and {more.mean:.2f}',
    'difference': stats.with_margin(difference, margin),
    'verdict': verdict,
    'num_seeds': min(less.num_seeds, more.num_seeds),
    'examples': pair['examples'],
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
  lines = lines[(lines['table'] == 2) & lines['clipping_drop'].map(bool)]
  # Runs of a row at another T can begin with the same rounds.
  lines = lines.sort_values('T', kind='stable').drop_duplicates(
    ['row', 'P', 'Q', 'batch'], keep='last'
  )
  shared = ['model_name', 'paper_data', 'split', 'P', 'Q', 'batch']
  table = []
  for statement, (column, less) in {
    'less on EMNIST (here MNIST) than on CIFAR-10': ('paper_data', 'EMNIST'),
    'less on IID data than on non-IID data': ('split', 'IID'),
    'less with ResNet-18 than with AlexNet': ('model_name', 'ResNet-18'),
  }.items():
    is_first = lines[column] == less
    same = [key for key in shared if key != column]
    pairs = lines[is_first].merge(
      lines[~is_first], on=same, suffixes=('', '_more')
    )
    figures = ('spread_at', 'std_at')
    # Norms may not have been recorded at t = 16.
    pairs = pairs.dropna(subset=[*figures, *(f'{key}_more' for key in figures)])
    is_less = {key: pairs[key] < pairs[f'{key}_more'] for key in figures}
    table.append(
      {
        'the norms spread, in the paper': statement,
        'pairs of rows': len(pairs),
        'so by std / mean in': is_less['spread_at'].sum(),
        'so by std in': is_less['std_at'].sum(),
      }
    )
  return pd.DataFrame(table)
