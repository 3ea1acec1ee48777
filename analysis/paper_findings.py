"""Which of the paper's findings our runs show, decided by their figures alone.

A comparison is decided where 0 is outside of the 95 % interval of the
difference of two drops; else it is left open. The error of one seed is not that
of seeds, so what it decides is called a hint.
"""

import dataclasses
import itertools
from collections.abc import Sequence

import pandas as pd

from analysis import concentration, paper, rows, tables

HOLDS, FAILS = 'holds', 'does not hold'
# With one seed.
HINT_FOR, HINT_AGAINST = 'seems to hold', 'seems not to hold'
OPEN, UNLIKE, FLOOR = 'not decided', 'scales differ', 'near chance'
CONTRARY = 'contrary in the paper'

CONCENTRATION = 'Concentrated update norms go with small drops (Sec. 2.2).'

# In percent, of ten classes. A model below twice of it hardly knows anything,
# and where FedAvg is below three times of it there is little to lose.
CHANCE = 10.0

# Models with skip connections and norms, which the paper calls structured.
_STRUCTURED = ('MobileNetV2', 'ResNet-18')


@dataclasses.dataclass(frozen=True)
class Comparison:
  """One drop that the paper has smaller than another.

  Attributes:
    smaller: What has the smaller drop in the paper's finding.
    larger: What has the larger one.
    ours: Our two drops, in this order.
    published: The paper's two drops, in this order.
    scale: P, Q, batch and T of both rows; None where they differ, so that the
      scale can be the reason for the difference.
    at_chance: Whether one of the models has lost all that it could, or had
      little to lose, so that its drop says how good it was before.
  """

  smaller: str
  larger: str
  ours: tuple[rows.Estimate, rows.Estimate]
  published: tuple[float, float]
  scale: tuple | None
  at_chance: bool = False

  @property
  def difference(self) -> rows.Estimate:
    """The larger drop less the smaller one."""
    return self.ours[1].minus(self.ours[0])

  @property
  def verdict(self) -> str:
    """What it says of the finding, or why it says nothing."""
    if self.scale is None:
      return UNLIKE
    if self.at_chance:
      return FLOOR
    if self.published[0] > self.published[1]:
      return CONTRARY
    difference = self.difference
    if not difference.is_clear:
      return OPEN
    if difference.num_seeds == 1:
      return HINT_FOR if difference.value > 0 else HINT_AGAINST
    return HOLDS if difference.value > 0 else FAILS


@dataclasses.dataclass(frozen=True)
class Finding:
  """A finding of the paper with the comparisons that test it.

  Attributes:
    claim: The finding in words.
    comparisons: What it says of our runs.
    not_tested: The comparisons that lack a run, in words.
  """

  claim: str
  comparisons: tuple[Comparison, ...]
  not_tested: tuple[str, ...]

  @property
  def verdict(self) -> str:
    """All comparisons together, in words."""
    count = len(self.comparisons)
    if count == 0:
      return 'Not tested: no pair of runs is there.'
    verdicts = [c.verdict for c in self.comparisons]
    parts = [
      f'{word} in {verdicts.count(word)}'
      for word in (HOLDS, FAILS)
      if verdicts.count(word)
    ]
    parts += [
      f'{word} in {verdicts.count(word)} with one seed'
      for word in (HINT_FOR, HINT_AGAINST)
      if verdicts.count(word)
    ]
    if verdicts.count(OPEN):
      parts.append(f'is not decided in {verdicts.count(OPEN)}')
    if verdicts.count(UNLIKE):
      parts.append(
        f'is not tested in {verdicts.count(UNLIKE)}, whose rows have another '
        'P, Q, batch or T: that can be the reason for their difference'
      )
    if verdicts.count(FLOOR):
      parts.append(f'is not tested in {verdicts.count(FLOOR)}, near chance')
    if verdicts.count(CONTRARY):
      parts.append(
        f'is not tested in {verdicts.count(CONTRARY)}, in which the paper’s '
        'own two drops are in the other order'
      )
    noun = 'comparison' if count == 1 else 'comparisons'
    return f'Of {count} {noun}, it {_join(parts)}.'

  def table(self) -> pd.DataFrame:
    """The comparisons, formatted."""
    return pd.DataFrame(
      [
        {
          'smaller drop, by the finding': c.smaller,
          'larger drop': c.larger,
          'P, Q, batch, T': (
            tables.MISSING if c.scale is None else ', '.join(map(str, c.scale))
          ),
          'paper (points)': f'{c.published[0]:.2f} and {c.published[1]:.2f}',
          'ours (points)': f'{c.ours[0].value:.2f} and {c.ours[1].value:.2f}',
          'our difference': str(c.difference),
          'seeds': str(c.difference.num_seeds),
          'verdict': c.verdict,
        }
        for c in self.comparisons
      ]
    )


def of_drops(paper_rows: Sequence[rows.Row]) -> list[Finding]:
  """The paper's findings on drops of accuracy, in the order of the page."""
  return [
    iid_finding(paper_rows),
    structure_finding(paper_rows),
    data_finding(paper_rows),
    size_finding(paper_rows),
  ]


