"""Which of the paper's findings our runs show, decided by their figures alone.

A comparison of two drops is decided where 0 is outside of the 95 % interval of
their difference, with three seeds of each; else it is left open.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import pandas as pd

from analysis import evidence, margins

HOLDS, FAILS, OPEN = 'holds', 'does not hold', 'not decided'
DECIDED = (HOLDS, FAILS)
# No test, and why.
CHANCE, CONTRARY = 'near chance', 'contrary in the paper'
FEW_SEEDS, FEW_ROWS = 'too few seeds', 'too few rows'
VERDICTS = (HOLDS, FAILS, OPEN, FEW_SEEDS, FEW_ROWS, CHANCE, CONTRARY)

# How structured a model is: "many layers, has convolution layers, skip
# connections, etc" (Sec. 4).
_STRUCTURE = {'MLP': 0, 'AlexNet': 1, 'MobileNetV2': 2, 'ResNet-18': 2}

# Of Tables 3 and 4.
_LAYERS = {'MLP': 2, 'AlexNet': 7, 'ResNet-18': 18, 'MobileNetV2': 24}

_Line = Mapping[str, object]

# Of a difference of two drops by clipping.
_OTHER_MEASURES = {
  'beyond_speed': 'beyond speed',
  'matched_steps': 'with matched steps',
}


class Finding(NamedTuple):
  """What the paper says of two drops.

  Attributes:
    title: It in short.
    claim: It at length.
    source: Where the paper has it.
    drop: The drop that it is on.
    tests: Whether a pair of lines tests it, the first with the drop that it
      calls smaller.
  """

  title: str
  claim: str
  source: str
  drop: str
  tests: Callable[[_Line, _Line], bool]


FINDINGS: Mapping[str, Finding] = {
  'split': Finding(
    'clipping costs more on non-IID data',
    'Clipping costs more on non-IID data than on IID data',
    'Table 2',
    'clipping_drop',
    lambda one, two: (
      _same(one, two, 'table', 'model', 'data')
      and one['table'] == 2
      and one['is_iid'] > two['is_iid']
    ),
  ),
  'data': Finding(
    'clipping costs more on CIFAR-10',
    'Clipping costs more on CIFAR-10 than on EMNIST',
    'Table 2',
    'clipping_drop',
    lambda one, two: (
      _same(one, two, 'table', 'model', 'is_iid')
      and one['table'] == 2
      and (one['paper_data'], two['paper_data']) == ('EMNIST', 'CIFAR-10')
    ),
  ),
  # Table 4 repeats AlexNet and ResNet-18 of Table 2.
  'structure': Finding(
    'structured models lose less by clipping',
    'Structured models lose less by clipping: MobileNetV2 and ResNet-18 less '
    'than AlexNet, and all three less than the MLP',
    'Sec. 2.2 and 4',
    'clipping_drop',
    lambda one, two: (
      _same(one, two, 'table', 'data', 'is_iid')
      and _STRUCTURE[one['model']] > _STRUCTURE[two['model']]
      and (two['table'], two['model']) != (4, 'AlexNet')
    ),
  ),
  # Of a pair with more of one and less of the other it says nothing.
  'size': Finding(
    'models with more parameters and/or layers lose more by noise',
    'Models with more parameters and/or layers lose more by noise',
    'Tables 3 and 4',
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
    lines: From `evidence.paper_lines`, or with the columns of
      `matched_steps.with_matched_steps` as well.
    findings: The findings.

  Returns:
    Columns finding, smaller and larger (rows; smaller is the one whose drop is
    the smaller by the finding), scale, paper and ours (the two drops),
    difference (larger less smaller), beyond_speed (that of the drops by
    clipping from FedAvg where it has moved as far; None of other drops),
    matched_steps (that of the drops with matched steps, if both lines have
    them), num_seeds (of the one with fewer), examples (those of a run) and
    verdict.
  """
  found = []
  records = lines.to_dict('records')
  for finding in findings:
    drop, tests = FINDINGS[finding].drop, FINDINGS[finding].tests
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
            'beyond_speed': _without_speed(
              smaller, larger, drop, 'equal_path_lead'
            ),
            'matched_steps': _without_speed(
              larger, smaller, drop, 'matched_drop'
            ),
            'num_seeds': min(value.num_seeds for value in drops),
            'examples': smaller['examples'],
            'verdict': _verdict(smaller, larger, drop, difference),
          }
        )
  columns = (
    'finding smaller larger scale paper ours difference beyond_speed '
    'matched_steps num_seeds examples verdict'
  )
  return pd.DataFrame(found, columns=columns.split())


def with_counted(compared: pd.DataFrame) -> pd.DataFrame:
  """Adds which comparison of two rows counts, where they have several scales.

  A run for T rounds begins as a longer one does, so that those of two scales
  are not two tests. The one that counts can be tested, if one can; has the
  most seeds, and then the most examples. Whether it holds plays no part.

  Args:
    compared: From `comparisons`.

  Returns:
    The rows with the column `counts`.
  """
  ranked = compared.assign(
    is_tested=is_tested(compared['verdict'])
  ).sort_values(
    ['is_tested', 'num_seeds', 'examples'], ascending=False, kind='stable'
  )
  first = ranked.drop_duplicates(['finding', 'smaller', 'larger']).index
  return compared.assign(counts=compared.index.isin(first))


def num_tested(compared: pd.DataFrame) -> int:
  """How many comparisons can be tested: with seeds, and not near chance."""
  return int(is_tested(compared['verdict']).sum())


