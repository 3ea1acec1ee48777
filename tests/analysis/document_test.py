import pandas as pd

from analysis import document

TABLE = document.Table(pd.DataFrame({'name': ['a|b'], 'value': ['1.5']}))


def test_markdown_table_escapes_its_bars_and_aligns_numbers():
  assert document.to_markdown([TABLE]) == (
    '| name | value |\n| --- | ---: |\n| a\\|b | 1.5 |\n'
  )


def test_html_escapes_text_and_marks_code(tmp_path):
  text = document.to_html([document.Paragraph('a < b, `c`')], tmp_path)
  assert '<p>a &lt; b, <code>c</code></p>' in text


def test_text_table_lines_its_columns_up():
  table = pd.DataFrame({'name': ['a', 'long'], 'value': ['1.5', '–']})
  assert document.to_text(table) == (
    'name  value\n----  -----\na       1.5\nlong      –'
  )
