"""A Markdown page as one HTML file, for a screen of any width and for paper."""

import base64
import html
import pathlib
import re
import struct

import markdown

_CSS = pathlib.Path(__file__).parent / 'page.css'
_IMAGE = re.compile(r'<figure><img (.*?)src="([^":]*\.png)"', re.DOTALL)
# Of a figure of 160 dots an inch, so that 9 points are read well.
_PIXELS_A_DOT = 0.6875
# Wider ones than this have panels side by side, and are moved on a phone.
_WIDE = 600
# A picture and the caption below it.
_FIGURE = re.compile(r'<p>(<img [^>]*/>)</p>\n<p><em>(.*?)</em></p>', re.DOTALL)
_FIGURES = re.compile(r'(?:<figure>.*?</figure>\s*)+', re.DOTALL)
# It would be cut behind its dashes.
_FLAG = re.compile(r'<code>(--\w+)</code>')
_TABLE = re.compile(r'<table>.*?</table>', re.DOTALL)


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
  body = _FIGURES.sub(_in_columns, body)
  # No line ends between these and their number.
  for signs in ('± ', ' %', ' = '):
    body = body.replace(signs, signs.replace(' ', '&nbsp;'))
  body = _FLAG.sub(r'<code class=flag>\1</code>', body)
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


def _in_columns(match: re.Match) -> str:
  """Figures that follow each other, in up to three columns."""
  columns = min(match[0].count('<figure>'), 3)
  return f'<div class="figures columns-{columns}">{match[0].strip()}</div>\n'
