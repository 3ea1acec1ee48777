"""The tables of the reproduction's pages on the paper's rows.

`paper_rows` has a line for each row of the paper and scale at which it was run;
a table is a selection of these lines and columns. A cell is a text.
"""

import functools
import itertools
import math
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from analysis import experiments, stats
from analysis.stats import Runs

_PUBLISHED = {row.name: row for row in experiments.PUBLISHED_ROWS}

# The round t of Figs. 1 and 2, 0 being the first; the appendix shows others.
FIGURE_ROUND = 16

# In percent, of ten classes. A model below twice chance hardly knows anything,
# and where FedAvg is below three times chance there is little to lose.
CHANCE = 10.0
NEAR_CHANCE = 'near chance'
NOT_RUN = 'not run'
# What a cell says where runs of one setting and seed cannot be told apart.
_SEVERAL = 'several'
# The noise on the mean that P = 80 has: of a scale, and of a cell.
_NOISE_SCALE, _NOISE_MARK = '{}, the noise of P = 80', ' *'
_NOISE_EPSILON = 'as P = 80'

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


class _Finding(NamedTuple):
  """What the paper says of two drops.

  Attributes:
    title: It in short.
    drop: The drop that it is on.
    tests: Whether a pair of lines tests it, the first with the drop that it
      calls smaller.
  """

  title: str
  drop: str
  tests: Callable[[_Line, _Line], bool]


_FINDINGS: Mapping[str, _Finding] = {
  # Table 2.
  'split': _Finding(
    'clipping costs more on non-IID data',
    'clipping_drop',
    lambda one, two: (
      _same(one, two, 'table', 'model', 'data')
      and one['table'] == 2
      and one['is_iid'] > two['is_iid']
    ),
  ),
  # Table 2.
  'data': _Finding(
    'clipping costs more on CIFAR-10',
    'clipping_drop',
    lambda one, two: (
      _same(one, two, 'table', 'model', 'is_iid')
      and one['table'] == 2
      and (one['paper_data'], two['paper_data']) == ('EMNIST', 'CIFAR-10')
    ),
  ),
  # Sec. 2.2 and 4; Table 4 repeats AlexNet and ResNet-18 of Table 2.
  'structure': _Finding(
    'structured models lose less by clipping',
    'clipping_drop',
    lambda one, two: (
      _same(one, two, 'table', 'data', 'is_iid')
      and _STRUCTURE[one['model']] > _STRUCTURE[two['model']]
      and (two['table'], two['model']) != (4, 'AlexNet')
    ),
  ),
  # Tables 3 and 4. Of a pair with more of one and less of the other it says
  # nothing.
  'size': _Finding(
    'models with more parameters and/or layers lose more by noise',
    'dp_drop',
    lambda one, two: (
      _same(one, two, 'table')
      and one['table'] in (3, 4)
      and one['num_parameters'] < two['num_parameters']
      and _LAYERS[one['model']] < _LAYERS[two['model']]
    ),
  ),
}
VERDICTS = ('holds', 'does not hold', 'not decided')

# How cohorts are drawn, and the noise, by what else is changed.
_MECHANISMS = {
  '': 'Poisson, independent',
  'pld': 'Poisson, independent',
  'threshold': 'Poisson, independent, c paid for',
  'pld,threshold': 'Poisson, independent, c paid for',
  'random_allocation': 'a secret round each epoch, independent',
  'random_allocation,threshold': (
    'a secret round each epoch, independent, c paid for'
  ),
  'paper_sampling': 'fixed P, charged as Poisson (the paper)',
  'fixed_size': 'fixed P, independent',
  'fixed_size,pld': 'fixed P, independent',
  'banded': 'in turns, banded',
  'blt': 'in turns, BLT',
}


