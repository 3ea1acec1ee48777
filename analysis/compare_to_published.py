"""Prints runs of one's own beside the published ones of the same setting.

Command: `python -m analysis.compare_to_published RUN...`. The exit code is 1
where a figure is outside of what the spread of the published seeds allows, or
nothing is published of a run's setting.
"""

import dataclasses
import math
import sys
from collections.abc import Sequence

import numpy as np
import pandas as pd
from absl import app, flags
from scipy import stats

from analysis import document, paper, reproduction, results, tables

_PUBLISHED = flags.DEFINE_string(
  'published', 'results', 'The folder of the published runs.'
)

# What one published seed cannot say; in points.
_WITHOUT_SPREAD = 1.0


@dataclasses.dataclass(frozen=True)
class Comparison:
  """One run beside what is published.

  Attributes:
    run: The run.
    published: The final accuracies, in percent, of the published runs of its
      setting and algorithm, one for each seed.
  """

  run: results.Run
  published: tuple[float, ...]

  @property
  def limit(self) -> float:
    """How far a new seed may be from the published mean, in points.

    The 95 % prediction interval of a normal distribution; from one published
    seed there is none, and it is one point.
    """
    count = len(self.published)
    if count < 2:
      return _WITHOUT_SPREAD
    spread = float(np.std(self.published, ddof=1))
    factor = float(stats.t.ppf(0.975, count - 1))
    return factor * spread * math.sqrt(1.0 + 1.0 / count)

  @property
  def is_within(self) -> bool:
    """Whether the run is finished and within the limit."""
    if not self.published or not self.run.is_complete:
      return False
    mean = sum(self.published) / len(self.published)
    # A figure is printed with two decimals.
    return abs(self.run.final_accuracy - mean) <= self.limit + 0.005


def compare(
  runs: Sequence[results.Run], published: Sequence[results.Run]
) -> list[Comparison]:
  """Returns each run beside the published runs of its setting.

  Args:
    runs: The runs to compare.
    published: The published runs; those that are not finished do not count.
  """
  return [
    Comparison(
      run,
      tuple(
        other.final_accuracy
        for other in published
        if other.is_complete and _key(other) == _key(run)
      ),
    )
    for run in runs
  ]


def comparison_table(comparisons: Sequence[Comparison]) -> pd.DataFrame:
  """The comparisons, formatted."""
  return pd.DataFrame(
    [
      {
        'run': c.run.name,
        'algorithm': paper.algorithm_name(c.run),
        'this run (%)': tables.format_number(c.run.final_accuracy, '.2f'),
        'published (%)': tables.mean_and_spread(c.published),
        'may differ by': f'{c.limit:.2f}' if c.published else tables.MISSING,
        'within': 'yes' if c.is_within else 'NO',
      }
      for c in comparisons
    ]
  )


def main(argv: Sequence[str]) -> None:
  if len(argv) < 2:
    raise app.UsageError('Give at least one run folder.')
  try:
    runs, left_out = results.read_runs(argv[1:])
    published = reproduction.read_results(_PUBLISHED.value)
  except (ValueError, OSError) as error:
    print(f'error: {error}', file=sys.stderr)
    sys.exit(2)
  comparisons = compare(runs, published)
  if comparisons:
    print(document.to_text(comparison_table(comparisons)))
  for name, reason in left_out:
    print(f'left out: {name}: {reason}')
  if left_out or not all(c.is_within for c in comparisons):
    sys.exit(1)


def _key(run: results.Run) -> tuple:
  """What two runs share that differ in the seed alone.

  The threshold is no part of it: it is taken from the FedAvg run of its seed.
  """
  return (
    run.algorithm,
    (run.privacy or {}).get('sampling'),
    run.experiment.get('target_epsilon'),
    run.experiment.get('target_delta'),
    run.threshold if run.clips_models else None,
    *results.setting_without_seed(run),
  )


if __name__ == '__main__':
  app.run(main)
