"""What the benchmarks print, made from what they measured.

Apart from the programs, whose flags cannot be imported together.
"""

import dataclasses
import statistics
from collections.abc import Sequence
from typing import Any


@dataclasses.dataclass(frozen=True)
class Sample:
  """What was seen at one moment.

  Attributes:
    seconds: Since the start of the program.
    round_num: The rounds that are in metrics.csv.
    memory: Bytes of all processes.
  """

  seconds: float
  round_num: int
  memory: int


def time_lines(name: str, result: dict[str, Any]) -> list[str]:
  """Returns what is printed of the time of a workload.

  Args:
    name: The workload.
    result: `workload` in words; `median_seconds` by mode, `bare` among them;
      `arithmetic`, with the `operations` of a round and by type the `peak` of
      the machine, operations a second.
  """
  medians, arithmetic = result['median_seconds'], result['arithmetic']
  operations, peaks = arithmetic['operations'], arithmetic['peak']
  lines = [
    f'\n{name}, {result["workload"]}',
    f'  {operations / 1e9:.0f} billion operations a round; the peak is '
    + ', '.join(f'{p / 1e9:.0f} a second in {t}' for t, p in peaks.items()),
  ]
  for mode, median in medians.items():
    peak = peaks['bfloat16' if mode == 'ours_bfloat16' else 'float32']
    line = (
      f'  {mode:<15} {median:7.3f} s a round, '
      f'{median / medians["bare"]:5.2f} of bare, '
      f'{operations / median / peak:4.0%} of the peak'
    )
    if 'stock' in medians:
      line += f', {median / medians["stock"]:5.2f} of stock'
    lines.append(line)
  return lines


def memory_line(mode: str, peaks: dict[str, int | str]) -> str:
  """Returns what is printed of the memory of a mode.

  Args:
    mode: The mode.
    peaks: Bytes by mode, `one_client` among them, or why there are none.
  """
  peak = peaks[mode]
  if isinstance(peak, str):
    return f'  {mode:<12} {peak}'
  line = f'  {mode:<12} {peak / 1e9:6.2f} GB at the peak'
  one_client = peaks['one_client']
  if mode == 'one_client':
    return f"{line}: one client's training, without a framework"
  if isinstance(one_client, str):
    return line
  return f'{line}, {(peak - one_client) / 1e9:6.2f} GB beyond that'


def peer_line(mode: str, result: dict[str, Any], bare: float | None) -> str:
  """Returns the line of the table on one way to run a round.

  Args:
    mode: Its name.
    result: `median_seconds` and `accuracy`, or `error`.
    bare: The median of the bare limit, in seconds; `None` if it failed.
  """
  if 'error' in result:
    return f'  {mode:<14} failed: {result["error"]}'
  seconds, accuracy = result['median_seconds'], result.get('accuracy')
  line = f'  {mode:<14} {seconds:7.3f} s a round'
  if bare is not None:
    line += f', {seconds / bare:5.2f} of bare'
  return line if accuracy is None else f'{line}, accuracy {accuracy:.1%}'


def parts_of_run(
  samples: Sequence[Sample], round_seconds: Sequence[float], num_parts: int
) -> list[dict[str, float]]:
  """Returns time and memory in equal parts of a run.

  Args:
    samples: What was seen, in order of time.
    round_seconds: The program's own time of each round, from round 1 on.
    num_parts: How many parts; the rounds are divided into them.

  Returns:
    For each part `first` and `last`, the numbers of its rounds;
    `median_seconds` of its rounds; `wall_seconds`, the time from its start to
    its end over its rounds, with all that is between rounds; and `memory`, the
    median of the samples in it, in bytes.
  """
  size = len(round_seconds) // num_parts
  parts = []
  for part in range(num_parts):
    first, last = part * size + 1, (part + 1) * size
    inside = [s for s in samples if first <= s.round_num + 1 <= last]
    ends = [s.seconds for s in samples if s.round_num >= last]
    # The first part starts where the initial model is in the metrics.
    wall = ends[0] - inside[0].seconds
    parts.append(
      dict(
        first=first,
        last=last,
        median_seconds=statistics.median(round_seconds[first - 1 : last]),
        wall_seconds=wall / size,
        memory=statistics.median(s.memory for s in inside),
      )
    )
  return parts


def marginal_cost(seconds: dict[int, float]) -> list[float]:
  """Returns the cost of one more unit between each two neighbours.

  Equal costs are a straight line.

  Args:
    seconds: The time for each value, in increasing order of values.
  """
  points = list(seconds.items())
  return [
    (after - before) / (high - low)
    for (low, before), (high, after) in zip(points, points[1:], strict=False)
  ]
