"""Runs the Python of the pages in docs/, pasted block after block."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

pytest.importorskip('tensorflow_federated')

_ROOT = pathlib.Path(__file__).parent.parent
_BLOCK = re.compile(r'```(\w*)\n(.*?)```\n', re.DOTALL)
# Its blocks are files: tests/tasks/your_own_page_test.py.
_OF_FILES = ('your_own.md',)
# What a page reads: the least of a run, which its command would train.
_FILES = {
  'training.md': (
    'runs/fed_avg/metrics.csv',
    'round_num,test_accuracy\n0,0.1\n',
  )
}


def _blocks(page):
  """Returns the blocks of a page that are Python, and what they print."""
  text = (_ROOT / 'docs' / page).read_text()
  code, printed = [], []
  end_of_code = None
  for block in _BLOCK.finditer(text):
    if block[1] == 'python':
      code.append(block[2])
      end_of_code = block.end()
    elif (
      end_of_code is not None and not text[end_of_code : block.start()].strip()
    ):
      printed.extend(block[2].splitlines())
  return code, printed


def _pages():
  pages = sorted(path.name for path in (_ROOT / 'docs').glob('*.md'))
  return [
    pytest.param(page, marks=pytest.mark.slow)
    for page in pages
    if _blocks(page)[0] and page not in _OF_FILES
  ]


@pytest.mark.parametrize('page', _pages())
def test_the_blocks_of_a_page_run_and_print_what_is_shown(page, tmp_path):
  code, expected = _blocks(page)
  if page in _FILES:
    name, contents = _FILES[page]
    (tmp_path / name).parent.mkdir(parents=True)
    (tmp_path / name).write_text(contents)
  result = subprocess.run(
    [sys.executable, '-c', '\n'.join(code)],
    env={**os.environ, 'PYTHONPATH': str(_ROOT)},
    cwd=tmp_path,
    # Not a pipe: what a page starts may keep it open.
    stdout=open(tmp_path / 'printed', 'w'),
    stderr=open(tmp_path / 'errors', 'w'),
  )
  assert result.returncode == 0, (tmp_path / 'errors').read_text()
  printed = (tmp_path / 'printed').read_text().splitlines()
  assert [line for line in printed if line in expected] == expected
