"""Tables as Markdown, Markdown as one HTML file, and printing."""

import base64
import contextlib
import html
import os
import pathlib
import re
import struct
import sys
from collections.abc import Iterator
from typing import TextIO

import markdown
import pandas as pd

_CSS = pathlib.Path(__file__).parent / 'page.css'
_IMAGE = re.compile(r'<figure><img (.*?)src="([^":]*\.png)"', re.DOTALL)
# Of a figure of 160 dots an inch, so that 9 points are read well.
_PIXELS_A_DOT = 0.6875
# A figure that is wider is moved on a phone.
_WIDE = 600
# A picture and the caption below it.
_FIGURE = re.compile(r'<p>(<img [^>]*/>)</p>\n<p><em>(.*?)</em></p>', re.DOTALL)
_FIGURES = re.compile(r'(?:<figure>.*?</figure>\s*)+', re.DOTALL)
_TABLE = re.compile(r'<table>.*?</table>', re.DOTALL)


def markdown_table(table: pd.DataFrame) -> str:
  """A table of texts in Markdown, numbers to the right; empty without rows."""
  if table.empty:
    return ''
  rule = ['---:' if _is_numeric(table[name]) else '---' for name in table]
  rows = table.itertuples(index=False, name=None)
  return '\n'.join(
    '| ' + ' | '.join(str(cell).replace('|', '\\|') for cell in line) + ' |'
    for line in (table.columns, rule, *rows)
  )


def _is_numeric(column: pd.Series) -> bool:
  """Whether the cells are numbers, or stand for one that is missing."""
  return all(
    re.match(r'^[-−+]?\d|^–$|^∞$|^not run$', str(value)) is not None
    for value in column
  )


def to_html(text: str, directory: pathlib.Path) -> str:
  """A Markdown page as one HTML file that needs no other.

  Args:
    text: The page, with a title in its first line.
    directory: Where its pictures are; they are written into the file.
  """

  def embedded(match: re.Match) -> str:
    data = (directory / html.unescape(match[2])).read_bytes()
    # Where a PNG has its size.
    width, height = (
      round(_PIXELS_A_DOT * side) for side in struct.unpack('>II', data[16:24])
    )
    return (
      f'<figure{" class=wide" if width > _WIDE else ""}><img {match[1]}'
      f'width="{width}" height="{height}" '
      f'src="data:image/png;base64,{base64.b64encode(data).decode()}"'
    )

  # Texts of a run are no markup.
  body = markdown.markdown(
    text.replace('&', '&amp;').replace('<', '&lt;'), extensions=['tables']
  )
  body = _FIGURE.sub(r'<figure>\1<figcaption>\2</figcaption></figure>', body)
  body = _FIGURES.sub(r'<div class="figures">\g<0></div>\n', body)
  # No line ends between these and their number.
  for signs in ('± ', ' %', ' = '):
    body = body.replace(signs, signs.replace(' ', '&nbsp;'))
  # A table that is wider than a phone is moved within its frame.
  body = _TABLE.sub(r'<div class="table" tabindex="0">\g<0></div>', body)
  title = html.escape(text.splitlines()[0].lstrip('# '))
  style = _CSS.read_text(encoding='utf-8')
  return (
    '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
    '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
    '<meta name="color-scheme" content="light dark">\n'
    f'<title>{title}</title>\n<style>\n{style}</style>\n</head>\n'
    f'<body>\n<main>\n{_IMAGE.sub(embedded, body)}\n</main>\n</body>\n</html>\n'
  )


def show(text: str, stream: TextIO | None) -> None:
  """Prints a text to a stream, and fails nowhere.

  A letter that the locale lacks is escaped. A stream that is closed, or whose
  reader has gone, is left alone.
  """
  if stream is None:
    return
  try:
    stream.reconfigure(errors='backslashreplace')  # type: ignore[union-attr]
    print(text, file=stream, flush=True)
  except OSError:
    # Or Python would flush it again at the end, and fail.
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


@contextlib.contextmanager
def errors_shown() -> Iterator[None]:
  """Prints what is wrong with files that a command reads; the code is 2."""
  try:
    yield
  except (ValueError, OSError) as error:
    show(f'error: {error}', sys.stderr)
    sys.exit(2)
