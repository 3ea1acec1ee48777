"""Tests of the report in a real browser."""

import pytest

from analysis import report, stats
from tests import browser
from tests.analysis import run_folders

_UPDATES = {16: [('a', 2.0, 60.0, 1.0), ('mean', 1.0, 50.0, '')]}
_LONG = run_folders.PRIVACY | {'description': 'A long promise. ' * 20}
_FIVE = {'epsilon': 5.0, 'actual_epsilon': 5.0}
_RUNS = (
  dict(algorithm='fed_avg', updates=_UPDATES),
  dict(algorithm='ce_fed_avg', updates=_UPDATES),
  run_folders.private(1.5, privacy=_LONG),
  run_folders.private(5.0, privacy=_LONG | _FIVE),
)
# Elements that stick out of the window and are not within a frame that moves.
_STICKING_OUT = """
[...document.querySelectorAll('main *')]
  .filter((each) => !each.parentElement.closest('.table, figure'))
  .filter((each) => each.getBoundingClientRect().right > innerWidth)
  .map((each) => each.outerHTML.slice(0, 80))
"""


@pytest.fixture(scope='module')
def page_path(tmp_path_factory):
  """A report with all that a private comparison over seeds has."""
  root = tmp_path_factory.mktemp('runs')
  folders = [
    run_folders.write_run(
      root / f'flagfile={run["algorithm"]}_seed={seed}_{number}',
      seed=seed,
      accuracies=(0.1, 0.5, 0.9 - 0.01 * seed),
      task='mnist',
      examples_per_client=125,
      **run,
    )
    for seed in (0, 1, 2)
    for number, run in enumerate(_RUNS)
  ]
  made_by = f'Made by python -m analysis.report {"runs/a_long_name " * 9}.'
  path = report.write_report(
    stats.read_folders(folders), root / 'report', made_by=made_by
  )
  return path.with_suffix('.html')


@pytest.fixture(scope='module')
def page(tmp_path_factory):
  with browser.running(tmp_path_factory.mktemp('profile')) as page:
    yield page


@pytest.mark.slow
@pytest.mark.parametrize('width', [390, 1000, 1400])
def test_a_report_fits_windows_of_all_widths(page, page_path, width):
  page.open(page_path, width=width)
  assert page.evaluate('innerWidth') == width
  assert page.evaluate(_STICKING_OUT) == []
  assert page.evaluate('document.documentElement.scrollWidth') <= width
  # The table of results is read without moving it.
  table = "document.querySelector('.table')"
  assert page.evaluate(f'{table}.scrollWidth - {table}.clientWidth') <= 0
  assert page.errors == []


@pytest.mark.slow
@pytest.mark.parametrize(('width', 'shown'), [(390, 358), (1000, 462)])
def test_pictures_have_alt_texts_and_their_size_where_it_fits(
  page, page_path, width, shown
):
  page.open(page_path, width=width)
  found = page.evaluate(
    '[...document.images].map('
    '(each) => [each.naturalWidth > 0, each.alt, each.clientWidth, '
    'each.parentElement.clientWidth])'
  )
  # The metric by round, by ε, and the updates.
  assert len(found) == 3
  assert all(is_there and alt for is_there, alt, *_ in found)
  assert all(own == frame for *_, own, frame in found)
  assert max(own for *_, own, _ in found) == shown


@pytest.mark.slow
def test_what_does_not_fit_is_found(page, tmp_path):
  path = tmp_path / 'wide.html'
  path.write_text(
    '<meta name="viewport" content="width=device-width"><main>'
    '<p style="width: 2000px">x</p></main><script>missing()</script>'
  )
  page.open(path, width=1000)
  assert len(page.evaluate(_STICKING_OUT)) == 1
  assert page.errors
  page.errors.clear()
