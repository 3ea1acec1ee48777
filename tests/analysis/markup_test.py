"""Tables as text, the HTML of a page, and printing that fails nowhere."""

import html
import os
import pathlib
import re
import subprocess
import sys

import pandas as pd
import pytest
from PIL import Image

from analysis import markup


def test_markdown_table_escapes_its_bars_and_aligns_numbers():
  table = pd.DataFrame({'name': ['a|b'], 'value': ['1.5']})
  assert markup.markdown_table(table) == (
    '| name | value |\n| --- | ---: |\n| a\\|b | 1.5 |'
  )


@pytest.mark.parametrize(
  'name',
  [
    *('*a*', '**', 'x**', '_a_', '__init__', 'a_b', '`a`', '``', '~~a~~'),
    *('<b>a', '&lt;', 'a&b', '[a](b.png)', '![a](b.png)', '$a$', 'a|b'),
    *('a\\*b\\', '# a', '> a', '- a', '+ a', '* a', '-1.5', '1.00 *'),
  ],
)
def test_a_plain_text_has_no_markup(tmp_path, name):
  alone, told = markup.plain(name), markup.plain(f'x {name}: y')
  forms = [alone, f'- {alone}', told, f'**{told}**']
  table = pd.DataFrame({name: [f'x {name}'], 'k': ['z']})
  forms.append(markup.markdown_table(table))
  page = markup.to_html('\n\n'.join(['# T', *forms]), tmp_path)
  body = re.sub('<[^>]*>', ' ', page[page.index('</h1>') :])
  assert ' '.join(html.unescape(body).split()) == (
    f'{name} {name} x {name}: y x {name}: y {name} k x {name} z'
  )


def test_a_plain_text_is_one_line_in_a_cell_too():
  assert markup.plain('a\n\nb') == 'a  b'
  table = markup.markdown_table(pd.DataFrame({'x': ['a\nb']}))
  assert table.splitlines()[2:] == ['| a b |']


@pytest.mark.parametrize(
  ('text', 'expected'),
  [
    ('a < b, `c`', '<p>a &lt; b, <code>c</code></p>'),
    # Numbers stay with their signs.
    ('ε = 1 ± 2 %', 'ε&nbsp;=&nbsp;1 ±&nbsp;2&nbsp;%'),
  ],
)
def test_a_paragraph_is_escaped_and_breaks_where_it_may(
  tmp_path, text, expected
):
  found = markup.to_html(f'# T\n\n{text}\n', tmp_path)
  assert '<title>T</title>' in found
  assert expected in found


def test_a_picture_has_an_alt_text_its_size_and_a_caption(tmp_path):
  Image.new('RGB', (800, 500)).save(tmp_path / 'a&b.png')
  drawn = '![One "a".](a&b.png)\n\n*One "a".*\n\n![b](/b.txt)\n\n*b*'
  text = markup.to_html(f'# T\n\n{drawn}\n\nEnd.\n', tmp_path)
  (found,) = re.findall(r'<figure.*?</figure>', text, flags=re.DOTALL)
  assert 'alt="One &quot;a&quot;." width="550" height="344"' in found
  assert 'src="data:image/png;base64,' in found
  assert found.endswith('<figcaption>One "a".</figcaption></figure>')


_SHOW = (
  'import sys; from analysis import markup; '
  'markup.show(chr(949) * 100_000, sys.stdout); '
  'markup.show(chr(949), sys.stderr)'
)


@pytest.mark.parametrize(
  'command',
  [
    '{} | true',
    '{} > /dev/full',
    '{} 2> /dev/full',
    '{} <&- >&- 2>&-',
    'LC_ALL=C PYTHONUTF8=0 PYTHONCOERCECLOCALE=0 {}',
  ],
)
def test_what_is_printed_ends_nothing(command):
  python = f"{sys.executable} -c '{_SHOW}'"
  done = subprocess.run(
    ['bash', '-o', 'pipefail', '-c', command.format(python)],
    cwd=pathlib.Path(__file__).parents[2],
    env=os.environ | {'PYTHONPATH': '.'},
    capture_output=True,
    check=False,
  )
  assert done.returncode == 0, done.stderr
  assert b'Traceback' not in done.stderr