def paper_rows(
  found: Runs, noise_variants: Collection[str] = ()
) -> pd.DataFrame:
  """Each row with published figures at each scale at which it was run.

  A run repeats a row where model, data, split and examples a client are the
  row's; rows on data that stand in for the paper's have its figures. Of several
  runs of DP-FedAvg, those with Poisson cohorts count, and of these those with
  the ε of the row. Runs that are not finished, were audited or have an
  aggregator of a user's own do not count, nor do runs with variants.

  Args:
    found: The runs.
    noise_variants: Variants of DP-FedAvg that take the place of runs without
      variants: those with the noise on the mean that the paper's P has.

  Returns:
    A line for each row and scale, in the order of the paper, the best evidence
    of a row first: with a drop, the most seeds, and then the largest scale. Its
    columns are those that `_line` and `_figures` name.
  """
  table = found.table
  is_plain = table['variants'] == ''
  of_dp = table['variants'].isin(noise_variants or ('',))
  is_study = table['noise_cohort'] == experiments.PAPERS_CLIENTS_PER_ROUND
  of_dp = of_dp | is_study if noise_variants else of_dp & ~is_study
  table = table[
    of_dp.where(table['is_private'], is_plain)
    & table['is_complete']
    & ~table['is_audited']
    & ~table['own_aggregator']
  ]
  if table.empty:
    return table
  table = table.assign(**_at_figure_round(found, table))
  lines = pd.DataFrame(
    [
      _line(row, part) | _figures(row, part)
      for row in experiments.ROWS
      for _, part in table[of_row(table, row)].groupby('series', sort=False)
    ]
  )
  if lines.empty:
    return lines
  if noise_variants:
    lines = lines[lines['table'].notna() & lines['dp_fed_avg'].notna()]
    lines = lines.assign(scale=lines['scale'].map(_NOISE_SCALE.format))
  ranked = lines.assign(has_drop=lines['clipping_drop'].notna()).sort_values(
    ['has_drop', 'num_seeds', 'examples'], ascending=False, kind='stable'
  )
  places = {row.name: place for place, row in enumerate(experiments.ROWS)}
  return ranked.sort_values(
    'row', key=lambda names: names.map(places), kind='stable', ignore_index=True
  )


class Evidence:
  """What the pages are made of.

  Attributes:
    found: All runs.
    rows: The finished runs of the table that are of the paper, not of the
      systems beside it.
    lines: From `paper_rows`, of the rows that are in the paper's tables.
  """

  def __init__(self, found: Runs):
    """Raises ValueError where there is no run of a row of the paper."""
    table = found.table
    self.found = found
    self._of_paper = ~table['row'].isin(experiments.SYSTEM_ROWS)
    self.rows = table[self._of_paper & table['is_complete']]
    lines = paper_rows(self._papers())
    if lines.empty or lines['table'].isna().all():
      raise ValueError('there is no finished run of a row of the paper')
    self.lines = lines[lines['table'].notna()]

  def _papers(self) -> Runs:
    return Runs(self.found.runs, self.found.table[self._of_paper])

  @functools.cached_property
  def noisy(self) -> pd.DataFrame:
    """From `paper_rows`, with the noise on the mean that P = 80 has."""
    return paper_rows(self._papers(), experiments.NOISE_VARIANTS)


def is_near_chance(line: _Line, figure: str) -> bool:
  """Whether a figure says nothing: its model is near chance, or FedAvg is.

  Args:
    line: A line of `paper_rows`.
    figure: `fed_avg`, `clipping_drop` or `dp_drop`.
  """
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


def of_row(table: pd.DataFrame, row: experiments.Row) -> pd.Series:
  """Which runs have the model, data, split and client size of a row."""
  return (
    (table['model'] == row.model)
    & (table['data'] == experiments.DATA_NAMES[row.task])
    & (table['partition'] == row.partition)
    & (table['examples_per_client'] == row.examples_per_client)
  )


