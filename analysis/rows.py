"""The rows of docs/reproduction.md: which runs make them, and how to repeat."""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
from scipy import stats

from analysis import paper, results, tables

# Evaluations at the end of a run whose spread stands in for that of seeds.
_LAST_EVALUATIONS = 3

# As the names of flag files have them.
_MODEL_KEYS = {
  'MLP': 'mlp',
  'AlexNet': 'alexnet',
  'MobileNetV2': 'mobilenet_v2',
  'ResNet-18': 'resnet18',
}

# What a comparison of two drops needs to be the same.
_SCALE = ('clients_per_round', 'local_steps', 'batch_size', 'num_rounds')

# Those of the paper; DP-FedAvg with another sampling is another comparison.
_VARIANT_SAMPLINGS = ('paper', 'fixed_size')


@dataclasses.dataclass(frozen=True)
class Estimate:
  """A figure in points with its errors.

  Attributes:
    value: The figure; the mean over seeds.
    error: Its standard error from seed to seed, in points, or what stands in
      for that with one seed.
    num_seeds: The number of seeds.
    degrees: The degrees of freedom of `error`.
    test_error: Its standard error by the choice of the test images, in points,
      as if each run had its own: all seeds have the same.
  """

  value: float
  error: float
  num_seeds: int
  degrees: float = math.inf
  test_error: float = 0.0

  def __str__(self) -> str:
    return f'{tables.format_number(self.value, ".2f")} ± {self.margin:.2f}'

  @property
  def margin(self) -> float:
    """Half of the 95 % interval, by Student's t, in points."""
    of_seeds = self.error * float(stats.t.ppf(0.975, self.degrees))
    return math.hypot(of_seeds, self.test_error * float(stats.norm.ppf(0.975)))

  @property
  def is_clear(self) -> bool:
    """Whether 0 is outside of the 95 % interval."""
    return abs(self.value) > self.margin

  def minus(self, other: 'Estimate') -> 'Estimate':
    """The difference of two, as if they were independent.

    The degrees of freedom are Welch's.
    """
    error = math.hypot(self.error, other.error)
    shares = [e.error**4 / e.degrees for e in (self, other)]
    return Estimate(
      self.value - other.value,
      error,
      min(self.num_seeds, other.num_seeds),
      error**4 / sum(shares) if sum(shares) > 0 else math.inf,
      math.hypot(self.test_error, other.test_error),
    )


