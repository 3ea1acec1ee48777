"""A report as a list of blocks, written as Markdown and as one HTML file."""

import base64
import dataclasses
import html
import pathlib
import re
from collections.abc import Sequence

import pandas as pd


@dataclasses.dataclass(frozen=True)
class Heading:
  """A heading of level 1, 2 or 3."""

  text: str
  level: int = 2


@dataclasses.dataclass(frozen=True)
class Paragraph:
  """Plain text; `code` in backticks is the only markup."""

  text: str


@dataclasses.dataclass(frozen=True)
class BulletList:
  """A list of sentences."""

  items: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Table:
  """A table of strings, with the names of the columns as its head."""

  frame: pd.DataFrame


@dataclasses.dataclass(frozen=True)
class Picture:
  """A PNG beside the report; `caption` says in words what it shows."""

  file_name: str
  caption: str


Block = Heading | Paragraph | BulletList | Table | Picture

# Texts in cells that are longer than this many characters are wrapped.
_LONG_TEXT = 28

_CSS = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1a1a1a; margin: 2rem auto;
  max-width: 72rem; padding: 0 1rem; }
h1 { font-size: 1.7rem; } h2 { font-size: 1.3rem; margin-top: 2.2rem;
  border-bottom: 1px solid #ddd; } h3 { font-size: 1.05rem; }
div.table { overflow-x: auto; }
table { border-collapse: collapse; font-size: 13px; margin: .6rem 0; }
th, td { padding: .3rem .6rem; border-bottom: 1px solid #e3e3e3;
  text-align: right; white-space: nowrap; }
td.text, th.text { text-align: left; }
td.long { white-space: normal; min-width: 15rem; }
thead th { border-bottom: 2px solid #888; vertical-align: bottom;
  white-space: normal; }
figure { margin: 1rem 0; } img { max-width: 100%; height: auto; }
figcaption { color: #444; font-size: 13px; max-width: 60rem; }
code { background: #f3f3f3; padding: 0 .2em; }
"""


def to_markdown(blocks: Sequence[Block]) -> str:
  """The blocks as Markdown; pictures are referred to by their file names."""
  parts = []
  for block in blocks:
    match block:
      case Heading(text, level):
        parts.append(f'{"#" * level} {text}')
      case Paragraph(text):
        parts.append(text)
      case BulletList(items):
        parts.append('\n'.join(f'- {item}' for item in items))
      case Table(frame):
        parts.append(_markdown_table(frame))
      case Picture(file_name, caption):
        alt = caption.replace('[', '(').replace(']', ')')
        parts.append(f'![{alt}]({file_name})\n\n*{caption}*')
  return '\n\n'.join(parts) + '\n'


def to_html(blocks: Sequence[Block], directory: pathlib.Path) -> str:
  """The blocks as one HTML file that needs no other.

  Args:
    blocks: What to write.
    directory: Where the pictures are; they are written into the file.
  """
  title = next((b.text for b in blocks if isinstance(b, Heading)), 'Report')
  body = '\n'.join(_html_block(block, directory) for block in blocks)
  return (
    '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
    '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
    f'<title>{html.escape(title)}</title>\n<style>{_CSS}</style>\n</head>\n'
    f'<body>\n{body}\n</body>\n</html>\n'
  )


def to_text(frame: pd.DataFrame) -> str:
  """A table for the terminal: columns side by side, numbers to the right."""
  cells = [[str(name) for name in frame.columns]] + [
    [str(value) for value in row] for row in frame.itertuples(index=False)
  ]
  widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
  numeric = [_is_numeric(frame[name]) for name in frame.columns]
  lines = [
    '  '.join(
      cell.rjust(width) if right else cell.ljust(width)
      for cell, width, right in zip(row, widths, numeric, strict=True)
    ).rstrip()
    for row in cells
  ]
  lines.insert(1, '  '.join('-' * width for width in widths))
  return '\n'.join(lines)


def _markdown_table(frame: pd.DataFrame) -> str:
  rows = [[str(name) for name in frame.columns]] + [
    [str(value) for value in row] for row in frame.itertuples(index=False)
  ]
  rules = [
    '---:' if _is_numeric(frame[name]) else '---' for name in frame.columns
  ]
  rows.insert(1, rules)
  return '\n'.join(
    '| ' + ' | '.join(cell.replace('|', '\\|') for cell in row) + ' |'
    for row in rows
  )


def _html_block(block: Block, directory: pathlib.Path) -> str:
  match block:
    case Heading(text, level):
      return f'<h{level}>{_html_text(text)}</h{level}>'
    case Paragraph(text):
      return f'<p>{_html_text(text)}</p>'
    case BulletList(items):
      inner = '\n'.join(f'<li>{_html_text(item)}</li>' for item in items)
      return f'<ul>\n{inner}\n</ul>'
    case Table(frame):
      return _html_table(frame)
    case Picture(file_name, caption):
      data = base64.b64encode((directory / file_name).read_bytes()).decode()
      text = html.escape(caption)
      return (
        f'<figure>\n<img alt="{text}" src="data:image/png;base64,{data}">\n'
        f'<figcaption>{_html_text(caption)}</figcaption>\n</figure>'
      )
  raise AssertionError(f'unknown block {block!r}')


def _html_table(frame: pd.DataFrame) -> str:
  numeric = [_is_numeric(frame[name]) for name in frame.columns]

  def line(values: Sequence[object], tag: str) -> str:
    cells = ''.join(
      _html_cell(str(value), tag, is_number)
      for value, is_number in zip(values, numeric, strict=True)
    )
    return f'<tr>{cells}</tr>'

  body = '\n'.join(line(row, 'td') for row in frame.itertuples(index=False))
  return (
    f'<div class="table"><table>\n<thead>{line(frame.columns, "th")}</thead>\n'
    f'<tbody>\n{body}\n</tbody>\n</table></div>'
  )


def _html_cell(text: str, tag: str, is_number: bool) -> str:
  if is_number:
    return f'<{tag}>{_html_text(text)}</{tag}>'
  kind = 'text long' if len(text) > _LONG_TEXT else 'text'
  return f'<{tag} class="{kind}">{_html_text(text)}</{tag}>'


def _html_text(text: str) -> str:
  return re.sub(r'`([^`]+)`', r'<code>\1</code>', html.escape(text))


def _is_numeric(column: pd.Series) -> bool:
  """Whether the cells are numbers, or stand for one that is missing."""
  return all(
    re.match(r'^[-−+]?\d|^–$|^∞$|^not run$', str(value)) is not None
    for value in column
  )
