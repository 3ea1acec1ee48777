"""Writes the tables and figures of the reproduction's pages and related.md.

Command: `python -m analysis.page`, from the root of the checkout. With
`--check` it writes nothing, and fails where a page is not what the runs give.
The prose is written by hand, and its figures are taken from the tables.
`<!--=NAME-->` in a page stands for a table of `TABLES` or figures of `FIGURES`.

With `--results=DIR --docs=DIR` it makes the same pages of runs of your own, in
another folder: tables and figures are yours, the prose is on the published
runs. `python -m tasks.reproduce` makes the runs.
"""

import functools
import pathlib
import re
import sys
from collections.abc import Mapping, Sequence

import pandas as pd
from absl import app, flags

from analysis import experiments, figures, markup, names, stats, systems, tables
from analysis.figures import Drawing
from analysis.tables import Evidence

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
  'mechanisms.csv': systems.mechanisms,
  'systems.csv': systems.systems,
}
TABLES = {
  **{
    f'table_{number}': functools.partial(tables.published, number=number)
    for number in (2, 3, 4)
  },
  'findings': tables.findings,
  'systems_by_budget': systems.systems_by_budget,
}

_SOURCES = pathlib.Path(__file__).parents[1] / 'docs'
_MARK = re.compile(r'<!--=(\w+)-->\n.*?<!--/-->', re.DOTALL)
_DPI = 96
# Of the scatter of updates; the tables have the spread over all seeds.
_SEED = 0
# A late round of the figures of the paper, from 0.
_LATE_ROUND = 32


def make_pages(found: Evidence) -> tuple[dict[str, str], list[Drawing]]:
  """The pages and files of some runs.

  Returns:
    The text of each page and CSV file, by its path in the folder of the pages;
    and the figures, which are not drawn yet.

  Raises:
    ValueError: A mark in a page stands for nothing.
  """
  drawings: list[Drawing] = []

  def filled(match: re.Match) -> str:
    name = match[1]
    if name in TABLES:
      text = markup.markdown_table(TABLES[name](found))
    elif name in FIGURES:
      drawn = FIGURES[name](found)
      drawings.extend(drawn)
      text = '\n\n'.join(
        f'![{each.caption}]({FOLDER}/{each.name})' for each in drawn
      )
    else:
      raise ValueError(f'{match[0][:60]!r} stands for nothing')
    return f'<!--={name}-->\n\n{text}\n\n<!--/-->'

  texts = {
    page: _MARK.sub(filled, (_SOURCES / page).read_text(encoding='utf-8'))
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
    figures.save(drawing, folder / drawing.name, _DPI)
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


def accuracies(found: Evidence) -> list[Drawing]:
  """Accuracy by round, a figure for each data set, a panel for each row."""
  lines = tables.best_scale(tables.learned(found.lines, 'clipping_drop'))
  table = names.ordered(found.rows.loc[lines['runs'].explode().unique()])
  drawn = []
  for data, part in table.groupby('data', sort=False):
    panels = [
      functools.partial(figures.curve_panel, title=title, table=own)
      for title, own in names.by_setting(part)
    ]
    width = 2 if len(panels) == 4 else 3
    drawn.append(
      Drawing(
        f'accuracy_{figures.file_part(data)}.png',
        f'Test accuracy by round on {data}.',
        [panels[k : k + width] for k in range(0, len(panels), width)],
        (4.0, 2.7),
      )
    )
  return drawn


def updates_by_model(found: Evidence) -> list[Drawing]:
  """The paper's Figs. 1 and 2: all models at t = 16, without clipping."""
  return _at_one_round(_scatter(found), 'fed_avg')


def updates_by_round(found: Evidence) -> list[Drawing]:
  """All models at t = 16, clipped; and each by round, as in the appendix."""
  runs = _scatter(found)
  drawn = _at_one_round(runs, 'ce_fed_avg')
  for (data, model), own in runs.groupby(['data', 'model_name'], sort=False):
    rounds = sorted({*stats.updates(own)['t']})
    by_round = figures.scatter([figures.at_round(own, t) for t in rounds])
    grid = list(zip(*by_round, strict=True))
    size = {1: 3.4, 2: 3.6, 3: 3.0}.get(len(rounds), 2.5), 2.4
    drawn.append(figures.updates_drawing(f'{model} on {data}', grid, size))
  return drawn


FIGURES = {
  'accuracies': accuracies,
  'updates_by_model': updates_by_model,
  'updates_by_round': updates_by_round,
}


def _at_one_round(runs: pd.DataFrame, algorithm: str) -> list[Drawing]:
  """The updates of all models in one round: IID beside non-IID."""
  t = stats.FIGURE_ROUND
  runs = runs[runs['algorithm'] == algorithm]
  runs = runs.assign(title=runs['model_name'] + ', ' + runs['split'], t=t)
  drawn = []
  for data, part in runs.groupby('data', sort=False):
    models = part.groupby('model_name', sort=False)
    grid = figures.scatter([own for _, own in models])
    title = experiments.ALGORITHMS[algorithm].title
    title = f'Round t = {t} on {data}, {title}'
    drawn.append(figures.updates_drawing(title, grid, (3.6, 2.4)))
  return drawn


def _scatter(found: Evidence) -> pd.DataFrame:
  """The runs of each model, data and split at one scale.

  It is the one with the most local steps, then one that has the rounds of the
  paper's figures, then the one with the most clients, then rounds. Figs. 1 and
  2 are of Table 2's clients, of 500 examples, which come first. Without what is
  near chance.
  """
  table = found.rows
  is_near = table['final_score'] < 3 * tables.CHANCE
  near = table.loc[is_near & (table['algorithm'] == 'fed_avg'), 'series']
  table = table[
    (table['variants'] == '')
    & ~table['is_private']
    & (table['seed'] == _SEED)
    & ~table['series'].isin(near)
    & table['has_updates']
  ]
  by_size = table.assign(is_long=table['num_rounds'] > _LATE_ROUND).sort_values(
    ['local_steps', 'is_long', 'clients_per_round', 'num_rounds']
  )
  rows = [row.name for row in experiments.ROWS]
  best = pd.concat(
    by_size[tables.of_row(by_size, row)].tail(1)
    for row in (*rows, *experiments.FIGURE_ROWS)
  ).drop_duplicates(['model', 'data', 'split'])
  return names.ordered(table[table['series'].isin(best['series'])])


def main(argv: Sequence[str]) -> None:
  if len(argv) > 1:
    raise app.UsageError(f'Only flags are taken, found {argv[1]!r}.')
  docs = pathlib.Path(_DOCS.value)
  with markup.errors_shown():
    found = Evidence(stats.read_results(_RESULTS.value).table)
    texts, drawings = make_pages(found)
    others = differing(texts, drawings, docs) if _CHECK.value else []
    if not _CHECK.value:
      write(texts, drawings, docs)
  if others:
    markup.show(f'not as the runs give it: {", ".join(others)}', sys.stderr)
    sys.exit(1)
  pages = ', '.join(str(docs / page) for page in PAGES)
  markup.show(f'{pages}: {len(found.table)} runs', sys.stdout)


if __name__ == '__main__':
  app.run(main)
