"""A short document, as Markdown or as HTML."""

import dataclasses
import html
from collections.abc import Sequence

_STYLE = (
  'body{font:16px/1.5 sans-serif;max-width:44rem;margin:2rem auto;'
  'padding:0 1rem;overflow-wrap:anywhere}'
  'table{border-collapse:collapse}'
  'td{border:1px solid #999;padding:.2rem .5rem;vertical-align:top}'
)


@dataclasses.dataclass(frozen=True)
class Section:
  """A part of a document.

  Attributes:
    title: Its heading.
    paragraphs: Plain text.
    points: Points of a list, after the paragraphs.
    table: Rows of two cells, after the list.
  """

  title: str
  paragraphs: Sequence[str] = ()
  points: Sequence[str] = ()
  table: Sequence[tuple[str, str]] = ()


def format_markdown(title: str, sections: Sequence[Section]) -> str:
  """Returns a document in Markdown.

  Args:
    title: Its title.
    sections: Its parts.
  """
  blocks = [f'# {_escape_markdown(title)}']
  for section in sections:
    blocks.append(f'## {_escape_markdown(section.title)}')
    blocks += map(_escape_markdown, section.paragraphs)
    if section.points:
      points = map(_escape_markdown, section.points)
      blocks.append('\n'.join(f'* {point}' for point in points))
    if section.table:
      rows = [
        ' | '.join(('', *map(_escape_markdown, row), '')).strip()
        for row in section.table
      ]
      blocks.append('\n'.join(['| | |', '|---|---|', *rows]))
  return '\n\n'.join(blocks) + '\n'


def format_html(title: str, sections: Sequence[Section]) -> str:
  """Returns a document as a page of HTML; see `format_markdown`."""
  escaped = html.escape(title)
  lines = [
    '<!DOCTYPE html>',
    '<html lang="en">',
    f'<head><meta charset="utf-8"><title>{escaped}</title>',
    '<meta name="viewport" content="width=device-width">',
    f'<style>{_STYLE}</style></head>',
    f'<body>\n<h1>{escaped}</h1>',
  ]
  for section in sections:
    lines.append(f'<h2>{html.escape(section.title)}</h2>')
    lines += [f'<p>{html.escape(each)}</p>' for each in section.paragraphs]
    if section.points:
      points = [f'<li>{html.escape(each)}</li>' for each in section.points]
      lines += ['<ul>', *points, '</ul>']
    if section.table:
      rows = [
        '<tr>'
        + ''.join(f'<td>{html.escape(cell)}</td>' for cell in row)
        + '</tr>'
        for row in section.table
      ]
      lines += ['<table>', *rows, '</table>']
  return '\n'.join([*lines, '</body>', '</html>']) + '\n'


def _escape_markdown(text: str) -> str:
  """Returns text that Markdown shows as it is, on one line."""
  text = ' '.join(text.split())
  for mark in '\\`*_[]<>|#':
    text = text.replace(mark, f'\\{mark}')
  return text
