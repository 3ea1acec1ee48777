"""Pages: Markdown templates with markers, filled with tables and numbers.

`{{name}}` is replaced by a text. `{{#name}}…{{/name}}` stays where the value is
not empty, and is repeated for each item of a list, with the item's own values;
`{{^name}}…{{/name}}` stays where it is empty.
"""

import base64
import html
import pathlib
import re
from collections.abc import Iterable, Mapping
from typing import Any

import markdown
import pandas as pd

_TEMPLATES = pathlib.Path(__file__).parent / 'templates'
# A line that holds nothing but the end of a section goes with it.
_SECTION = re.compile(
  r'\{\{([#^])(\w+)\}\}\n?(.*?)(?:(?<=\n)\{\{/\2\}\}\n?|\{\{/\2\}\})',
  re.DOTALL,
)
_MARKER = re.compile(r'\{\{(\w+)\}\}')
_IMAGE = re.compile(r'src="([^":]*\.png)"')

_CSS = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1a1a1a; margin: 2rem auto;
  max-width: 72rem; padding: 0 1rem; }
h1 { font-size: 1.7rem; } h2 { font-size: 1.3rem; margin-top: 2.2rem;
  border-bottom: 1px solid #ddd; } h3 { font-size: 1.05rem; }
table { border-collapse: collapse; font-size: 13px; margin: .6rem 0;
  display: block; overflow-x: auto; }
th, td { padding: .3rem .6rem; border-bottom: 1px solid #e3e3e3; }
thead th { border-bottom: 2px solid #888; vertical-align: bottom; }
img { max-width: 100%; height: auto; }
code { background: #f3f3f3; padding: 0 .2em; }
"""


def fill_template(name: str, values: Mapping[str, Any]) -> str:
  """The page that a template of `analysis/templates` makes of values.

  Args:
    name: The file's name.
    values: By marker a text, a number, a table or a list of such mappings.

  Raises:
    ValueError: The template has a marker without a value, or none for a value.
  """
  template = (_TEMPLATES / name).read_text(encoding='utf-8')
  unused = [
    key for key in values if not re.search(rf'\{{[#^]?{key}\}}', template)
  ]
  if unused:
    raise ValueError(
      f'`values` must have the markers of {name}, found {unused[0]!r}.'
    )
  text = _filled(template, values, name)
  # What is left out leaves no gap.
  return re.sub(r'\n{3,}', '\n\n', text).strip() + '\n'


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


def pictures(drawn: Iterable[tuple[str, str]], folder: str = '') -> str:
  """Pictures with captions that say in words what they show.

  Args:
    drawn: File name and caption of each.
    folder: Where they are, as seen from the page, with a slash at its end.
  """
  return '\n\n'.join(
    f'![{caption}]({folder}{name})\n\n*{caption}*' for name, caption in drawn
  )


def bullets(items: Iterable[str]) -> str:
  """A list of sentences; empty without one."""
  return '\n'.join(f'- {item}' for item in items)


def to_html(text: str, directory: pathlib.Path) -> str:
  """A Markdown page as one HTML file that needs no other.

  Args:
    text: The page, with a title in its first line.
    directory: Where its pictures are; they are written into the file.
  """

  def embedded(match: re.Match) -> str:
    data = (directory / html.unescape(match[1])).read_bytes()
    return f'src="data:image/png;base64,{base64.b64encode(data).decode()}"'

  # Texts of a run are no markup.
  body = markdown.markdown(
    text.replace('&', '&amp;').replace('<', '&lt;'), extensions=['tables']
  )
  title = html.escape(text.splitlines()[0].lstrip('# '))
  return (
    '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
    '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
    f'<title>{title}</title>\n<style>{_CSS}</style>\n</head>\n'
    f'<body>\n{_IMAGE.sub(embedded, body)}\n</body>\n</html>\n'
  )


def _filled(template: str, values: Mapping[str, Any], name: str) -> str:
  def section(match: re.Match) -> str:
    kind, key, inner = match.groups()
    value = _value(values, key, name)
    if kind == '^':
      return '' if _is_there(value) else _filled(inner, values, name)
    if isinstance(value, list):
      return ''.join(_filled(inner, {**values, **v}, name) for v in value)
    return _filled(inner, values, name) if _is_there(value) else ''

  def marker(match: re.Match) -> str:
    value = _value(values, match[1], name)
    if not isinstance(value, pd.DataFrame):
      return str(value)
    return markdown_table(value) if len(value) else ''

  return _MARKER.sub(marker, _SECTION.sub(section, template))


def _value(values: Mapping[str, Any], key: str, name: str) -> Any:
  if key not in values:
    raise ValueError(
      f'`values` must have all markers of {name}, found {key!r}.'
    )
  return values[key]


def _is_there(value: Any) -> bool:
  return len(value) > 0 if isinstance(value, pd.DataFrame) else bool(value)


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
