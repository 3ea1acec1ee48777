"""Which of the paper's findings our runs show, decided by their figures alone.

A comparison is decided where 0 is outside of the 95 % interval of the
difference of two drops; else it is left open. The error of one seed is not that
of seeds, so what it decides is called a hint.
"""

import dataclasses
import itertools
from collections.abc import Sequence

import pandas as pd

from analysis import paper, rows, tables

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
    concentration_verdicts: What `norm_findings.concentration_verdicts` returns.

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


def has_little_to_lose(row: rows.Row) -> bool:
  """Whether FedAvg itself is near chance in a row that has a run of it."""
  return row.accuracy('fed_avg').value < 3 * CHANCE


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
      row.accuracy(algorithm).value < 2 * CHANCE or has_little_to_lose(row)
      for row in (smaller, larger)
    ),
  )


def _published(row: paper.PublishedRow, algorithm: str) -> float:
  return row.clipping_drop if algorithm == 'ce_fed_avg' else row.dp_drop


def _of_table(paper_rows: Sequence[rows.Row], table: int) -> list[rows.Row]:
  return [row for row in paper_rows if row.published.table == table]


def _join(parts: Sequence[str]) -> str:
  return ', '.join(parts[:-1]) + (' and ' if parts[1:] else '') + parts[-1]
