"""Pages: Jinja templates in Markdown, filled with tables and numbers."""

import base64
import html
import pathlib
import re
from collections.abc import Iterable, Mapping
from typing import Any

import jinja2
import jinja2.meta
import markdown
import pandas as pd

_TEMPLATES = pathlib.Path(__file__).parent / 'templates'
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
    values: By name a text, a number, a table or a list of such mappings. A
      table is there as Markdown, and as an empty text if it has no lines.

  Raises:
    ValueError: The template has a name without a value, or none for a value.
  """
  environment = jinja2.Environment(
    loader=jinja2.FileSystemLoader(_TEMPLATES),
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
  )
  source = (_TEMPLATES / name).read_text(encoding='utf-8')
  names = jinja2.meta.find_undeclared_variables(environment.parse(source))
  if differing := names ^ {*values}:
    raise ValueError(
      f'`values` must have the names of {name}, and no others, found that only '
      f'one of them has {", ".join(sorted(differing))}.'
    )
  try:
    text = environment.get_template(name).render(_as_text(values))
  except jinja2.UndefinedError as error:
    raise ValueError(
      f'`values` must have the names of {name}, found: {error}.'
    ) from error
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


def _as_text(value: Any) -> Any:
  """Values with Markdown in place of the tables among them."""
  if isinstance(value, pd.DataFrame):
    return markdown_table(value) if len(value) else ''
  if isinstance(value, Mapping):
    return {key: _as_text(each) for key, each in value.items()}
  return [*map(_as_text, value)] if isinstance(value, list) else value


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
