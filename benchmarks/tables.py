"""The Markdown that the benchmarks print, made from what they measured.

Apart from the programs, whose flags cannot be imported together.
"""

from collections.abc import Mapping, Sequence

from benchmarks import busy
from benchmarks.alternate import Comparison

# What the time of each side is compared with.
_OF = ('bare', 'ours')


def heading(*columns: str) -> str:
  """Returns the first two lines of a table."""
  return f'{row(*columns)}\n{"|---" * len(columns)}|'


def row(*cells: str) -> str:
  """Returns a line of a table."""
  return f'| {" | ".join(cells)} |'


def time_heading(*more: str) -> str:
  """Returns the first two lines of the table that `time_rows` fills.

  Args:
    *more: The headings of more columns.
  """
  ratios = [f'of {side}' for side in _OF]
  return heading('model', 'side', 's a round', *ratios, *more)


def time_rows(
  model: str,
  sides: Sequence[str],
  found: Comparison,
  *more: Mapping[str, str],
) -> list[str]:
  """Returns a row for each side; a ratio has the middle half of its pairs.

  Args:
    model: The workload.
    sides: The sides in their order.
    found: What was measured of them.
    *more: The cells of more columns, by side; a side may lack them.
  """
  rows = []
  for side in sides:
    if side in found.errors:
      cells = [f'failed: {found.errors[side]}', *('' for _ in _OF)]
    else:
      ratios = [found.ratio(side, of) for of in _OF]
      cells = [f'{found.median(side):.3f}', *(str(r or '') for r in ratios)]
    rows.append(
      row(model, side, *cells, *(each.get(side, '') for each in more))
    )
  return rows


def context_row(kind: str, num_examples: int, found: Comparison) -> str:
  """Returns the row of a process of TFF's in both contexts.

  Args:
    kind: The process.
    num_examples: Of a client.
    found: What was measured of the sides 'native' and 'ours'.
  """
  seconds = [
    f'{found.median(side):.3f}'
    if side in found.seconds
    else f'failed: {found.errors[side]}'
    for side in ('native', 'ours')
  ]
  ratio = str(found.ratio('ours', 'native') or '')
  return row(kind, str(num_examples), *seconds, ratio)


def busy_line(model: str, found: Comparison) -> str:
  """Returns a sentence on how busy others kept the machine."""
  return f'{model}: {busy.sentence(found.most_of_others)}.'


def memory_row(mode: str, peaks: Mapping[str, int | str]) -> str:
  """Returns the row of a mode in a table of memory.

  Args:
    mode: The mode.
    peaks: Bytes by mode, `one_client` among them, or why there are none.
  """
  peak, one_client = peaks[mode], peaks['one_client']
  if isinstance(peak, str):
    return row(mode, peak, '')
  beyond = ''
  if mode != 'one_client' and not isinstance(one_client, str):
    beyond = f'{(peak - one_client) / 1e9:.2f} GB'
  return row(mode, f'{peak / 1e9:.2f} GB', beyond)
