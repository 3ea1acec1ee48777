"""Which of the paper's findings our runs show, decided by their figures alone.

A comparison of two drops is decided where 0 is outside of the 95 % interval of
their difference, with three seeds of each; else it is left open.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Mapping

import pandas as pd

from analysis import evidence, margins, tables

HOLDS, FAILS, OPEN = 'holds', 'does not hold', 'not decided'
DECIDED = (HOLDS, FAILS)
# No test, and why.
CHANCE, CONTRARY = 'near chance', 'contrary in the paper'
FEW_SEEDS, FEW_ROWS = 'too few seeds', 'too few rows'

# The figures of a row.
_FIGURES = {
  'fed_avg': 'FedAvg',
  'clipping_drop': 'clipping drop',
  'dp_drop': 'DP drop',
}

# How structured a model is: "many layers, has convolution layers, skip
# connections, etc" (Sec. 4).
_STRUCTURE = {'MLP': 0, 'AlexNet': 1, 'MobileNetV2': 2, 'ResNet-18': 2}

# Of Tables 3 and 4.
_LAYERS = {'MLP': 2, 'AlexNet': 7, 'ResNet-18': 18, 'MobileNetV2': 24}

_Line = Mapping[str, object]

# By name: the drop that a finding of the paper is on, and whether a pair of
# lines tests it, the first with the drop that it calls smaller.
FINDINGS: Mapping[str, tuple[str, Callable[[_Line, _Line], bool]]] = {
  # Clipping costs more on non-IID data (Sec. 2.2, Table 2).
  'split': (
    'clipping_drop',
    lambda one, two: (
      _same(one, two, 'table', 'model', 'data')
      and one['table'] == 2
      and one['is_iid'] > two['is_iid']
    ),
  ),
  # Clipping costs more on the harder data (Sec. 2.2, Table 2).
  'data': (
    'clipping_drop',
    lambda one, two: (
      _same(one, two, 'table', 'model', 'is_iid')
      and one['table'] == 2
      and (one['paper_data'], two['paper_data']) == ('EMNIST', 'CIFAR-10')
    ),
  ),
  # Structured models lose less by clipping (Sec. 2.2 and 4); Table 4 repeats
  # AlexNet and ResNet-18 of Table 2.
  'structure': (
    'clipping_drop',
    lambda one, two: (
      _same(one, two, 'table', 'data', 'is_iid')
      and _STRUCTURE[one['model']] > _STRUCTURE[two['model']]
      and (two['table'], two['model']) != (4, 'AlexNet')
    ),
  ),
  # Models with more parameters and/or layers lose more by the noise (Sec. 4,
  # Tables 3 and 4). Of a pair with more of one and less of the other it says
  # nothing.
  'size': (
    'dp_drop',
    lambda one, two: (
      _same(one, two, 'table')
      and one['table'] in (3, 4)
      and one['num_parameters'] < two['num_parameters']
      and _LAYERS[one['model']] < _LAYERS[two['model']]
    ),
  ),
}


def comparisons(
  lines: pd.DataFrame, findings: Iterable[str] = tuple(FINDINGS)
) -> pd.DataFrame:
  """Every pair of drops that tests a finding, at each scale that both have.

  Args:
    lines: From `evidence.paper_lines`.
    findings: The findings.

  Returns:
    Columns finding, smaller and larger (rows; smaller is the one whose drop is
    the smaller by the finding), scale, paper and ours (the two drops),
    difference (larger less smaller), beyond_speed (that of the drops by
    clipping from FedAvg at T / 2; None of other drops) and verdict.
  """
  found = []
  records = lines.to_dict('records')
  for finding in findings:
    drop, tests = FINDINGS[finding]
    for smaller, larger in itertools.product(records, repeat=2):
      drops = [line[drop] for line in (smaller, larger)]
      if (
        smaller['scale'] == larger['scale']
        and tests(smaller, larger)
        and all(isinstance(value, margins.Estimate) for value in drops)
      ):
        difference = margins.difference(drops[1], drops[0])
        found.append(
          {
            'finding': finding,
            'smaller': smaller['row'],
            'larger': larger['row'],
            'scale': smaller['scale_name'],
            'paper': (smaller[f'paper_{drop}'], larger[f'paper_{drop}']),
            'ours': (drops[0].mean, drops[1].mean),
            'difference': difference,
            'beyond_speed': _beyond_speed(smaller, larger, drop),
            'verdict': _verdict(smaller, larger, drop, difference),
          }
        )
  columns = (
    'finding smaller larger scale paper ours difference beyond_speed verdict'
  )
  return pd.DataFrame(found, columns=columns.split())


def comparison_table(compared: pd.DataFrame, finding: str) -> pd.DataFrame:
  """The comparisons of a finding, formatted."""
  of_finding = compared[compared['finding'] == finding]
  return pd.DataFrame(
    {
      'smaller drop, by the finding': of_finding['smaller'],
      'larger drop': of_finding['larger'],
      'scale': of_finding['scale'],
      'paper': of_finding['paper'].map(_pair),
      'ours': of_finding['ours'].map(_pair),
      'difference': of_finding['difference'].map(str),
      'beyond speed': [
        margins.MISSING if beyond is None else str(beyond)
        for beyond in of_finding['beyond_speed']
      ],
      'verdict': of_finding['verdict'],
    }
  )


def num_tested(compared: pd.DataFrame) -> int:
  """How many comparisons could be decided: with seeds, and not near chance."""
  return int(compared['verdict'].isin([*DECIDED, OPEN]).sum())


def num_after_correction(compared: pd.DataFrame) -> int:
  """How many are decided if 5 % is the chance of one error in all of them."""
  return int(_stays_decided(compared).sum())


def takes(compared: pd.DataFrame) -> dict[str, str]:
  """What is decided of each finding, for the sentence on what to take from it.

  Returns:
    By `<finding>_holds` and `<finding>_fails`, the differences in points,
    larger drop less smaller one by the finding, of the comparisons that are
    decided so and stay so by Bonferroni; by `<finding>_weak`, of those that do
    not stay so; by `<finding>_beyond`, for findings on clipping, the
    differences beyond speed of all that are decided. Empty where there is none.
  """
  stays = _stays_decided(compared)
  decided = compared['verdict'].isin(DECIDED)
  found = {}
  for name, (drop, _) in FINDINGS.items():
    of_finding = compared['finding'] == name
    chosen = {
      'holds': (stays & (compared['verdict'] == HOLDS), 'difference'),
      'fails': (stays & (compared['verdict'] == FAILS), 'difference'),
      'weak': (decided & ~stays, 'difference'),
    }
    if drop == 'clipping_drop':
      chosen['beyond'] = decided, 'beyond_speed'
    for key, (which, column) in chosen.items():
      values = compared.loc[of_finding & which, column]
      found[f'{name}_{key}'] = ' and '.join(
        str(value) for value in values if value is not None
      )
  return found


def finding_table(
  compared: pd.DataFrame, spread: pd.DataFrame, titles: Mapping[str, str]
) -> pd.DataFrame:
  """For each finding, how many comparisons there are and decide it.

  Args:
    compared: From `comparisons`.
    spread: From `spread_verdicts`.
    titles: Findings in words, by name; 'spread' is that on the norms.
  """
  lines = []
  for name, title in titles.items():
    verdicts = (
      spread.get('verdict', pd.Series(dtype=object))
      if name == 'spread'
      else compared.loc[compared['finding'] == name, 'verdict']
    )
    lines.append(
      {
        'finding': title,
        'comparisons': len(verdicts),
        'could be decided': verdicts.isin([*DECIDED, OPEN]).sum(),
        **{verdict: (verdicts == verdict).sum() for verdict in DECIDED},
      }
    )
  return pd.DataFrame(lines)


def row_table(lines: pd.DataFrame, compared: pd.DataFrame) -> pd.DataFrame:
  """What each row of the paper came to, at the scale with the best evidence.

  Args:
    lines: From `evidence.paper_lines`.
    compared: From `comparisons`.

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
          title: f'{tables.cell(line[key])} ({line[f"paper_{key}"]:.2f})'
          if not pd.isna(line[f'paper_{key}'])
          else margins.MISSING
          for key, title in _FIGURES.items()
        },
        'beside the paper': _row_verdict(line),
        'comparisons it decides': '{} of {}'.format(
          own['verdict'].isin(DECIDED).sum(), len(own)
        ),
      }
    )
  return pd.DataFrame(found)