@dataclasses.dataclass(frozen=True)
class Row:
  """A row of the paper's Tables 2 to 4 with the runs that repeat it.

  Attributes:
    published: The paper's.
    groups: Groups of comparable runs, one for each seed, of one scale. Runs of
      DP-FedAvg with other samplings than Poisson are not among them.
    others: The row at other scales, in the order of `paper_rows`.
  """

  published: paper.PublishedRow
  groups: tuple[tuple[results.Run, ...], ...]
  others: tuple['Row', ...] = ()

  @property
  def name(self) -> str:
    """What the row is called, with its table."""
    return f'Table {self.published.table}: {self.published.title}'

  @property
  def scale(self) -> tuple | None:
    """P, Q, batch and T of its runs; None without a run."""
    return scale_of(self.groups[0][0]) if self.groups else None

  @property
  def all_scales(self) -> tuple['Row', ...]:
    """The row and the same one at other scales."""
    return (self, *self.others)

  @property
  def stem(self) -> str:
    """The beginning of the names of its flag files."""
    row = self.published
    data = row.data.lower().replace('-', '')
    split = 'iid' if row.is_iid else 'noniid'
    own = f'{_MODEL_KEYS[row.model]}_{data}_{split}'
    for run in (run for group in self.groups for run in group):
      beginning, found, _ = run.name.partition(f'_{own}_')
      # Runs of one table can serve another.
      if found and not beginning.startswith('table'):
        return f'{beginning}_{own}'
    return f'table{row.table}_{own}'

  @property
  def command(self) -> str:
    """The command that runs it again; '' where it was not run."""
    seeds = sorted({group[0].seed or 0 for group in self.groups})
    if not seeds:
      seeds = [0]
    return reproduce_command(self.stem, seeds)

  @property
  def algorithms(self) -> tuple[str, ...]:
    """The algorithms that the paper has in this row."""
    if self.published.dp_drop is None:
      return ('fed_avg', 'ce_fed_avg')
    return ('fed_avg', 'ce_fed_avg', 'dp_fed_avg')

  def runs(self, algorithm: str) -> list[results.Run]:
    """The finished runs of an algorithm of the row, one for each seed."""
    if algorithm not in self.algorithms:
      return []
    return [
      run
      for group in self.groups
      for run in group
      if run.algorithm == algorithm and run.is_complete
    ]

  def pairs(
    self, algorithm: str, baseline: str = 'fed_avg'
  ) -> list[tuple[results.Run, results.Run]]:
    """The finished runs of an algorithm, each after its baseline."""
    return _pairs(self.groups, algorithm, baseline)

  def missing(self) -> list[str]:
    """The algorithms of the row without a finished run."""
    return [
      paper.ALGORITHM_NAMES[algorithm]
      for algorithm in self.algorithms
      if not self.runs(algorithm)
    ]

  def accuracy(self, algorithm: str = 'fed_avg') -> Estimate | None:
    """The final accuracy of an algorithm; None where it was not run."""
    runs = self.runs(algorithm)
    return estimate(
      [run.final_accuracy for run in runs],
      [run.accuracy_by_round['accuracy'] for run in runs],
      [_test_error(run) for run in runs],
    )

  def drop(self, algorithm: str) -> Estimate | None:
    """What clipping ('ce_fed_avg') or noise ('dp_fed_avg') costs, in points.

    From FedAvg to CE-FedAvg, and from CE-FedAvg to DP-FedAvg; None where a run
    is missing.
    """
    baseline = 'fed_avg' if algorithm == 'ce_fed_avg' else 'ce_fed_avg'
    return drop_of(self.groups, algorithm, baseline)


def reproduce_command(stem: str, seeds: Sequence[int]) -> str:
  """The command that runs what begins with `stem`, for some seeds."""
  command = f'python -m tasks.reproduce {stem}'
  if list(seeds) != [0]:
    command += f' --seeds={",".join(map(str, seeds))}'
  return command


def drop_of(
  groups: Sequence[Sequence[results.Run]], algorithm: str, baseline: str
) -> Estimate | None:
  """The accuracy lost from one algorithm to another, over groups.

  Args:
    groups: Groups of comparable runs, one for each seed.
    algorithm: The algorithm that loses.
    baseline: The algorithm that it is compared with.

  Returns:
    The drop in points, or None where no group has both.
  """
  return difference(_pairs(groups, algorithm, baseline))


def difference(
  pairs: Sequence[tuple[results.Run, results.Run]], at: float = 1.0
) -> Estimate | None:
  """How much more accurate one run is than another, over seeds.

  Args:
    pairs: Two runs of each seed.
    at: The share of the rounds of the first at which it is looked at.

  Returns:
    The accuracy of the first less that of the second at its end, in points;
    None where there is no pair.
  """
  values, last = [], []
  for one, two in pairs:
    first = accuracy_at(one, int(at * one.num_rounds))
    values.append(first - two.final_accuracy)
    both = one.accuracy_by_round.merge(two.accuracy_by_round, on='round_num')
    last.append(both['accuracy_x'] - both['accuracy_y'])
  tests = [math.hypot(_test_error(one), _test_error(two)) for one, two in pairs]
  return estimate(values, last, tests)


def accuracy_at(run: results.Run, round_num: int) -> float:
  """The accuracy of the last evaluation up to a round, in percent."""
  evaluated = run.accuracy_by_round
  earlier = evaluated[evaluated['round_num'] <= round_num]
  return float(earlier['accuracy'].iloc[-1]) if len(earlier) else math.nan


