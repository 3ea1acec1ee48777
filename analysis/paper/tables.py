"""The tables of the reproduction's pages on the paper's rows and findings.

`<!--=tables.NAME(ARGUMENT)-->` in a page stands for `NAME(found, ARGUMENT)`. A
cell is a text: `cell` and `learned_cell` make those of figures over seeds.
"""

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd

from analysis.paper import findings, rows
from analysis.paper.evidence import Evidence
from analysis.runs import margins

# What stands beside the paper's figure where ours measures nothing.
NEAR_CHANCE = 'near chance'
# Marks what has the noise on the mean that P = 80 has.
_PAPERS_NOISE = ' *'

_OF_KEPT_COMPARISONS = [
  'of',
  'should lose less',
  'should lose more',
  'difference',
  'beyond speed',
]
# Of `noise`: what the file has, or `published` too.
_NOISE_ONLY_IN_THE_FILE = [
  'seeds',
  'ε',
  'mean of clipped updates / c',
  'DP-FedAvg (%)',
  'drop, paper',
]


def published(found: Evidence, table: str) -> pd.DataFrame:
  """A table of the paper beside ours: the best evidence of each row.

  Where DP-FedAvg was not run at its scale, or is near chance, the drop by noise
  is that with the noise on the mean of the paper's P there; else that of the
  scale with the most seeds and then examples, with either noise. Which one
  stands beside it.
  """
  lines = found.lines[found.lines['table'] == int(table)]
  shown = rows.best_scale(lines)
  formatted = published_rows(shown)
  if 'DP drop, ours' not in formatted:
    return formatted
  for place, line in enumerate(shown.to_dict('records')):
    if line['dp_drop'] is not None and not rows.is_near_chance(line, 'dp_drop'):
      continue
    other, mark = _noise_elsewhere(line, lines, found.noisy)
    if other is not None:
      formatted.loc[place, ['DP drop, ours', 'ε, ours']] = (
        learned_cell(other, 'dp_drop', num_seeds=line['num_seeds']) + mark,
        _epsilon(other['epsilon']),
      )
  return formatted


def published_rows(lines: pd.DataFrame) -> pd.DataFrame:
  """The paper's figures beside ours, where ours measure something.

  Args:
    lines: Lines of one table of the paper, one for each row that is shown.
  """
  records = lines.to_dict('records')
  table = pd.DataFrame(
    {
      'model': lines['model'],
      'data': lines['data'],
      'clients': lines['split'],
      'FedAvg, paper (%)': lines['paper_fed_avg'].map('{:.2f}'.format),
      'FedAvg, ours (%)': [learned_cell(line, 'fed_avg') for line in records],
    }
  )
  for drop, title in (
    ('clipping_drop', 'clipping drop'),
    ('dp_drop', 'DP drop'),
  ):
    if lines[f'paper_{drop}'].notna().any():
      of_paper = lines[f'paper_{drop}'].map('{:.2f}'.format)
      table[f'{title}, paper'] = of_paper
      table[f'{title}, ours'] = [learned_cell(line, drop) for line in records]
  if 'DP drop, ours' in table:
    table['ε, paper'] = lines['paper_epsilon'].map('{:g}'.format)
    table['ε, ours'] = lines['epsilon'].map(_epsilon)
  return table.assign(
    **{'P, Q, batch, T': [_scale(line) for line in records]},
    seeds=lines['num_seeds'],
  ).reset_index(drop=True)


def _noise_elsewhere(
  line: Mapping[str, Any], lines: pd.DataFrame, noisy: pd.DataFrame
) -> tuple[Mapping[str, Any] | None, str]:
  """The line that has the drop by noise in place of a row's own, marked."""
  studies, others = (
    [
      other
      for other in table.to_dict('records')
      if other['row'] == line['row'] and other['dp_drop'] is not None
    ]
    for table in (noisy, lines)
  )
  for study in studies:
    if _scale(study) == _scale(line):
      return study, _PAPERS_NOISE
  if line['dp_drop'] is not None:
    return None, ''
  found = [(it, f' (at {_scale(it)})') for it in others]
  found += [(it, f'{_PAPERS_NOISE} (at {_scale(it)})') for it in studies]
  return max(
    found,
    key=lambda each: (
      getattr(each[0]['dp_drop'], 'num_seeds', 0),
      each[0]['examples'],
    ),
    default=(None, ''),
  )


