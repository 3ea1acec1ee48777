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


def test_names_are_replaced_by_values_and_tables(template):
  template('# {{ title }}\n\n{{ table }}\n')
  found = pages.fill_template('page.md', {'title': 'T', 'table': TABLE})
  assert found == f'# T\n\n{pages.markdown_table(TABLE)}\n'


def test_tables_in_lists_are_there_and_empty_ones_are_left_out(template):
  template(
    '{% for each in all %}\n{{ each.x }}\n\n{% if each.t %}\n{{ each.t }}\n\n'
    '{% endif %}\n{% endfor %}\n'
  )
  values = [{'x': 1, 't': TABLE}, {'x': 2, 't': TABLE.head(0)}]
  assert pages.fill_template('page.md', {'all': values}) == (
    f'1\n\n{pages.markdown_table(TABLE)}\n\n2\n'
  )


def test_an_item_without_a_value_is_refused(template):
  template('{% for each in all %}{{ each.x }}{% endfor %}')
  with pytest.raises(ValueError, match='page.md'):
    pages.fill_template('page.md', {'all': [{'y': 1}]})


@pytest.mark.parametrize('values', [{}, {'a': 1, 'b': 2}])
def test_a_name_without_value_and_a_value_without_name_are_refused(
  template, values
):
  template('{{ a }}\n')
  with pytest.raises(ValueError, match='`values` must have'):
    pages.fill_template('page.md', values)