def estimate(
  values: Sequence[float],
  courses: Sequence[Sequence[float]],
  test_errors: Sequence[float],
) -> Estimate | None:
  """The mean of values with its errors.

  Args:
    values: One a seed.
    courses: The same figure at the evaluations of each run. Of a single one,
      the spread at the last three stands in for that of seeds; where the figure
      still rises or falls, that is in it.
    test_errors: The error of each by the choice of the test images.

  Returns:
    The estimate; None without a value.
  """
  if not values:
    return None
  count = len(values)
  test_error = float(np.mean(test_errors))
  if count > 1:
    error = float(np.std(values, ddof=1)) / math.sqrt(count)
    return Estimate(float(np.mean(values)), error, count, count - 1, test_error)
  last = np.asarray(courses[0], float)[-_LAST_EVALUATIONS:]
  if len(last) < 2:
    return Estimate(values[0], 0.0, 1, math.inf, test_error)
  error = float(np.std(last, ddof=1))
  return Estimate(values[0], error, 1, len(last) - 1, test_error)


def scale_of(run: results.Run) -> tuple:
  """P, Q, batch and T of a run: what its clients and rounds are like."""
  return tuple(run.experiment.get(key) for key in _SCALE)


def at_all_scales(rows: Sequence[Row]) -> list[Row]:
  """The rows, each followed by itself at other scales."""
  return [scaled for row in rows for scaled in row.all_scales]


def at_each_common_scale(one: Row, two: Row) -> list[tuple[Row, Row]]:
  """Two rows at each scale at which there are runs of both.

  Args:
    one: A row, of whatever scale.
    two: Another.

  Returns:
    Pairs of rows of one scale, in the order of the first.
  """
  return [
    (first, second)
    for first in one.all_scales
    for second in two.all_scales
    if first.scale == second.scale is not None
  ]


def paper_rows(groups: Sequence[Sequence[results.Run]]) -> list[Row]:
  """The paper's rows, each with the groups that repeat it.

  A row takes runs of its own number of examples a client, so Tables 2 and 3 do
  not mix, and of the scale that has the most of its algorithms, then of the
  largest, by the examples that a run sees, or by its rounds in Table 2, which
  is about clipping alone. The others are beside it.

  Args:
    groups: Groups of comparable runs.
  """
  rows = []
  for published in paper.PUBLISHED_ROWS:
    by_scale: dict[tuple, list[tuple[results.Run, ...]]] = {}
    for group in groups:
      if group[0].experiment.get(
        'examples_per_client'
      ) != published.client_size or not paper.repeats(group[0], published):
        continue
      own = tuple(
        run
        for run in group
        if (run.privacy or {}).get('sampling') not in _VARIANT_SAMPLINGS
      )
      if own:
        by_scale.setdefault(scale_of(own[0]), []).append(own)
    # The noise of DP-FedAvg depends on P. A drop by clipping depends on T: part
    # of it is that a run is cut short.
    by_rounds = published.dp_drop is None
    scaled = sorted(
      (Row(published, tuple(found)) for found in by_scale.values()),
      key=lambda row: (
        -len(row.missing()),
        by_rounds and row.scale[-1],
        math.prod(row.scale),
      ),
      reverse=True,
    ) or [Row(published, ())]
    rows.append(dataclasses.replace(scaled[0], others=tuple(scaled[1:])))
  return rows


def _pairs(
  groups: Sequence[Sequence[results.Run]], algorithm: str, baseline: str
) -> list[tuple[results.Run, results.Run]]:
  """The finished runs of an algorithm, each after its one baseline."""
  found = []
  for group in groups:
    for run in group:
      if run.algorithm == algorithm and run.is_complete:
        other, _ = tables.find_baseline(run, group, baseline)
        if other is not None:
          found.append((other, run))
  return found


def _test_error(run: results.Run) -> float:
  """The error of a final accuracy by the test set, as of independent draws."""
  share = run.final_accuracy / 100.0
  count = (run.config.get('task') or {}).get('num_test_examples')
  if not count or not math.isfinite(share):
    return 0.0
  return 100.0 * math.sqrt(share * (1.0 - share) / count)
