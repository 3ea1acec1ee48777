"""Tests of Markdown pages that are filled from templates."""

import pandas as pd
import pytest

from analysis.runs import markdown

TABLE = pd.DataFrame({'name': ['a|b'], 'value': ['1.5']})


def test_markdown_table_escapes_its_bars_and_aligns_numbers():
  assert markdown.markdown_table(TABLE) == (
    '| name | value |\n| --- | ---: |\n| a\\|b | 1.5 |'
  )


def test_text_table_lines_its_columns_up():
  table = pd.DataFrame({'name': ['a', 'long'], 'value': ['1.5', '–']})
  assert markdown.text_table(table) == (
    'name  value\n----  -----\na       1.5\nlong      –'
  )


def test_marks_are_filled_again_and_keep_their_prose():
  page = 'A <!--=x-->1<!--/--> b.\n\n<!--=t-->\n\nold\n\n<!--/-->\n'
  values = {'x': '2.00', 't': TABLE}
  table = markdown.markdown_table(TABLE)
  filled = markdown.fill(page, values.__getitem__)
  assert filled == (
    f'A <!--=x-->2.00<!--/--> b.\n\n<!--=t-->\n\n{table}\n\n<!--/-->\n'
  )
  assert markdown.fill(filled, values.__getitem__) == filled
  # A block without a table stays one.
  emptied = markdown.fill(filled, {'x': '2.00', 't': TABLE[:0]}.__getitem__)
  assert markdown.fill(emptied, values.__getitem__) == filled


def test_a_mark_without_an_end_is_refused():
  with pytest.raises(ValueError, match='must have its end'):
    markdown.fill('<!--=x-->1', str)


def test_a_mark_is_named_where_it_stands_for_nothing():
  def find(name):
    raise ValueError(f'there is no {name}')

  with pytest.raises(ValueError, match='--=tables.x.*there is no tables.x'):
    markdown.fill('<!--=tables.x-->1<!--/-->', find)


def test_sections_whose_marks_are_empty_are_left_out():
  template = (
    '# T\n\nText.\n\n## A\n\nOf a.\n\n<!--=a--><!--/-->\n\n'
    '### B\n\nOf b.\n\n<!--=b-->\n<!--/-->\n\n## C\n\nOf c.\n'
  )
  # What stands for a mark may have headings of its own.
  values = {'a': '### a\n\nx\n\n### c', 'b': ''}
  assert markdown.render(template, values.__getitem__) == (
    '# T\n\nText.\n\n## A\n\nOf a.\n\n### a\n\nx\n\n### c\n\n## C\n\nOf c.\n'
  )