def stays_decided(compared: pd.DataFrame) -> pd.Series:
  """Which comparisons are decided if all share the chance of one error, 5 %.

  By Bonferroni: each at 0.05 over the number of those that can be tested.
  """
  limit = 0.05 / max(num_tested(compared), 1)
  return compared['verdict'].isin(DECIDED) & pd.Series(
    [found.p_value <= limit for found in compared['difference']],
    compared.index,
    dtype=bool,
  )


def lessons(compared: pd.DataFrame, finding: str) -> dict[str, str]:
  """What to take from the comparisons of a finding that stay decided.

  Returns:
    The differences in points, larger drop less smaller one by the finding, of
    those that hold (`holds`) or do not (`fails`); and apart from them
    (`otherwise`) those which another measure of the same difference, beyond
    speed or with matched steps, does not decide alike, beside what they are by
    it. Empty where there is none.
  """
  found = {'holds': [], 'fails': [], 'otherwise': []}
  of_finding = compared[stays_decided(compared)]
  of_finding = of_finding[of_finding['finding'] == finding]
  for pair in of_finding.to_dict('records'):
    text, sign = str(pair['difference']), margins.sign(pair['difference'])
    others = {
      name: pair[key]
      for key, name in _OTHER_MEASURES.items()
      if pair[key] is not None
    }
    if all(margins.sign(x) in (sign, None) for x in others.values()):
      found['holds' if sign > 0 else 'fails'].append(text)
    else:
      shown = ', '.join(f'{name} {x}' for name, x in others.items())
      found['otherwise'].append(f'{text} ({shown})')
  return {key: ' and '.join(values) for key, values in found.items()}


def elsewhere(compared: pd.DataFrame, finding: str) -> str:
  """The comparisons that stay decided, at scales where their sign is another.

  Args:
    compared: From `with_counted`, of all scales.
    finding: The finding.

  Returns:
    The differences in points, each with its scale; empty where there is none.
  """
  counted = compared[compared['counts']]
  kept = counted[stays_decided(counted) & (counted['finding'] == finding)]
  pair = ['smaller', 'larger']
  others = compared[compared['finding'] == finding].merge(
    kept[[*pair, 'scale', 'difference']], on=pair, suffixes=('', '_kept')
  )
  return ' and '.join(
    f'{one["difference"]} at `{one["scale"]}`'
    for one in others.to_dict('records')
    if margins.sign(one['difference']) == -margins.sign(one['difference_kept'])
  )


def contrary(compared: pd.DataFrame, finding: str) -> str:
  """What is clear of the pairs whose published drops are in the other order.

  Args:
    compared: Those that count, from `with_counted`.
    finding: The finding.

  Returns:
    The differences in points whose interval excludes 0, each with its rows;
    empty where there is none.
  """
  of_finding = compared[
    (compared['finding'] == finding) & (compared['verdict'] == CONTRARY)
  ]
  return ' and '.join(
    f'{one["difference"]} ({one["larger"]} less {one["smaller"]})'
    for one in of_finding.to_dict('records')
    if margins.sign(one['difference'])
  )


def one_side(compared: pd.DataFrame, finding: str) -> dict[str, int]:
  """Whether all differences that can be tested are on one side of 0.

  Args:
    compared: From `comparisons`.
    finding: The finding.

  Returns:
    How many they are, if they are two or more and all are as it says
    (`all_for`), or all the other way (`all_against`); else 0.
  """
  of_finding = compared[
    (compared['finding'] == finding) & is_tested(compared['verdict'])
  ]
  means = [found.mean for found in of_finding['difference']]
  return {
    name: len(means) if len(means) > 1 and all(is_there) else 0
    for name, is_there in (
      ('all_for', [mean > 0 for mean in means]),
      ('all_against', [mean < 0 for mean in means]),
    )
  }


def spread_verdicts(lines: pd.DataFrame) -> pd.DataFrame:
  """Whether concentrated norms go with small drops (Sec. 2.2), by scale.

  The drops are those with matched steps: with shorter ones, a part of a drop is
  speed, which is no matter of how concentrated the norms are. The correlation
  of those stands beside it, for the same rows. Seeds are
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
        'with plain steps': _plain_correlation(part),
        'least p of so many rows': f'{least:.2g}',
        'verdict': verdict,
      }
    )
  return pd.DataFrame(found)


def _plain_correlation(lines: pd.DataFrame) -> str:
  """Spearman's correlation of spreads and drops with the paper's steps."""
  drops = lines['clipping_drop'].map(lambda drop: drop.mean)
  try:
    found = margins.rank_correlation(lines['spread'], drops)
  except ValueError:
    return margins.MISSING
  return f'ρ = {found.value:.2f}, p = {found.p_value:.2g}'


def is_tested(found: pd.Series) -> pd.Series:
  """Whether verdicts are of comparisons that can be tested."""
  return found.isin([*DECIDED, OPEN])


def _without_speed(
  line: _Line, other: _Line, drop: str, key: str
) -> margins.Difference | None:
  """The difference of drops without speed, first less second.

  Only drops by clipping have one.
  """
  found = [line.get(key), other.get(key)]
  if drop != 'clipping_drop' or not all(
    isinstance(value, margins.Estimate) for value in found
  ):
    return None
  return margins.difference(*found)


def _verdict(
  smaller: _Line, larger: _Line, drop: str, difference: margins.Difference
) -> str:
  """What a comparison says of the finding, or why it says nothing."""
  if any(evidence.is_near_chance(line, drop) for line in (smaller, larger)):
    return CHANCE
  if smaller[f'paper_{drop}'] > larger[f'paper_{drop}']:
    return CONTRARY
  sign = margins.sign(difference)
  return {None: FEW_SEEDS, 0: OPEN, 1: HOLDS, -1: FAILS}[sign]


def _same(one: _Line, other: _Line, *keys: str) -> bool:
  return all(one[key] == other[key] for key in keys)
