"""Writes docs/reproduction.md from the runs in results/.

Command: `python -m analysis.reproduction`, from the root of the checkout. With
`--results=DIR --page=DIR/reproduction.md` it makes the same page of runs of
your own; `python -m tasks.reproduce` makes the runs.
"""

import os
import pathlib
import sys
from collections.abc import Sequence

from absl import app, flags

from analysis import (
  departures,
  document,
  norm_findings,
  paper_findings,
  reproduction_extras,
  reproduction_figures,
  reproduction_missing,
  reproduction_sections,
  results,
  rows,
)

_RESULTS = flags.DEFINE_string('results', 'results', 'The folder of the runs.')
_PAGE = flags.DEFINE_string(
  'page',
  'docs/reproduction.md',
  'The page; its figures go to a folder beside it, named after it.',
)


def read_results(results_dir: str | os.PathLike[str]) -> list[results.Run]:
  """Reads all runs of a folder of run folders, by name.

  Args:
    results_dir: The folder.

  Raises:
    ValueError: There is none, or one that cannot be read.
  """
  folders = sorted(
    path.parent for path in pathlib.Path(results_dir).glob('*/config.json')
  )
  runs, left_out = results.read_runs(folders)
  if left_out or not runs:
    reasons = '; '.join(f'{name}: {reason}' for name, reason in left_out)
    raise ValueError(
      '`results_dir` must hold run folders that can be read, found '
      f'{reasons or f"none in {results_dir}"}.'
    )
  return runs


def reproduction_markdown(
  runs: Sequence[results.Run],
  results_dir: str | os.PathLike[str],
  figures: Sequence[document.Block] = (),
) -> str:
  """Returns the page, which the runs alone decide.

  Args:
    runs: The runs, from `read_results`.
    results_dir: Where `search/` is, with the tables of the learning rates.
    figures: What `reproduction_figures.write_figures` returns.
  """
  groups = results.group_by_setting(runs)
  paper_rows = rows.paper_rows(groups)
  findings = paper_findings.of_drops(paper_rows)
  concentration_verdicts = norm_findings.concentration_verdicts(paper_rows)
  blocks: list[document.Block] = []
  blocks += reproduction_sections.introduction(runs, paper_rows)
  blocks += reproduction_sections.summary_section(
    paper_rows, findings, concentration_verdicts
  )
  blocks += reproduction_sections.tables_section(paper_rows)
  blocks += reproduction_sections.findings_section(
    paper_rows, findings, concentration_verdicts
  )
  blocks += departures.departures_section(paper_rows)
  blocks += reproduction_sections.privacy_section(paper_rows, groups)
  blocks += reproduction_extras.model_clipping_section(groups)
  blocks += reproduction_extras.mobilenet_section(groups)
  blocks += reproduction_extras.writers_section(groups)
  blocks += reproduction_extras.sample_section(groups)
  blocks += reproduction_extras.search_section(
    pathlib.Path(results_dir) / 'search', runs
  )
  blocks += reproduction_missing.missing_section(paper_rows, runs)
  blocks += figures
  return document.to_markdown(blocks)


def main(argv: Sequence[str]) -> None:
  if len(argv) > 1:
    raise app.UsageError(f'Only flags are taken, found {argv[1]!r}.')
  page = pathlib.Path(_PAGE.value)
  try:
    runs = read_results(_RESULTS.value)
    blocks = reproduction_figures.write_figures(
      results.group_by_setting(runs), page.with_suffix('')
    )
    page.write_text(
      reproduction_markdown(runs, _RESULTS.value, blocks), encoding='utf-8'
    )
  except (ValueError, OSError) as error:
    print(f'error: {error}', file=sys.stderr)
    sys.exit(2)
  print(f'{page}: {len(runs)} runs')


if __name__ == '__main__':
  app.run(main)