def _at_figure_round(found: Runs, table: pd.DataFrame) -> dict[str, pd.Series]:
  """The spread of the norms, and the mean cosine of two updates, by run.

  The squared norm of the sum of n updates is the sum of their squared norms and
  of the inner products of all pairs: these follow from the norms and the norm
  of the mean. A pair counts by the product of its norms. It is that of what the
  clients sent, and of their updates only where nothing was clipped.
  """
  rounds = pd.DataFrame(
    {
      name: found.runs[name]
      .rounds.set_index('round_num')
      .reindex([FIGURE_ROUND + 1])[['update_norm_mean', 'update_norm_std']]
      .iloc[0]
      for name in table.index
    }
  ).T
  updates = found.updates(table.index)
  updates = updates[updates['t'] == FIGURE_ROUND]
  is_mean = updates['is_mean'].astype(bool)
  clients = updates[~is_mean].groupby('run')['update_norm']
  mean = updates[is_mean].set_index('run')['update_norm']
  squares = clients.apply(lambda norms: np.square(norms).sum())
  inner = (clients.size() * mean) ** 2 - squares
  return {
    'spread_at': rounds['update_norm_std'] / rounds['update_norm_mean'],
    'std_at': rounds['update_norm_std'],
    'cosine_at': inner / (clients.sum() ** 2 - squares),
  }


def _line(row: experiments.Row, part: pd.DataFrame) -> dict[str, Any]:
  """What a row is like at one scale.

  Args:
    row: The row.
    part: The finished runs, which differ in the seed and the algorithm.
  """
  of_table = _PUBLISHED[row.stands_for or row.name]
  run = part.iloc[0]
  ours = {
    'P': run['clients_per_round'],
    'Q': run['local_steps'],
    'batch': run['batch_size'],
    'T': run['num_rounds'],
  }
  # A column has floats where other runs do not have the setting.
  ours = {key: int(value) for key, value in ours.items()}
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
    'paper_data': experiments.DATA_NAMES[of_table.task],
    'paper_fed_avg': of_table.fed_avg,
    'paper_clipping_drop': of_table.clipping_drop,
    'paper_dp_drop': of_table.dp_drop,
    'paper_epsilon': of_table.epsilon,
    **ours,
    'size': ', '.join(map(str, ours.values())),
    'scale': run['scale']
    or ', '.join(f'{key} = {value}' for key, value in ours.items()),
    # Gradients of single examples, in a run.
    'examples': math.prod(ours.values()),
    'num_test_examples': run['num_test_examples'],
    'num_parameters': run['num_parameters'],
    'runs': tuple(part.index),
  }


