"""Runs what README.md shows, and compares what it prints."""

import pathlib
import re
import shlex

import pytest

from tests import processes

_ROOT = pathlib.Path(__file__).parent.parent
_DOCS = sorted((_ROOT / 'docs').glob('*.md'))


def _blocks():
  text = (_ROOT / 'README.md').read_text()
  return re.findall(r'```(\w*)\n(.*?)```', text, flags=re.DOTALL)


def _block_after(start):
  blocks = _blocks()
  index = next(i for i, (_, b) in enumerate(blocks) if b.startswith(start))
  return blocks[index][1], blocks[index + 1][1]


@pytest.mark.slow
def test_the_snippet_prints_what_is_shown_and_nothing_else():
  pytest.importorskip('tensorflow_federated')
  code, expected = _block_after('import numpy')
  assert processes.run_python('-c', code) == (0, expected, '')


@pytest.mark.slow
def test_the_budget_command_answers_what_is_shown():
  command, expected = _block_after('tff-clipping-budget')
  ended = processes.run_python(
    *('-m', 'tff_clipping.privacy.calculator.budget_main'),
    *shlex.split(command)[1:],
  )
  assert ended.code == 0, ended.errors
  found = [line.rstrip() for line in ended.output.splitlines()]
  for line in expected.splitlines():
    assert line.rstrip() in found


def _anchors(page):
  """Returns the anchors of a page's headings."""
  headings = re.findall(r'^#+ (.*)$', page.read_text(), re.MULTILINE)
  return {
    re.sub(r'[^\w\- ]', '', heading.lower()).replace(' ', '-')
    for heading in headings
  }


@pytest.mark.parametrize(
  'page', [_ROOT / 'README.md', *_DOCS], ids=lambda page: page.name
)
def test_every_link_leads_somewhere(page):
  for link in re.findall(r'\]\(([^)\s]+)\)', page.read_text()):
    if not link.startswith('http'):
      path, _, anchor = link.partition('#')
      target = page.parent / path if path else page
      assert target.exists(), link
      if anchor:
        assert anchor in _anchors(target), link
