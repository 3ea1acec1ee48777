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
# A picture, and the caption below it.
_FIGURE = re.compile(
  r'<p><img alt="([^"]*)" src="([^":]*\.png)" /></p>\n<p><em>(.*?)</em></p>',
  re.DOTALL,
)
# Of a figure of 160 dots an inch, so that 9 points are read well.
_PIXELS_A_DOT = 0.6875
_TABLE = re.compile(r'<table>.*?</table>', re.DOTALL)
# Before what can be markup: a star that is not after a space and before one, a
# line that is not within a word, and what begins a list, heading or quotation.
_BEFORE_MARKUP = re.compile(
  r'(?=[\\`\[\]<&$|~])|(?=\*\S)|(?<!\s)(?=\*)'
  r'|(?<![^\W_])(?=_)|(?=_(?![^\W_]))|^(?=[-+]\s|[#>])'
)


def plain(text: str) -> str:
  """A text as one line of Markdown, in which no sign of it is markup."""
  return _BEFORE_MARKUP.sub(r'\\', ' '.join(text.splitlines()).strip())


def markdown_table(table: pd.DataFrame) -> str:
  """A table of texts in Markdown, numbers to the right; empty without rows."""
  if table.empty:
    return ''
  rule = ['---:' if _is_numeric(table[name]) else '---' for name in table]
  rows = table.itertuples(index=False, name=None)
  return '\n'.join(
    '| ' + ' | '.join(plain(str(cell)) for cell in line) + ' |'
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
    alt, name, caption = match.groups()
    data = (directory / html.unescape(name)).read_bytes()
    # Where a PNG has its size.
    width, height = (
      round(_PIXELS_A_DOT * side) for side in struct.unpack('>II', data[16:24])
    )
    return (
      f'<figure><img alt="{alt}" width="{width}" height="{height}" '
      f'src="data:image/png;base64,{base64.b64encode(data).decode()}" />'
      f'<figcaption>{caption}</figcaption></figure>'
    )

  # There is no HTML in a page.
  converter = markdown.Markdown(extensions=['tables'])
  converter.ESCAPED_CHARS += ['&', '$', '~']
  body = converter.convert(text.replace('&', '&amp;').replace('<', '&lt;'))
  # No line ends between these and their number.
  for signs in ('± ', ' %', ' = '):
    body = body.replace(signs, signs.replace(' ', '&nbsp;'))
  # A table that is wider than a phone is moved within its frame.
  body = _TABLE.sub(r'<div class="table" tabindex="0">\g<0></div>', body)
  body = _FIGURE.sub(embedded, body)
  title = html.escape(text.splitlines()[0].lstrip('# '))
  style = _CSS.read_text(encoding='utf-8')
  return (
    '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
    '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
    '<meta name="color-scheme" content="light dark">\n'
    f'<title>{title}</title>\n<style>\n{style}</style>\n</head>\n'
    f'<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n'
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