def clipping(found: Evidence) -> pd.DataFrame:
  """What clipping costs at every scale, with what may explain it."""
  lines = rows.without_shared(found.lines)
  return pd.DataFrame(
    {
      'row': lines['row'],
      'scale': lines['scale'],
      'seeds': lines['num_seeds'],
      'test images': _numbers(lines['num_test_examples'], ',.0f'),
      'FedAvg (%)': lines['fed_avg'].map(cell),
      'CE-FedAvg (%)': lines['ce_fed_avg'].map(cell),
      'drop, paper': lines['paper_clipping_drop'].map('{:.2f}'.format),
      'drop, ours': lines['clipping_drop'].map(cell),
      'FedAvg at equal path (%)': lines['equal_path'].map(cell),
      'CE-FedAvg above FedAvg at equal path': lines['equal_path_lead'].map(
        cell
      ),
      'clipped (%)': _numbers(100 * lines['clipped_fraction'], '.0f'),
      'std / mean of norms (%)': _numbers(100 * lines['spread'], '.1f'),
      'cosine of two updates': _numbers(lines['cosine_at'], '.3f'),
      'mean of clipped updates / c': _numbers(lines['mean_update'], '.2f'),
    }
  )


def noise(found: Evidence, which: str = 'every scale') -> pd.DataFrame:
  """What noise costs, and how large it is.

  noise / c is the expected norm of the noise on the mean update over c, and
  noise / signal that of T rounds over what T updates can be at most.

  Args:
    found: The evidence.
    which: `every scale`, or `best` for the best evidence of each row that has
      three seeds and is not near chance, with its own ε and with the noise of
      P = 80, in fewer columns.
  """
  tables = [found.lines, found.noisy]
  if which == 'best':
    tables = [
      rows.best_scale(_learned(lines, 'dp_drop', margins.MIN_SEEDS))
      for lines in tables
    ]
  lines = pd.concat(tables, ignore_index=True)
  lines = lines[lines['noise_multiplier'].notna()]
  noise = lines['noise_multiplier'] * lines['num_parameters'] ** 0.5
  over_c = (noise / lines['P']).astype(float)
  table = pd.DataFrame(
    {
      'row': lines['row'],
      'scale': lines['scale'],
      'seeds': lines['dp_drop'].map(num_seeds),
      'd': lines['num_parameters'].map('{:,.0f}'.format),
      'z': lines['noise_multiplier'].map('{:.3g}'.format),
      'ε': lines['epsilon'].map(_epsilon),
      'noise / c': over_c.map('{:.0f}'.format),
      'noise / signal': (over_c / lines['T'] ** 0.5).map('{:.1f}'.format),
      'mean of clipped updates / c': _numbers(lines['mean_update'], '.2f'),
      'DP-FedAvg (%)': lines['dp_fed_avg'].map(cell),
      'drop, paper': lines['paper_dp_drop'].map('{:.2f}'.format),
      'drop, ours': lines['dp_drop'].map(cell),
    }
  )
  if which != 'best':
    return table
  title = rows.NOISE_TITLE.format('')
  marked = table['scale'].str.replace(title, _PAPERS_NOISE, regex=False)
  return table.assign(scale=marked).drop(columns=_NOISE_ONLY_IN_THE_FILE)


def counts(found: Evidence) -> pd.DataFrame:
  """For each finding, how many comparisons there are and decide it."""
  stays = findings.stays_decided(found.counted)
  return pd.DataFrame(
    [
      {
        'of': name,
        'finding': finding.title,
        'comparisons': len(own),
        'can be tested': findings.is_tested(own['verdict']).sum(),
        **{
          verdict: (own['verdict'] == verdict).sum()
          for verdict in findings.DECIDED
        },
        'after the correction': ' and '.join(
          str((own['verdict'].eq(verdict) & stays).sum())
          for verdict in findings.DECIDED
        ),
      }
      for name, finding in findings.FINDINGS.items()
      for own in [found.counted[found.counted['finding'] == name]]
    ]
  )