def summary_table(
  findings: Sequence[Finding], concentration_verdicts: pd.DataFrame
) -> pd.DataFrame:
  """How many comparisons decide each finding, and how.

  Args:
    findings: The findings on drops.
    concentration_verdicts: What `concentration_verdicts` returns.

  Returns:
    Columns for a table; a row for each finding, that on concentration last.
  """
  lines = []
  for claim, verdicts in [
    *((f.claim, [c.verdict for c in f.comparisons]) for f in findings),
    (CONCENTRATION, list(concentration_verdicts.get('verdict', []))),
  ]:
    lines.append(
      {
        'finding of the paper': claim,
        'holds in': str(verdicts.count(HOLDS)),
        'does not hold in': str(verdicts.count(FAILS)),
        'seems to hold in (one seed)': str(verdicts.count(HINT_FOR)),
        'seems not to hold in (one seed)': str(verdicts.count(HINT_AGAINST)),
        'not decided in': str(verdicts.count(OPEN)),
        'no test': str(sum(map(verdicts.count, (FLOOR, UNLIKE, CONTRARY)))),
      }
    )
  return pd.DataFrame(lines)


def iid_finding(paper_rows: Sequence[rows.Row]) -> Finding:
  """Clipping costs more on non-IID data (Sec. 2.2, Table 2)."""
  pairs = []
  for iid in _of_table(paper_rows, 2):
    for other in _of_table(paper_rows, 2):
      one, two = iid.published, other.published
      same = (one.model, one.data) == (two.model, two.data)
      if same and one.is_iid and not two.is_iid:
        pairs.append((iid, other))
  return _compare(
    'The drop by clipping is larger on non-IID data than on IID data (Table '
    '2).',
    pairs,
    'ce_fed_avg',
  )


def structure_finding(paper_rows: Sequence[rows.Row]) -> Finding:
  """Structured models lose less by clipping (Sec. 2.2 and 4)."""
  pairs = []
  for table in (2, 3, 4):
    of_table = _of_table(paper_rows, table)
    for structured in of_table:
      for plain in of_table:
        one, two = structured.published, plain.published
        if (
          one.model in _STRUCTURED
          and two.model not in _STRUCTURED
          and (one.data, one.is_iid) == (two.data, two.is_iid)
          # Table 4 repeats these of Table 2.
          and not (table == 4 and two.model == 'AlexNet')
        ):
          pairs.append((structured, plain))
  return _compare(
    'Structured models (here MobileNetV2, ResNet-18) lose less by clipping '
    'than plainer ones (MLP, AlexNet).',
    pairs,
    'ce_fed_avg',
  )


def data_finding(paper_rows: Sequence[rows.Row]) -> Finding:
  """Clipping costs more on the harder data (Sec. 2.2, Table 2)."""
  pairs = []
  for easy in _of_table(paper_rows, 2):
    for hard in _of_table(paper_rows, 2):
      one, two = easy.published, hard.published
      same = (one.model, one.is_iid) == (two.model, two.is_iid)
      if same and (one.data, two.data) == ('EMNIST', 'CIFAR-10'):
        pairs.append((easy, hard))
  return _compare(
    'The drop by clipping is larger on CIFAR-10 than on EMNIST (Table 2).',
    pairs,
    'ce_fed_avg',
  )


def size_finding(paper_rows: Sequence[rows.Row]) -> Finding:
  """Larger models lose more by the noise (Sec. 4, Tables 3 and 4)."""
  pairs = []
  for table in (3, 4):
    # By their number of parameters.
    order = ['MLP', 'MobileNetV2', 'AlexNet', 'ResNet-18']
    of_table = sorted(
      _of_table(paper_rows, table),
      key=lambda row: order.index(row.published.model),
    )
    pairs += itertools.combinations(of_table, 2)
  return _compare(
    'Models with more parameters lose more by the noise of DP-FedAvg (Tables 3 '
    'and 4).',
    pairs,
    'dp_fed_avg',
  )


def concentration_verdicts(paper_rows: Sequence[rows.Row]) -> pd.DataFrame:
  """Whether concentrated norms go with small drops (Sec. 2.2), by scale.

  Seeds are averaged first: those of one row are no rows of their own.

  Args:
    paper_rows: The rows.

  Returns:
    Columns for a table; a row for each P, Q, batch and T with at least
    `concentration.MIN_PAIRS` rows. Runs of the same row at another T can begin
    with the same rounds, so scales are not put together.
  """
  found = _spreads_and_drops(paper_rows)
  by_scale = {}
  for line in found:
    by_scale.setdefault(', '.join(map(str, line[0].scale)), []).append(line)
  lines = []
  for scale, of_scale in by_scale.items():
    if len(of_scale) < concentration.MIN_PAIRS:
      continue
    try:
      correlation = concentration.rank_correlation(
        [spread for _, spread, _ in of_scale],
        [drop.value for _, _, drop in of_scale],
      )
    except ValueError:
      # All spreads, or all drops, are the same.
      continue
    if correlation.p_value > 0.05:
      verdict = OPEN
    else:
      verdict = HOLDS if correlation.value > 0 else FAILS
    lines.append(
      {
        'P, Q, batch, T': scale,
        'rows': str(correlation.num_pairs),
        'Spearman ρ': f'{correlation.value:.2f}',
        '95 % interval': f'{correlation.low:.2f} to {correlation.high:.2f}',
        'p': f'{correlation.p_value:.2g}',
        'verdict': verdict,
      }
    )
  return pd.DataFrame(lines)


