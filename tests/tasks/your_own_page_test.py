"""Runs docs/your_own.md as it is pasted."""

import pathlib
import re
import sys

import pytest

from tests.tasks import train_command

_ROOT = pathlib.Path(__file__).parents[2]
_EXAMPLES = _ROOT / 'examples' / 'your_own'
# In the order of the page.
_FILES = ('make_data.py', 'mine.py', 'mine.flags', 'train.sh', 'in_python.py')


def _blocks():
  text = (_ROOT / 'docs' / 'your_own.md').read_text()
  return re.findall(r'```\w*\n(.*?)```', text, flags=re.DOTALL)


def _run(folder, *command):
  ended = train_command.run_in(folder, *command)
  assert ended.errors == ''
  return ended.output


def test_the_files_are_those_of_the_page():
  assert {path.name for path in _EXAMPLES.iterdir()} - {'BUILD'} == set(_FILES)
  for name, block in zip(_FILES, _blocks(), strict=False):
    assert (_EXAMPLES / name).read_text() == block, name


@pytest.mark.slow
def test_the_page_runs_from_the_data_to_the_report(tmp_path):
  *files, printed = _blocks()[: len(_FILES) + 1]
  for name, content in zip(_FILES, files, strict=True):
    (tmp_path / name).write_text(content)
  _run(tmp_path, sys.executable, 'make_data.py')
  output = _run(tmp_path, 'sh', '-e', 'train.sh')
  assert output.count(': Finished 40 rounds.') == 5
  assert 'releases          40 of 40 planned' in output
  # Nor of the run with an aggregator of its own.
  assert 'No guarantee as it was run: ' not in output
  assert 'FedAvg by mine.py:create_aggregator' in output
  assert 'DP-FedAvg by mine.py:create_private_aggregator' in output
  assert (tmp_path / 'report' / 'report.html').exists()
  assert _run(tmp_path, sys.executable, 'in_python.py') == printed
