"""Tests of the API reference that `make docs` writes."""

import inspect
import pathlib
import subprocess
import sys

import pytest

pytest.importorskip('pdoc')

_ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture(scope='module')
def reference(tmp_path_factory):
  folder = tmp_path_factory.mktemp('reference')
  result = subprocess.run(
    [sys.executable, '-m', 'scripts.write_reference', str(folder)],
    cwd=_ROOT,
    capture_output=True,
    text=True,
  )
  assert (result.returncode, result.stderr) == (0, '')
  return folder / 'tff_clipping'


@pytest.mark.slow
def test_every_public_name_has_its_place(reference):
  from tff_clipping import aggregators, learning, privacy, programs, runtime

  for module in (aggregators, learning, privacy, programs, runtime):
    page = reference / f'{module.__name__.split(".")[1]}.html'
    text = page.read_text()
    for name in module.__all__:
      if inspect.ismodule(getattr(module, name)):
        # It has a page of its own.
        assert (page.with_suffix('') / f'{name}.html').exists()
      else:
        assert f'id="{name}"' in text


@pytest.mark.slow
def test_nothing_internal_has_a_page(reference):
  pages = {path.stem for path in reference.rglob('*.html')}
  assert 'programs' in pages
  assert not pages & {'argument_checks', 'tff_extra', 'l2_clip'}