def spread_verdicts(lines: pd.DataFrame) -> pd.DataFrame:
  """Whether concentrated norms go with small drops (Sec. 2.2), by scale.

  The drops are those with matched steps: with shorter ones, a part of a drop is
  speed, which is no matter of how concentrated the norms are. Seeds are
  averaged first: those of one row are no rows of their own. Runs of a row at
  another T can begin with the same rounds, so that scales are not put together.

  Args:
    lines: From `matched_steps.with_matched_steps`.

  Returns:
    Columns for a table; a row for each scale with at least `margins.MIN_PAIRS`
    rows.
  """
  found = []
  lines = evidence.once(lines[lines['matched_drop'].notna()])
  lines = lines[lines['spread'].notna()]
  for _, part in lines.groupby('scale_name', sort=False):
    drops = part['matched_drop'].map(lambda drop: drop.mean)
    try:
      correlation = margins.rank_correlation(part['spread'], drops)
    except ValueError:
      # Too few rows, or all spreads, or all drops, are the same.
      continue
    # Of all orders of the rows, one on either side is the most extreme.
    least = 2 / math.factorial(correlation.num_pairs)
    verdict = HOLDS if correlation.value > 0 else FAILS
    if correlation.p_value > 0.05:
      verdict = FEW_ROWS if least > 0.05 else OPEN
    found.append(
      {
        'scale': part['scale_name'].iloc[0],
        'rows': correlation.num_pairs,
        'Spearman ρ': f'{correlation.value:.2f}',
        'p': f'{correlation.p_value:.2g}',
        'least p of so many rows': f'{least:.2g}',
        'verdict': verdict,
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
      if one[name] == smaller != two[name] and _same(one, two, *keys)
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


def in_words(verdicts: Iterable[str]) -> str:
  """How many comparisons came to which verdict."""
  counts = pd.Series(list(verdicts), dtype=object).value_counts()
  if counts.empty:
    return 'no comparison'
  known = (HOLDS, FAILS, OPEN, FEW_SEEDS, FEW_ROWS, CHANCE, CONTRARY)
  parts = [f'{name} in {counts[name]}' for name in known if name in counts]
  return f'{", ".join(parts)} of {counts.sum()}'


def _stays_decided(compared: pd.DataFrame) -> pd.Series:
  """Which comparisons are decided by Bonferroni too.

  Each at 0.05 over the number of those that could be decided.
  """
  limit = 0.05 / max(num_tested(compared), 1)
  return compared['verdict'].isin(DECIDED) & pd.Series(
    [found.p_value <= limit for found in compared['difference']],
    compared.index,
    dtype=bool,
  )


def _beyond_speed(
  smaller: _Line, larger: _Line, drop: str
) -> margins.Difference | None:
  """The difference of the drops from FedAvg at T / 2, larger less smaller."""
  leads = [line['half_way_lead'] for line in (smaller, larger)]
  if drop != 'clipping_drop' or not all(
    isinstance(lead, margins.Estimate) for lead in leads
  ):
    return None
  return margins.difference(*leads)


def _verdict(
  smaller: _Line, larger: _Line, drop: str, difference: margins.Difference
) -> str:
  """What a comparison says of the finding, or why it says nothing."""
  lost = 'ce_fed_avg' if drop == 'clipping_drop' else 'dp_fed_avg'
  if any(tables.is_near_chance(line, lost) for line in (smaller, larger)):
    return CHANCE
  if smaller[f'paper_{drop}'] > larger[f'paper_{drop}']:
    return CONTRARY
  sign = margins.sign(difference)
  return {None: FEW_SEEDS, 0: OPEN, 1: HOLDS, -1: FAILS}[sign]


def _row_verdict(line: _Line) -> str:
  """Whether the paper's figures are where a new seed of ours would be."""
  if not line['is_paper_scale']:
    return 'another scale'
  if line['num_seeds'] < margins.MIN_SEEDS:
    return FEW_SEEDS
  words = []
  for key, title in _FIGURES.items():
    ours = line[key]
    if isinstance(ours, margins.Estimate) and ours.num_seeds > 1:
      gap = ours.mean - line[f'paper_{key}']
      limit = margins.prediction_margin(ours)
      word = (
        'higher' if gap > limit else 'lower' if gap < -limit else 'as there'
      )
      words.append(f'{title} {word}')
  return '; '.join(words)


def _same(one: _Line, other: _Line, *keys: str) -> bool:
  return all(one[key] == other[key] for key in keys)


def _pair(values: tuple[float, float]) -> str:
  return f'{values[0]:.2f} and {values[1]:.2f}'