def _figures(row: experiments.Row, part: pd.DataFrame) -> dict[str, Any]:
  """What a row came to at one scale.

  The figures over seeds are `Estimate`s, None where not run, or `_SEVERAL`:
  final accuracies by algorithm, drops, and figures at equal path. The others
  are means: the spread of the norms, std / mean, in FedAvg; that, the standard
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
    ('sampling', 'poisson'),
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
    'noise_multiplier': noise.get('noise_multiplier', math.nan),
    'epsilon': noise.get('epsilon', math.nan),
  }


def _estimate(part: pd.DataFrame, column: str) -> stats.Estimate | str | None:
  """A figure over seeds; two runs of one seed are never averaged."""
  if part['seed'].duplicated().any():
    return _SEVERAL
  return stats.estimate(part[column])


def published(found: Evidence, number: int) -> pd.DataFrame:
  """A table of the paper beside ours: the best evidence of each row.

  Where DP-FedAvg was not run at its scale, or is near chance, the drop by noise
  is that with the noise on the mean of the paper's P there; else that of the
  scale with the most seeds and then examples, with either noise. Which one
  stands beside it.
  """
  lines = found.lines[found.lines['table'] == number]
  shown = best_scale(lines)
  table = published_rows(shown)
  if 'DP drop, ours' not in table:
    return table
  for place, line in enumerate(shown.to_dict('records')):
    if line['dp_drop'] is None or is_near_chance(line, 'dp_drop'):
      other, epsilon, mark = _noise_elsewhere(line, lines, found.noisy)
      if other is not None:
        text = _learned_cell(other, 'dp_drop', line['num_seeds']) + mark
        table.loc[place, ['DP drop, ours', 'ε, ours']] = text, epsilon
  return table


def published_rows(lines: pd.DataFrame) -> pd.DataFrame:
  """The paper's figures beside ours, where ours measure something.

  Args:
    lines: Lines of one table of the paper, one for each row that is shown.
  """
  records = lines.to_dict('records')
  columns = {
    'model': lines['model'],
    'data': lines['data'],
    'clients': lines['split'],
    'FedAvg, paper (%)': lines['paper_fed_avg'].map('{:.2f}'.format),
    'FedAvg, ours (%)': [_learned_cell(line, 'fed_avg') for line in records],
  }
  for drop, title in (
    ('clipping_drop', 'clipping drop'),
    ('dp_drop', 'DP drop'),
  ):
    if lines[f'paper_{drop}'].notna().any():
      columns |= {
        f'{title}, paper': lines[f'paper_{drop}'].map('{:.2f}'.format),
        f'{title}, ours': [_learned_cell(line, drop) for line in records],
      }
  if 'DP drop, ours' in columns:
    columns |= {
      'ε, paper': lines['paper_epsilon'].map('{:g}'.format),
      'ε, ours': lines['epsilon'].map(_epsilon),
    }
  columns |= {'P, Q, batch, T': lines['size'], 'seeds': lines['num_seeds']}
  return pd.DataFrame(columns).reset_index(drop=True)


def _noise_elsewhere(
  line: _Line, lines: pd.DataFrame, noisy: pd.DataFrame
) -> tuple[_Line | None, str, str]:
  """The line with the drop by noise for a row, its ε, and its mark."""
  others, studies = (
    [
      other
      for other in table.to_dict('records')
      if other['row'] == line['row'] and other['dp_drop'] is not None
    ]
    for table in (lines, noisy)
  )
  for study in studies:
    if study['size'] == line['size']:
      return study, _NOISE_EPSILON, _NOISE_MARK
  if line['dp_drop'] is not None:
    return None, '', ''
  found = [
    (it, _epsilon(it['epsilon']), f' (at {it["size"]})') for it in others
  ]
  found += [
    (it, _NOISE_EPSILON, f'{_NOISE_MARK} (at {it["size"]})') for it in studies
  ]
  return max(
    found,
    key=lambda each: (
      getattr(each[0]['dp_drop'], 'num_seeds', 0),
      each[0]['examples'],
    ),
    default=(None, '', ''),
  )


def clipping(found: Evidence) -> pd.DataFrame:
  """What clipping costs at every scale, with what may explain it.

  Without what is near chance, and without lines whose runs another line has:
  two rows can share them.
  """
  lines = learned(found.lines, 'clipping_drop')
  lines = lines[~lines['runs'].duplicated()]
  return pd.DataFrame(
    {
      'row': lines['row'],
      'scale': lines['scale'],
      'seeds': lines['num_seeds'],
      'test images': _numbers(lines['num_test_examples'], ',.0f'),
      'FedAvg (%)': lines['fed_avg'].map(_cell),
      'CE-FedAvg (%)': lines['ce_fed_avg'].map(_cell),
      'drop, paper': lines['paper_clipping_drop'].map('{:.2f}'.format),
      'drop, ours': lines['clipping_drop'].map(_cell),
      'FedAvg at equal path (%)': lines['equal_path'].map(_cell),
      'CE-FedAvg above FedAvg at equal path': lines['equal_path_lead'].map(
        _cell
      ),
      'clipped (%)': _numbers(100 * lines['clipped_fraction'], '.0f'),
      'std / mean of norms (%)': _numbers(100 * lines['spread'], '.1f'),
      'cosine of two updates': _numbers(lines['cosine_at'], '.3f'),
      'mean of clipped updates / c': _numbers(lines['mean_update'], '.2f'),
    }
  )


def noise(found: Evidence) -> pd.DataFrame:
  """What noise costs at every scale, and how large it is.

  noise / c is the expected norm of the noise on the mean update over c, and
  noise / signal that of T rounds over what T updates can be at most. Without
  what is near chance.
  """
  lines = pd.concat([found.lines, found.noisy], ignore_index=True)
  lines = learned(lines[lines['noise_multiplier'].notna()], 'dp_drop')
  over_c = (
    lines['noise_multiplier'] * lines['num_parameters'] ** 0.5 / lines['P']
  ).astype(float)
  is_as_paper = lines['scale'].str.endswith(_NOISE_SCALE.format(''))
  return pd.DataFrame(
    {
      'row': lines['row'],
      'scale': lines['scale'],
      'seeds': [getattr(it, 'num_seeds', '–') for it in lines['dp_drop']],
      'd': lines['num_parameters'].map('{:,.0f}'.format),
      'z': lines['noise_multiplier'].map('{:.3g}'.format),
      'ε': lines['epsilon'].map(_epsilon).mask(is_as_paper, _NOISE_EPSILON),
      'noise / c': over_c.map('{:.0f}'.format),
      'noise / signal': (over_c / lines['T'] ** 0.5).map('{:.1f}'.format),
      'mean of clipped updates / c': _numbers(lines['mean_update'], '.2f'),
      'DP-FedAvg (%)': lines['dp_fed_avg'].map(_cell),
      'drop, paper': lines['paper_dp_drop'].map('{:.2f}'.format),
      'drop, ours': lines['dp_drop'].map(_cell),
    }
  )


def comparisons(found: Evidence) -> pd.DataFrame:
  """Every pair of drops that tests a finding, at each scale that both have.

  Without what is near chance. A comparison is decided where 0 is outside of the
  95 % interval of the difference, with three seeds of each drop. A run for T
  rounds begins as a longer one does, so that of several scales of two rows one
  comparison counts: one that can be tested, with the most seeds, and then the
  most examples. Whether it holds plays no part.
  """
  lines = []
  for name, finding in _FINDINGS.items():
    for table in (found.lines, found.noisy):
      if name == 'size' or table is found.lines:
        shown = learned(table, finding.drop).to_dict('records')
        lines += [
          _comparison(name, smaller, larger)
          for smaller, larger in itertools.product(shown, repeat=2)
          if _same(smaller, larger, 'size')
          and finding.tests(smaller, larger)
          and all(
            isinstance(each[finding.drop], stats.Estimate)
            for each in (smaller, larger)
          )
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


def _comparison(name: str, smaller: _Line, larger: _Line) -> dict[str, Any]:
  """One line of `comparisons`."""
  drop = _FINDINGS[name].drop
  paper = [line[f'paper_{drop}'] for line in (smaller, larger)]
  ours = [line[drop] for line in (smaller, larger)]
  difference = stats.difference(ours[1], ours[0])
  verdict = {None: 'too few seeds', 0: VERDICTS[2], 1: VERDICTS[0]}.get(
    difference.sign, VERDICTS[1]
  )
  return {
    'of': name,
    'should lose less': smaller['row'],
    'should lose more': larger['row'],
    'scale': smaller['scale'],
    'paper': f'{paper[0]:.2f} and {paper[1]:.2f}',
    'ours': f'{ours[0].mean:.2f} and {ours[1].mean:.2f}',
    'difference': str(difference),
    'verdict': 'contrary in the paper' if paper[0] > paper[1] else verdict,
    'num_seeds': min(each.num_seeds for each in ours),
    'examples': smaller['examples'],
  }


def findings(found: Evidence) -> pd.DataFrame:
  """For each finding of the paper, how many comparisons decide it."""
  table = comparisons(found)
  if table.empty:
    return table
  counted = table[(table['counts'] == 'yes') & table['verdict'].isin(VERDICTS)]
  return pd.DataFrame(
    [
      {'of': name, 'finding': finding.title, 'can be tested': len(own)}
      | {verdict: (own['verdict'] == verdict).sum() for verdict in VERDICTS}
      for name, finding in _FINDINGS.items()
      for own in [counted[counted['of'] == name]]
    ]
  )


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
    keys = {'model', 'paper_data', 'is_iid', 'P', 'Q', 'batch'} - {name}
    pairs = [
      (one, two)
      for one, two in itertools.product(lines.to_dict('records'), repeat=2)
      if one[name] == smaller != two[name] and _same(one, two, *keys)
    ]
    table.append(
      {
        'the norms spread, in the paper': statement,
        'pairs of rows': len(pairs),
        **{
          title: sum(one[column] < two[column] for one, two in pairs)
          for title, column in (
            ('so by std / mean in', 'spread_at'),
            ('so by std in', 'std_at'),
          )
        },
      }
    )
  return pd.DataFrame(table)


def mechanisms(found: Evidence) -> pd.DataFrame:
  """DP-FedAvg by how cohorts are drawn, the noise, and ε.

  A row for each row of the paper, scale, ε that is aimed at and way that was
  run, where more than one way was.
  """
  table = found.rows
  ways = without_budget(table)
  shown = table.assign(way=ways)[
    table['algorithm'].eq('dp_fed_avg')
    & table['row'].ne('')
    & ways.isin([*_MECHANISMS])
  ]
  several = shown.groupby(['row', 'scale'])['way'].transform('nunique') > 1
  places = shown['way'].map([*_MECHANISMS].index)
  keys = ['row', 'target_epsilon', 'num_rounds', 'place']
  ordered = shown.assign(place=places)[several].sort_values(keys, kind='stable')
  return pd.DataFrame(
    [
      {
        'data': first['data'],
        'T': first['num_rounds'],
        'cohorts, noise': _MECHANISMS[first['way']],
        'accountant': first['accountant'],
        'ε': f'{first["target_epsilon"]:g}',
        'z': f'{first["noise_multiplier"]:.3f}',
        'accuracy (%)': over_seeds(part, 'final_score'),
        'drop from CE-FedAvg': over_seeds(part, 'dp_drop'),
      }
      for _, part in ordered.groupby(keys, sort=False)
      for first in [part.iloc[0]]
    ]
  )


def over_seeds(part: pd.DataFrame, column: str) -> str:
  """The mean over seeds and its margin, as a cell."""
  return _cell(stats.estimate(part[column]))


def without_budget(table: pd.DataFrame) -> pd.Series:
  """The variants of runs but that of another ε."""
  return table['variants'].map(
    lambda names: ','.join(x for x in names.split(',') if x != 'epsilon_5')
  )


def _learned_cell(
  line: _Line, figure: str, num_seeds: int | None = None
) -> str:
  """A figure to stand beside the paper's; `NEAR_CHANCE` where it says nothing.

  Args:
    line: A line of `paper_rows`.
    figure: `fed_avg`, `clipping_drop` or `dp_drop`.
    num_seeds: The seeds of the row where it stands; `None` for the line's.
  """
  found = line[figure]
  if found is not None and is_near_chance(line, figure):
    return NEAR_CHANCE
  own = getattr(found, 'num_seeds', stats.MIN_SEEDS)
  is_of_few = own < stats.MIN_SEEDS <= (num_seeds or line['num_seeds'])
  return _cell(found) + (f' (seeds {own})' if is_of_few else '')


def _cell(figure: stats.Estimate | str | None) -> str:
  return NOT_RUN if figure is None else str(figure)


def _numbers(values: pd.Series, spec: str) -> list[str]:
  return [stats.number(value, spec) for value in values]


def _epsilon(epsilon: float) -> str:
  return NOT_RUN if math.isnan(epsilon) else stats.at_most(epsilon)


def _same(one: _Line, other: _Line, *keys: str) -> bool:
  return all(one[key] == other[key] for key in keys)
