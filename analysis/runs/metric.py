"""The figure on the test set that decides, as a run measures it."""

import dataclasses
import math
from collections.abc import Iterable, Mapping
from typing import Any


@dataclasses.dataclass(frozen=True)
class Metric:
  """What a run is judged by.

  Attributes:
    name: That of its column in `metrics.csv`, without `test_`.
    goal: 'max' where more is better, 'min' where less is.
  """

  name: str = 'accuracy'
  goal: str = 'max'

  @property
  def column(self) -> str:
    """Its column in `metrics.csv`."""
    return f'test_{self.name}'

  @property
  def is_share(self) -> bool:
    """Whether it is a share of the examples, and shown in percent."""
    return 'accuracy' in self.name

  @property
  def scale(self) -> float:
    """What the column is multiplied with to be shown."""
    return 100.0 if self.is_share else 1.0

  @property
  def title(self) -> str:
    """What it is called in a sentence."""
    return f'test {self.name.replace("_", " ")}'

  @property
  def heading(self) -> str:
    """What it is called above a column or beside an axis, with its unit."""
    title = self.title.capitalize()
    return f'{title} (%)' if self.is_share else title

  def best(self, values: Iterable[float]) -> float:
    """The best of some values; NaN where there is none."""
    finite = [value for value in values if not math.isnan(value)]
    if not finite:
      return math.nan
    return max(finite) if self.goal == 'max' else min(finite)

  def lost(self, baseline: float, value: float) -> float:
    """By how much a value is worse than a baseline; below 0 if it is better."""
    # NumPy would warn of the difference of two infinite ones.
    difference = float(baseline) - float(value)
    return difference if self.goal == 'max' else -difference

  def decimals(self, values: Iterable[float]) -> int:
    """How many decimals some values are shown with, all the same.

    Returns:
      Two for a share in percent; else what gives the largest four digits.
    """
    sizes = [abs(value) for value in values if math.isfinite(value) and value]
    if self.is_share or not sizes:
      return 2
    return max(3 - math.floor(math.log10(max(sizes))), 0)


ACCURACY = Metric()


def read_metric(config: Mapping[str, Any]) -> Metric:
  """The metric of a run, by its `config.json`; accuracy where it says nothing.

  Raises:
    ValueError: It cannot be used.
  """
  name = config.get('metric', ACCURACY.name)
  goal = config.get('metric_goal', ACCURACY.goal)
  if not isinstance(name, str) or not name:
    raise ValueError(f'`metric` must be a name, found {name!r}')
  if goal not in ('max', 'min'):
    raise ValueError(f"`metric_goal` must be 'max' or 'min', found {goal!r}")
  return Metric(name, goal)
