"""Tables as text, the HTML of a page, and printing that fails nowhere."""

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
