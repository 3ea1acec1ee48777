"""Writes what is computed in docs/reproduction.md, its details and related.md.

Command: `python -m analysis.page`, from the root of the checkout. With
`--check` it writes nothing, and fails where a page is not what the runs give.
The prose of the pages is written by hand. `<!--=MODULE.NAME(ARGUMENTS)-->`
stands for a function of tables, pivots, excerpts, systems or numbers in
`analysis/paper/`, or of `analysis/figures/paper.py`.

With `--results=DIR --docs=DIR` it makes the same pages of runs of your own, in
another folder: the figures are yours, the sentences are on the published runs.
`python -m tasks.reproduce` makes the runs.
"""

import pathlib
import re
import sys
from collections.abc import Mapping, Sequence

import pandas as pd
from absl import app, flags

from analysis.figures import paper as figures
from analysis.figures import style
from analysis.figures.drawings import Drawing
from analysis.paper import (
  evidence,
  excerpts,
  numbers,
  pivots,
  systems,
  tables,
)
from analysis.runs import markdown

_RESULTS = flags.DEFINE_string('results', 'results', 'The folder of the runs.')
_DOCS = flags.DEFINE_string('docs', 'docs', 'Where the pages are written.')
_CHECK = flags.DEFINE_bool('check', False, 'Compare the pages, write nothing.')

PAGES = ('reproduction.md', 'reproduction_details.md', 'related.md')
# Of the figures and the tables of every scale, beside the pages.
FOLDER = 'reproduction'
# Tables that are too long for a page.
FILES = {
  'clipping.csv': tables.clipping,
  'noise.csv': tables.noise,
  'comparisons.csv': tables.comparisons,
  'norms.csv': tables.norms,
  'mechanisms.csv': pivots.mechanisms,
  'systems.csv': systems.table,
}

_SOURCES = pathlib.Path(__file__).parents[1] / 'docs'
_MODULES = {
  'tables': tables,
  'pivots': pivots,
  'excerpts': excerpts,
  'systems': systems,
  'numbers': numbers,
  'figures': figures,
}
_NAME = re.compile(r'(\w+)\.([a-z]\w*)(?:\((.*)\))?')


def make_pages(
  found: evidence.Evidence,
) -> tuple[dict[str, str], list[Drawing]]:
  """The pages and files of some runs.

  Returns:
    The text of each page and CSV file, by its path in the folder of the pages;
    and the figures, which are not drawn yet.

  Raises:
    ValueError: A mark in a page stands for nothing.
  """
  drawings: list[Drawing] = []

  def find(name: str) -> str | pd.DataFrame:
    match = _NAME.fullmatch(name)
    function = match and getattr(_MODULES.get(match[1]), match[2], None)
    if not callable(function):
      raise ValueError(f'there is no {name}')
    value = function(found, *filter(None, (match[3] or '').split(', ')))
    if isinstance(value, list):
      drawings.extend(value)
      return '\n\n'.join(
        f'![{each.caption}]({FOLDER}/{each.name})' for each in value
      )
    return value

  texts = {
    page: markdown.fill((_SOURCES / page).read_text(encoding='utf-8'), find)
    for page in PAGES
  }
  texts |= {
    f'{FOLDER}/{name}': table(found).to_csv(index=False, lineterminator='\n')
    for name, table in FILES.items()
  }
  return texts, drawings


def write(
  texts: Mapping[str, str], drawings: Sequence[Drawing], docs: pathlib.Path
) -> None:
  """Writes pages, files and figures; figures of earlier pages go."""
  folder = docs / FOLDER
  folder.mkdir(parents=True, exist_ok=True)
  for old in folder.glob('*.png'):
    old.unlink()
  for drawing in drawings:
    style.save(drawing.draw(), folder / drawing.name)
  for path, text in texts.items():
    (docs / path).write_text(text, encoding='utf-8')


def differing(
  texts: Mapping[str, str], drawings: Sequence[Drawing], docs: pathlib.Path
) -> list[str]:
  """What in a folder is not as made, a path each; figures by their names."""
  folder = docs / FOLDER
  drawn = {f'{FOLDER}/{drawing.name}' for drawing in drawings}
  there = {f'{FOLDER}/{path.name}' for path in folder.glob('*.png')}
  return [
    path
    for path, text in texts.items()
    if not (docs / path).is_file()
    or (docs / path).read_text(encoding='utf-8') != text
  ] + sorted(drawn ^ there)


def main(argv: Sequence[str]) -> None:
  if len(argv) > 1:
    raise app.UsageError(f'Only flags are taken, found {argv[1]!r}.')
  docs = pathlib.Path(_DOCS.value)
  try:
    found = evidence.read(pathlib.Path(_RESULTS.value))
    texts, drawings = make_pages(found)
    if _CHECK.value:
      others = differing(texts, drawings, docs)
      if others:
        print(f'not as the runs give it: {", ".join(others)}', file=sys.stderr)
        sys.exit(1)
    else:
      write(texts, drawings, docs)
  except (ValueError, OSError) as error:
    print(f'error: {error}', file=sys.stderr)
    sys.exit(2)
  pages = ', '.join(str(docs / page) for page in PAGES)
  print(f'{pages}: {len(found.frames.runs)} runs')


if __name__ == '__main__':
  app.run(main)