def spread_table(paper_rows: Sequence[rows.Row]) -> pd.DataFrame:
  """What the paper says of the norms at t = 16 (Sec. 2.2), by pairs of rows.

  Args:
    paper_rows: The rows.

  Returns:
    Columns for a table; a row for each statement, with the number of pairs of
    our rows, at one scale, which differ in nothing else.
  """
  found = [
    (row.published, row.scale, *concentration.spreads_at(row.runs('fed_avg')))
    for row, _, _ in _spreads_and_drops(paper_rows)
    if row.published.table == 2
  ]
  lines = []
  for statement, name, smaller in (
    ('less on EMNIST (here MNIST) than on CIFAR-10', 'data', 'EMNIST'),
    ('less on IID data than on non-IID data', 'is_iid', True),
    ('less with ResNet-18 than with AlexNet', 'model', 'ResNet-18'),
  ):
    keys = {'model', 'data', 'is_iid'} - {name}
    pairs = [
      (one, two)
      for one in found
      for two in found
      if one[1] == two[1]
      and getattr(one[0], name) == smaller
      and getattr(two[0], name) != smaller
      and all(getattr(one[0], key) == getattr(two[0], key) for key in keys)
    ]
    lines.append(
      {
        'the norms spread, in the paper': statement,
        'pairs of rows': str(len(pairs)),
        'so by std / mean in': str(sum(one[2] < two[2] for one, two in pairs)),
        'so by std in': str(sum(one[3] < two[3] for one, two in pairs)),
      }
    )
  return pd.DataFrame(lines)


def concentration_table(paper_rows: Sequence[rows.Row]) -> pd.DataFrame:
  """The spread of the norms of FedAvg beside the drop, by rising spread.

  Args:
    paper_rows: The rows.

  Returns:
    Columns for a table; a row for each pair of FedAvg and CE-FedAvg runs that
    the rows share, once.
  """
  ordered = sorted(_spreads_and_drops(paper_rows), key=lambda line: line[1])
  return pd.DataFrame(
    [
      {
        'row': row.name,
        'P': str(row.scale[0]),
        'T': str(row.scale[-1]),
        'std / mean of the norms (%)': f'{100 * spread:.1f}',
        'drop by clipping, paper': f'{row.published.clipping_drop:.2f}',
        'drop by clipping, ours': str(drop),
      }
      for row, spread, drop in ordered
    ]
  )


def _compare(
  claim: str,
  pairs: Sequence[tuple[rows.Row, rows.Row]],
  algorithm: str,
) -> Finding:
  comparisons, not_tested = [], []
  for pair in pairs:
    # Where no scale is common to both, those that there are.
    several = rows.at_each_common_scale(*pair) or [pair]
    found = [
      comparison
      for smaller, larger in several
      if (comparison := _comparison(smaller, larger, algorithm)) is not None
    ]
    comparisons += found
    if not found:
      not_tested.append(f'{pair[0].name} and {pair[1].published.title}')
  return Finding(claim, tuple(comparisons), tuple(not_tested))


def _comparison(
  smaller: rows.Row, larger: rows.Row, algorithm: str
) -> Comparison | None:
  ours = smaller.drop(algorithm), larger.drop(algorithm)
  if None in ours:
    return None
  return Comparison(
    smaller.name,
    larger.name,
    ours,
    (
      _published(smaller.published, algorithm),
      _published(larger.published, algorithm),
    ),
    smaller.scale if smaller.scale == larger.scale else None,
    any(
      row.accuracy(algorithm).value < 2 * CHANCE
      or row.accuracy('fed_avg').value < 3 * CHANCE
      for row in (smaller, larger)
    ),
  )


def _published(row: paper.PublishedRow, algorithm: str) -> float:
  return row.clipping_drop if algorithm == 'ce_fed_avg' else row.dp_drop


def _spreads_and_drops(
  paper_rows: Sequence[rows.Row],
) -> list[tuple[rows.Row, float, rows.Estimate]]:
  """Each row at each scale with its spread of norms and its drop, once."""
  found = {}
  for row in rows.at_all_scales(paper_rows):
    plain, drop = row.runs('fed_avg'), row.drop('ce_fed_avg')
    if not plain or drop is None:
      continue
    spreads = [concentration.relative_spread(run) for run in plain]
    # Two rows of the paper can share their runs.
    found.setdefault(plain[0].name, (row, sum(spreads) / len(spreads), drop))
  return list(found.values())


def _of_table(paper_rows: Sequence[rows.Row], table: int) -> list[rows.Row]:
  return [row for row in paper_rows if row.published.table == table]


def _join(parts: Sequence[str]) -> str:
  return ', '.join(parts[:-1]) + (' and ' if parts[1:] else '') + parts[-1]
