"""Which of the paper's findings our runs show, decided by their figures alone.

A comparison of two drops is decided where 0 is outside of the 95 % interval of
their difference, with three seeds of each; else it is left open.
"""

import itertools
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import pandas as pd

from analysis.paper import rows
from analysis.runs import margins

HOLDS, FAILS, OPEN = 'holds', 'does not hold', 'not decided'
DECIDED = (HOLDS, FAILS)
# No test, and why.
CHANCE, CONTRARY = 'near chance', 'contrary in the paper'
FEW_SEEDS = 'too few seeds'

# How structured a model is: "many layers, has convolution layers, skip
# connections, etc" (Sec. 4).
_STRUCTURE = {'MLP': 0, 'AlexNet': 1, 'MobileNetV2': 2, 'ResNet-18': 2}

# Of Tables 3 and 4.
_LAYERS = {'MLP': 2, 'AlexNet': 7, 'ResNet-18': 18, 'MobileNetV2': 24}

_Line = Mapping[str, object]


class Finding(NamedTuple):
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


FINDINGS: Mapping[str, Finding] = {
  # Table 2.
  'split': Finding(
    'clipping costs more on non-IID data',
    'clipping_drop',
    lambda one, two: (
      _same(one, two, 'table', 'model', 'data')
      and one['table'] == 2
      and one['is_iid'] > two['is_iid']
    ),
  ),
  # Table 2.
  'data': Finding(
    'clipping costs more on CIFAR-10',
    'clipping_drop',
    lambda one, two: (
      _same(one, two, 'table', 'model', 'is_iid')
      and one['table'] == 2
      and (one['paper_data'], two['paper_data']) == ('EMNIST', 'CIFAR-10')
    ),
  ),
  # Sec. 2.2 and 4; Table 4 repeats AlexNet and ResNet-18 of Table 2.
  'structure': Finding(
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
  'size': Finding(
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
# Those that studies of noise can test.
OF_NOISE = ('size',)


def comparisons(
  lines: pd.DataFrame, findings: Iterable[str] = tuple(FINDINGS)
) -> pd.DataFrame:
  """Every pair of drops that tests a finding, at each scale that both have.

  Args:
    lines: From `rows.paper_rows` or `rows.noise_rows`.
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
        _is_same_scale(smaller, larger)
        and tests(smaller, larger)
        and all(isinstance(value, margins.Estimate) for value in drops)
      ):
        difference = margins.difference(drops[1], drops[0])
        found.append(
          {
            'finding': finding,
            'smaller': smaller['row'],
            'larger': larger['row'],
            'scale': smaller['scale'],
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


def concentration(lines: pd.DataFrame) -> pd.DataFrame:
  """Whether concentrated norms go with small drops (Sec. 2.2), by scale.

  The drops are those with matched steps: with shorter ones, a part of a drop is
  speed, which is no matter of how concentrated the norms are. The correlation
  of those stands beside it, for the same rows. Seeds are averaged first: those
  of one row are no rows of their own. Runs of a row at another T can begin with
  the same rounds, so that scales are not put together.

  Args:
    lines: From `rows.paper_rows`.

  Returns:
    A row for each scale with at least `margins.MIN_PAIRS` rows, with columns
    scale and, `RankCorrelation`s, matched and plain.
  """
  lines = lines[lines['matched_drop'].notna() & lines['spread'].notna()]
  found = []
  for scale, part in rows.without_shared(lines).groupby('scale', sort=False):
    if len(part) >= margins.MIN_PAIRS:
      matched, plain = (
        margins.rank_correlation(
          part['spread'], part[drop].map(lambda value: value.mean)
        )
        for drop in ('matched_drop', 'clipping_drop')
      )
      found.append({'scale': scale, 'matched': matched, 'plain': plain})
  return pd.DataFrame(found, columns=['scale', 'matched', 'plain'])


def norm_pairs(lines: pd.DataFrame) -> pd.DataFrame:
  """What the paper says of the norms at t = 16 (Sec. 2.2), by pairs of rows.

  Returns:
    A row for each statement, with columns statement, pairs (of our rows of
    Table 2 with one P, Q and batch), and ratio and stddev (in how many it is so
    by std / mean of the norms, and by their standard deviation).
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
    counts = {
      key: sum(one[column] < two[column] for one, two in pairs)
      for key, column in (('ratio', 'spread_at'), ('stddev', 'std_at'))
    }
    found.append({'statement': statement, 'pairs': len(pairs)} | counts)
  return pd.DataFrame(found)


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
  if any(rows.is_near_chance(line, drop) for line in (smaller, larger)):
    return CHANCE
  if smaller[f'paper_{drop}'] > larger[f'paper_{drop}']:
    return CONTRARY
  sign = margins.sign(difference)
  return {None: FEW_SEEDS, 0: OPEN, 1: HOLDS, -1: FAILS}[sign]


def _is_same_scale(one: _Line, other: _Line) -> bool:
  return _same(one, other, 'P', 'Q', 'batch', 'T')


def _same(one: _Line, other: _Line, *keys: str) -> bool:
  return all(one[key] == other[key] for key in keys)