def comparisons(found: Evidence, which: str = 'every one') -> pd.DataFrame:
  """The comparisons of two rows, at each scale that both have.

  Args:
    found: The evidence.
    which: `every one`, or those that count and are `kept` by the correction.
  """
  compared = found.compared
  counts = compared['counts']
  kept = findings.stays_decided(compared[counts]).reindex(compared.index)
  table = pd.DataFrame(
    {
      'of': compared['finding'],
      'should lose less': compared['smaller'],
      'should lose more': compared['larger'],
      'scale': compared['scale'],
      **{
        whose: compared[whose].map(lambda x: f'{x[0]:.2f} and {x[1]:.2f}')
        for whose in ('paper', 'ours')
      },
      'difference': compared['difference'].map(str),
      'beyond speed': compared['beyond_speed'].map(_difference),
      'matched steps': compared['matched_steps'].map(_difference),
      'verdict': compared['verdict'],
      'counts': counts.map({True: 'yes', False: 'no'}),
      'after the correction': kept.map({True: 'decided', False: 'open'}),
    }
  )
  if which == 'every one':
    return table
  return table[counts & kept.eq(True)][_OF_KEPT_COMPARISONS]


def norms(found: Evidence) -> pd.DataFrame:
  """What the paper says of the norms at t = 16, by pairs of rows."""
  pairs = findings.norm_pairs(found.lines)
  return pairs.rename(
    columns={
      'statement': 'the norms spread, in the paper',
      'pairs': 'pairs of rows',
      'ratio': 'so by std / mean in',
      'stddev': 'so by std in',
    }
  )


def learned_cell(
  line: Mapping[str, Any], figure: str, *, num_seeds: int | None = None
) -> str:
  """A figure to stand beside the paper's; `NEAR_CHANCE` where it says nothing.

  Args:
    line: A line of `rows.paper_rows`.
    figure: `fed_avg`, `clipping_drop` or `dp_drop`.
    num_seeds: The seeds of the row where it stands; `None` for the line's.
  """
  found = line[figure]
  if found is not None and rows.is_near_chance(line, figure):
    return NEAR_CHANCE
  is_of_few = isinstance(
    found, margins.Estimate
  ) and found.num_seeds < margins.MIN_SEEDS <= (num_seeds or line['num_seeds'])
  return cell(found) + (f' (seeds {found.num_seeds})' if is_of_few else '')


def cell(figure: margins.Estimate | str | None) -> str:
  """A figure over seeds in a table."""
  return 'not run' if figure is None else str(figure)


def num_seeds(figure: margins.Estimate | str | None) -> str:
  """The number of seeds of a figure in a table."""
  is_figure = isinstance(figure, margins.Estimate)
  return str(figure.num_seeds) if is_figure else margins.MISSING


def _difference(found: margins.Difference | None) -> str:
  return margins.MISSING if found is None else str(found)


def _numbers(values: pd.Series, spec: str) -> list[str]:
  return [margins.number(value, spec) for value in values]


def _learned(lines: pd.DataFrame, figure: str, min_seeds: int) -> pd.DataFrame:
  """Those of which a figure has these seeds and measures something."""
  shown = [
    getattr(line[figure], 'num_seeds', 0) >= min_seeds
    and not rows.is_near_chance(line, figure)
    for line in lines.to_dict('records')
  ]
  return lines[pd.Series(shown, lines.index, dtype=bool)]


def _scale(line: Mapping[str, Any]) -> str:
  """P, Q, batch and T of a line."""
  return f'{line["P"]}, {line["Q"]}, {line["batch"]}, {line["T"]}'


def _epsilon(epsilon: float) -> str:
  return 'not run' if math.isnan(epsilon) else margins.at_most(epsilon)
