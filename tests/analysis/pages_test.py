"""Tests of Markdown pages that are filled from templates."""

import pandas as pd
import pytest

from analysis import pages

TABLE = pd.DataFrame({'name': ['a|b'], 'value': ['1.5']})


@pytest.fixture
def template(tmp_path, monkeypatch):
  monkeypatch.setattr(pages, '_TEMPLATES', tmp_path)
  return (tmp_path / 'page.md').write_text


def test_markdown_table_escapes_its_bars_and_aligns_numbers():
  assert pages.markdown_table(TABLE) == (
    '| name | value |\n| --- | ---: |\n| a\\|b | 1.5 |'
  )


def test_text_table_lines_its_columns_up():
  table = pd.DataFrame({'name': ['a', 'long'], 'value': ['1.5', '–']})
  assert pages.text_table(table) == (
    'name  value\n----  -----\na       1.5\nlong      –'
  )


def test_html_escapes_text_and_marks_code(tmp_path):
  text = pages.to_html('# T\n\na < b, `c`\n', tmp_path)
  assert '<p>a &lt; b, <code>c</code></p>' in text


def test_markers_are_replaced_by_values_and_tables(template):
  template('# {{title}}\n\n{{table}}\n')
  found = pages.fill_template('page.md', {'title': 'T', 'table': TABLE})
  assert found == f'# T\n\n{pages.markdown_table(TABLE)}\n'


def test_sections_are_repeated_or_left_out(template):
  template(
    '{{#all}}\n- {{x}}{{#y}}, {{y}}{{/y}}\n{{/all}}\n{{^all}}\nnone\n{{/all}}\n'
  )
  values = [{'x': 1, 'y': ''}, {'x': 2, 'y': 'b'}]
  assert pages.fill_template('page.md', {'all': values}) == '- 1\n- 2, b\n'
  assert pages.fill_template('page.md', {'all': []}) == 'none\n'


@pytest.mark.parametrize('values', [{}, {'a': 1, 'b': 2}])
def test_marker_without_value_and_value_without_marker_are_refused(
  template, values
):
  template('{{a}}\n')
  with pytest.raises(ValueError, match='`values` must have'):
    pages.fill_template('page.md', values)
