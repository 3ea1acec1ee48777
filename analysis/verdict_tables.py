"""The tables on the paper's findings and rows, and the counts in words."""

import itertools
from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

from analysis import evidence, margins, tables, verdicts

# The figures of a row.
_FIGURES = {
  'fed_avg': 'FedAvg',
  'clipping_drop': 'clipping drop',
  'dp_drop': 'DP drop',
}


# Of the finding on norms, which is not on two drops.
_SPREAD = 'concentrated norms go with small drops'


def decided_table(compared: pd.DataFrame) -> pd.DataFrame:
  """The comparisons that are decided by an interval of their own.

  Args:
    compared: Those that count, from `verdicts.with_counted`.

  Returns:
    Columns for a table; a row for each.
  """
  is_decided = compared['verdict'].isin(verdicts.DECIDED)
  stays = verdicts.stays_decided(compared)[is_decided]
  compared = compared[is_decided]
  return pd.DataFrame(
    {
      'finding': compared['finding'].map(
        lambda name: verdicts.FINDINGS[name].title
      ),
      'should lose less': compared['smaller'],
      'should lose more': compared['larger'],
      'scale': compared['scale'],
      'difference': compared['difference'].map(str),
      'after the correction': stays.map({True: 'decided', False: 'open'}),
      'beyond speed': _differences(compared['beyond_speed']),
      'matched steps': _differences(compared['matched_steps']),
    }
  )


def comparison_table(compared: pd.DataFrame, finding: str) -> pd.DataFrame:
  """The comparisons of a finding, formatted, from `verdicts.with_counted`."""
  of_finding = compared[compared['finding'] == finding]
  return pd.DataFrame(
    {
      'should lose less': of_finding['smaller'],
      'should lose more': of_finding['larger'],
      'scale': of_finding['scale'],
      'paper': of_finding['paper'].map(_pair),
      'ours': of_finding['ours'].map(_pair),
      'difference': of_finding['difference'].map(str),
      'beyond speed': _differences(of_finding['beyond_speed']),
      'matched steps': _differences(of_finding['matched_steps']),
      'verdict': of_finding['verdict'],
      'counts': of_finding['counts'].map({True: 'yes', False: 'no'}),
    }
  )


def finding_table(compared: pd.DataFrame, spread: pd.DataFrame) -> pd.DataFrame:
  """For each finding, how many comparisons there are and decide it.

  Args:
    compared: Those that count, from `verdicts.with_counted`.
    spread: From `verdicts.spread_verdicts`.
  """
  verdicts_by_title = {
    finding.title: compared.loc[compared['finding'] == name, 'verdict']
    for name, finding in verdicts.FINDINGS.items()
  }
  verdicts_by_title[_SPREAD] = spread.get('verdict', pd.Series(dtype=object))
  lines = []
  for title, found in verdicts_by_title.items():
    lines.append(
      {
        'finding': title,
        'comparisons': len(found),
        'can be tested': verdicts.is_tested(found).sum(),
        **{verdict: (found == verdict).sum() for verdict in verdicts.DECIDED},
      }
    )
  return pd.DataFrame(lines)


def row_table(lines: pd.DataFrame, compared: pd.DataFrame) -> pd.DataFrame:
  """What each row of the paper came to, at the scale with the best evidence.

  Args:
    lines: From `evidence.paper_lines`.
    compared: Those that count, from `verdicts.with_counted`.

  Returns:
    Columns for a table; a row for each row of the paper that was run.
  """
  found = []
  for line in evidence.headlines(lines).to_dict('records'):
    own = compared[
      (compared['smaller'] == line['row']) | (compared['larger'] == line['row'])
    ]
    found.append(
      {
        'row': line['row'],
        'scale': line['scale_name'],
        'seeds': line['num_seeds'],
        **{
          title: _beside_the_paper(line, key) for key, title in _FIGURES.items()
        },
        'verdict': _row_verdict(line),
        'its comparisons whose interval excludes 0': '{} of {}'.format(
          own['verdict'].isin(verdicts.DECIDED).sum(), len(own)
        ),
      }
    )
  return pd.DataFrame(found)


