"""Markdown with marks: prose by hand, and what is computed between marks.

A mark is `<!--=NAME-->TEXT<!--/-->`; NAME says what TEXT is: a number within a
line, or a table or figures in lines of their own. The page is its own template:
`fill` writes each TEXT anew.
"""

import re
from collections.abc import Callable, Iterable

import pandas as pd

_MARK = re.compile(r'<!--=(.*?)-->(.*?)<!--/-->', re.DOTALL)
_HEADING = re.compile(r'^(?=#+ )', re.MULTILINE)


def fill(text: str, find: Callable[[str], str | pd.DataFrame]) -> str:
  """A page with what its marks stand for.

  Args:
    text: The page.
    find: Returns a text or a table by the name in a mark. It may raise
      ValueError, which then names the mark.

  Raises:
    ValueError: A mark has no end, or stands for nothing that is known.
  """

  def filled(match: re.Match) -> str:
    try:
      value = find(match[1])
    except ValueError as error:
      raise ValueError(f'{match[0][:60]!r}: {error}') from error
    if isinstance(value, pd.DataFrame):
      value = markdown_table(value) if len(value) else ''
    # A block stays one if it is empty.
    if '\n' in value or '\n' in match[2]:
      value = f'\n\n{value}\n\n' if value else '\n\n'
    return f'<!--={match[1]}-->{value}<!--/-->'

  if text.count('<!--=') != text.count('<!--/-->'):
    raise ValueError('each mark `<!--=NAME-->` must have its end `<!--/-->`')
  return _MARK.sub(filled, text)


def render(template: str, find: Callable[[str], str | pd.DataFrame]) -> str:
  """A page of a template, without marks and without sections that are empty.

  A section is left out with its prose if it has marks and all are empty.

  Args:
    template: The template.
    find: As in `fill`.
  """
  kept = []
  for section in _HEADING.split(template):
    filled = fill(section, find)
    found = [match[2].strip() for match in _MARK.finditer(filled)]
    if any(found) or not found:
      kept.append(_MARK.sub(lambda match: match[2], filled))
  # What is left out leaves no gap.
  return re.sub(r'\n{3,}', '\n\n', ''.join(kept)).strip() + '\n'


def markdown_table(table: pd.DataFrame) -> str:
  """A table of texts in Markdown, numbers to the right."""
  lines = _cells(table)
  lines.insert(
    1, ['---:' if _is_numeric(table[name]) else '---' for name in table]
  )
  return '\n'.join(
    '| ' + ' | '.join(cell.replace('|', '\\|') for cell in line) + ' |'
    for line in lines
  )


def text_table(table: pd.DataFrame) -> str:
  """A table for the terminal: columns side by side, numbers to the right."""
  lines = _cells(table)
  widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
  numeric = [_is_numeric(table[name]) for name in table]
  lines.insert(1, ['-' * width for width in widths])
  return '\n'.join(
    '  '.join(
      cell.rjust(width) if right else cell.ljust(width)
      for cell, width, right in zip(line, widths, numeric, strict=True)
    ).rstrip()
    for line in lines
  )


def pictures(drawn: Iterable[tuple[str, str]]) -> str:
  """Pictures with captions that say in words what they show.

  Args:
    drawn: File name and caption of each.
  """
  return '\n\n'.join(
    f'![{caption}]({name})\n\n*{caption}*' for name, caption in drawn
  )


def bullets(items: Iterable[str]) -> str:
  """A list of sentences; empty without one."""
  return '\n'.join(f'- {item}' for item in items)


def _cells(table: pd.DataFrame) -> list[list[str]]:
  """The head and the lines of a table as texts."""
  lines = table.itertuples(index=False, name=None)
  return [list(map(str, line)) for line in (table.columns, *lines)]


def _is_numeric(column: pd.Series) -> bool:
  """Whether the cells are numbers, or stand for one that is missing."""
  return all(
    re.match(r'^[-−+]?\d|^–$|^∞$|^not run$', str(value)) is not None
    for value in column
  )
