"""Tests of the site that `make docs` builds from docs/."""

import functools
import http.server
import json
import pathlib
import re
import threading

import pytest

from tests import browser, processes

_ROOT = pathlib.Path(__file__).parent.parent
_SITE = _ROOT / 'build' / 'site'
_WIDTHS = (390, 1400)


def _nav():
  """Returns the pages in the sidebar, in their order."""
  text = (_ROOT / 'website' / 'mkdocs.yml').read_text().partition('\nnav:\n')[2]
  return re.findall(r': (\S+\.md)$', text, re.MULTILINE)


def test_every_page_is_in_the_sidebar_once():
  pages = {path.name for path in (_ROOT / 'docs').glob('*.md')}
  notebooks = {
    f'notebooks/{path.stem}.md'
    for path in (_ROOT / 'notebooks').glob('*.ipynb')
  }
  assert sorted(_nav()) == sorted({'index.md', *pages, *notebooks})


class _Quiet(http.server.SimpleHTTPRequestHandler):
  def log_message(self, *args):
    pass


@pytest.fixture(name='address', scope='module')
def _address():
  """Serves the site."""
  if not (_SITE / 'index.html').exists():
    pytest.skip('needs the site, by `make docs`')
  handler = functools.partial(_Quiet, directory=_SITE)
  with http.server.ThreadingHTTPServer(('localhost', 0), handler) as server:
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f'http://localhost:{server.server_port}'
    server.shutdown()


@pytest.fixture(name='page', scope='module')
def _page(tmp_path_factory):
  with browser.running(tmp_path_factory.mktemp('browser')) as page:
    yield page


def _open(page, address, width=1400):
  """Opens a page of the site, until its scripts have run."""
  page.errors.clear()
  page.open(address, width=width)
  page.evaluate('new Promise(done => setTimeout(done, 100))')


@pytest.mark.slow
@pytest.mark.parametrize('width', _WIDTHS)
def test_pages_have_no_errors_and_nothing_overflows(address, page, width):
  wrong = []
  for name in _nav():
    _open(page, f'{address}/{name.removesuffix(".md")}.html', width)
    if page.errors:
      wrong.append((name, page.errors[:]))
    found = page.evaluate('document.documentElement.scrollWidth')
    if found > width:
      wrong.append((name, f'{found} pixels wide'))
  assert wrong == []


@pytest.mark.slow
def test_the_search_finds_a_word(address, page):
  _open(page, f'{address}/index.html')
  page.evaluate(
    "document.querySelector('.md-search__input').focus();"
    "document.querySelector('.md-search__input').value = 'Toeplitz';"
    "document.querySelector('.md-search__input').dispatchEvent("
    "new KeyboardEvent('keyup', {bubbles: true}))"
  )
  results = "document.querySelectorAll('.md-search-result__link').length"
  processes.wait_for(lambda: page.evaluate(results))
  links = page.evaluate(
    "[...document.querySelectorAll('.md-search-result__link')].map(a => a.href)"
  )
  assert any('/correlated_noise.html' in link for link in links)


@pytest.mark.slow
def test_pages_lead_on_and_code_can_be_copied(address, page):
  _open(page, f'{address}/private_run.html')
  for kind in ('prev', 'next'):
    found = f"document.querySelectorAll('.md-footer__link--{kind}').length"
    assert page.evaluate(found) == 1
  buttons = "document.querySelectorAll('[data-md-type=copy], .md-clipboard')"
  processes.wait_for(lambda: page.evaluate(f'{buttons}.length'))


@pytest.mark.slow
def test_the_api_reference_is_part_of_the_site(address, page):
  _open(page, f'{address}/index.html')
  link = page.evaluate(
    "[...document.querySelectorAll('.md-nav__link')]"
    ".filter(a => a.href && a.href.includes('/api/'))[0].href"
  )
  _open(page, link)
  assert 'tff_clipping' in page.evaluate('document.body.innerText')


@pytest.mark.slow
def test_notebooks_show_what_they_print(address, page):
  for path in (_ROOT / 'build' / 'notebooks').glob('*.ipynb'):
    cells = json.loads(path.read_text())['cells']
    outputs = [o for cell in cells for o in cell.get('outputs', ())]
    # Which fonts Matplotlib finds is the machine's, not the notebook's.
    errors = [
      line
      for output in outputs
      if output.get('name') == 'stderr'
      for line in ''.join(output['text']).splitlines()
      if not line.startswith('findfont: ')
    ]
    assert not errors, path
    assert any('image/png' in o.get('data', {}) for o in outputs), path
  _open(page, f'{address}/notebooks/privacy_budget.html')
  assert page.evaluate("document.querySelectorAll('article img').length") >= 1
  assert 'noise multiplier 1.5' in page.evaluate('document.body.innerText')