def norm_table(lines: pd.DataFrame) -> pd.DataFrame:
  """What the paper says of the norms at t = 16 (Sec. 2.2), by pairs of rows.

  Returns:
    Columns for a table; a row for each statement, with the number of pairs of
    our rows of Table 2 with one P, Q and batch.
  """
  of_table = lines[(lines['table'] == 2) & lines['clipping_drop'].notna()]
  # Runs of a row at another T can begin with the same rounds.
  of_table = of_table.sort_values('T', kind='stable').drop_duplicates(
    ['row', 'P', 'Q', 'batch'], keep='last'
  )
  records = of_table.to_dict('records')
  found = []
  for statement, name, smaller in (
    ('less on EMNIST (here MNIST) than on CIFAR-10', 'paper_data', 'EMNIST'),
    ('less on IID data than on non-IID data', 'is_iid', True),
    ('less with ResNet-18 than with AlexNet', 'model', 'ResNet-18'),
  ):
    keys = {'model', 'paper_data', 'is_iid', 'P', 'Q', 'batch'} - {name}
    pairs = [
      (one, two)
      for one, two in itertools.product(records, repeat=2)
      if one[name] == smaller != two[name]
      and all(one[key] == two[key] for key in keys)
    ]
    found.append(
      {
        'the norms spread, in the paper': statement,
        'pairs of rows': len(pairs),
        **{
          f'so by {what} in': sum(a[key] < b[key] for a, b in pairs)
          for what, key in (('std / mean', 'spread_at'), ('std', 'std_at'))
        },
      }
    )
  return pd.DataFrame(found)


def spread_in_words(spread: pd.DataFrame) -> str:
  """What `verdicts.spread_verdicts` came to; empty where nothing was tested."""
  return '; '.join(
    f'{line["verdict"]} over {line["rows"]} rows at `{line["scale"]}` (ρ = '
    f'{line["Spearman ρ"]}, p = {line["p"]}; of the same rows, with the steps '
    f'of the paper, {line["with plain steps"]})'
    for line in spread.to_dict('records')
  )


def in_words(found: Iterable[str]) -> str:
  """How many comparisons came to which verdict."""
  counts = pd.Series(list(found), dtype=object).value_counts()
  if counts.empty:
    return 'no comparison'
  parts = [
    f'{name} in {counts[name]}' for name in verdicts.VERDICTS if name in counts
  ]
  return f'{", ".join(parts)} of {counts.sum()}'


def _beside_the_paper(line: Mapping[str, Any], figure: str) -> str:
  of_paper = line[f'paper_{figure}']
  if pd.isna(of_paper):
    return margins.MISSING
  return f'{tables.learned_cell(line, figure)} ({of_paper:.2f})'


def _row_verdict(line: Mapping[str, Any]) -> str:
  """Where a row stands beside the paper, or what of a drop it shows."""
  if line['num_seeds'] < margins.MIN_SEEDS:
    return verdicts.FEW_SEEDS
  if not line['is_paper_scale']:
    return f'another scale; {_clipping_verdict(line)}'
  words = []
  for key, title in _FIGURES.items():
    ours = line[key]
    if (
      isinstance(ours, margins.Estimate) and ours.num_seeds >= margins.MIN_SEEDS
    ):
      gap = ours.mean - line[f'paper_{key}']
      limit = margins.prediction_margin(ours)
      word = (
        'higher' if gap > limit else 'lower' if gap < -limit else 'as there'
      )
      words.append(f'{title} {word}')
  return '; '.join(words)


def _clipping_verdict(line: Mapping[str, Any]) -> str:
  if evidence.is_near_chance(line, 'clipping_drop'):
    return verdicts.CHANCE
  drop = line['clipping_drop']
  sign = margins.sign(drop) if isinstance(drop, margins.Estimate) else None
  words = {1: 'a drop by clipping', 0: 'no drop shown', -1: 'a gain'}
  return words.get(sign, verdicts.FEW_SEEDS)


def _differences(found: Iterable[margins.Difference | None]) -> list[str]:
  return [margins.MISSING if x is None else str(x) for x in found]


def _pair(values: tuple[float, float]) -> str:
  return f'{values[0]:.2f} and {values[1]:.2f}'
