"""Writes docs/reproduction.md and its details from the runs in results/.

Command: `python -m analysis.reproduction`, from the root of the checkout. With
`--results=DIR --docs=DIR` it makes the same pages of runs of your own;
`python -m tasks.reproduce` makes the runs. The text is in analysis/templates.
"""

import pathlib
import sys
from collections.abc import Sequence
from typing import Any

import pandas as pd
from absl import app, flags

from analysis import (
  audit_tables,
  evidence,
  frame,
  margins,
  other_tables,
  pages,
  pictures,
  privacy_tables,
  tables,
  verdicts,
)
from tasks import experiment_table

_RESULTS = flags.DEFINE_string('results', 'results', 'The folder of the runs.')
_DOCS = flags.DEFINE_string('docs', 'docs', 'Where the pages are written.')

PAGES = ('reproduction.md', 'reproduction_details.md')
# Of the figures, beside the pages.
_FOLDER = 'reproduction'
# Of a row at the paper's scale.
_FIGURES = ('fed_avg', 'clipping_drop', 'dp_drop')
# Of the scatter of updates; the tables have the spread over all seeds.
_SEED = 0


def write_pages(results_dir: pathlib.Path, docs: pathlib.Path) -> int:
  """Writes the pages and their figures, which the runs alone decide.

  Args:
    results_dir: The folder of the run folders, and of `search/` with the tables
      of the searches for learning rates.
    docs: Where to write.

  Returns:
    The number of runs.

  Raises:
    ValueError: There is a run that cannot be read, or none of a row of the
      paper.
  """
  frames = frame.read_results(results_dir)
  lines = evidence.paper_lines(frames)
  if lines.empty or lines['table'].isna().all():
    raise ValueError(
      '`results_dir` must hold a finished run of a row of the paper, found '
      f'none in {results_dir}.'
    )
  lines = lines[lines['table'].notna()]
  folder = docs / _FOLDER
  folder.mkdir(parents=True, exist_ok=True)
  for old in folder.glob('*.png'):
    old.unlink()
  values = [
    _page_values(frames, lines),
    _details_values(frames, lines, results_dir),
  ]
  for shown, drawn in zip(values, _figures(frames, lines, folder), strict=True):
    shown['figures'] = pages.pictures(drawn, f'{_FOLDER}/')
  for page, shown in zip(PAGES, values, strict=True):
    text = pages.fill_template(page, shown)
    (docs / page).write_text(text, encoding='utf-8')
  return len(frames.runs)


def main(argv: Sequence[str]) -> None:
  if len(argv) > 1:
    raise app.UsageError(f'Only flags are taken, found {argv[1]!r}.')
  docs = pathlib.Path(_DOCS.value)
  try:
    count = write_pages(pathlib.Path(_RESULTS.value), docs)
  except (ValueError, OSError) as error:
    print(f'error: {error}', file=sys.stderr)
    sys.exit(2)
  print(f'{", ".join(str(docs / page) for page in PAGES)}: {count} runs')


def _page_values(frames: frame.Frames, lines: pd.DataFrame) -> dict[str, Any]:
  runs = frames.runs
  best = evidence.headlines(lines)
  full = best[best['is_paper_scale']]
  # Of two rows that share their runs, the one with DP-FedAvg.
  listed = full[~full['runs'].duplicated(keep='last')]
  compared = verdicts.comparisons(lines)
  by_finding = compared.groupby('finding')['verdict']
  return {
    'num_runs': len(runs),
    'hours': f'{runs["seconds"].sum() / 3600:.1f}',
    'tff': ', '.join(sorted(set(runs['tff_version'].dropna()))),
    'num_rows': len(best),
    'num_full': len(full),
    'full': [
      {
        'title': f'{line["model"]} on {line["data"]}, {line["split"]}',
        'seeds': line['num_seeds'],
        **{key: tables.cell(line[key]) for key in _FIGURES},
        **{
          f'paper_{key}': margins.number(line[f'paper_{key}'], '.2f')
          for key in _FIGURES
        },
        'has_noise': line['dp_drop'] is not None,
      }
      for line in listed.to_dict('records')
    ],
    **{
      finding: verdicts.in_words(
        by_finding.get_group(finding) if finding in by_finding.groups else []
      )
      for finding in verdicts.FINDINGS
    },
    'spread': verdicts.in_words(_column(verdicts.spread_verdicts(lines))),
    'num_compared': len(compared),
    'num_decided': compared['verdict'].isin(verdicts.DECIDED).sum(),
    **{
      f'table_{number}': tables.headline_table(number, lines)
      for number in (2, 3, 4)
    },
    'not_run': '; '.join(
      f'Table {number}: {title}'
      for number in (2, 3, 4)
      for title in evidence.not_run(number, lines)
    ),
  }


def _details_values(
  frames: frame.Frames, lines: pd.DataFrame, results_dir: pathlib.Path
) -> dict[str, Any]:
  # Audits have a table of their own.
  runs = frames.runs[~frames.runs['is_audited']]
  finished = runs[runs['is_complete']]
  compared = verdicts.comparisons(lines)
  other_samplings = finished['privacy_sampling'].isin(['paper', 'fixed_size'])
  variants = finished.loc[other_samplings, 'series']
  best = evidence.headlines(lines)
  few_seeds = best.loc[best['num_seeds'] < margins.MIN_SEEDS, 'row']
  return {
    'scales': _scale_table(),
    'clipping': tables.clipping_table(lines),
    'noise': tables.noise_table(lines),
    **tables.half_way_counts(lines),
    **{
      finding: verdicts.comparison_table(compared, finding)
      for finding in verdicts.FINDINGS
    },
    'spread': verdicts.spread_verdicts(lines),
    'norms': verdicts.norm_table(lines),
    'costs': privacy_tables.cost_table(finished),
    'calibrations': privacy_tables.calibration_table(
      finished[finished['series'].isin(variants)]
    ),
    'audits': audit_tables.attack_table(frames),
    'model_clipping': other_tables.model_clipping_table(runs),
    'beyond': other_tables.beyond_table(runs),
    'search': other_tables.search_table(results_dir / 'search', runs),
    'few_seeds': ', '.join(f'`{row}`' for row in few_seeds),
  }


def _scale_table() -> pd.DataFrame:
  """The named scales."""
  return pd.DataFrame(
    [
      {
        'scale': scale.name,
        'share of N and P': str(scale.client_share),
        **{
          symbol: scale.settings[key].value
          for key, symbol in (
            ('local_steps', 'Q'),
            ('batch_size', 'batch'),
            ('num_rounds', 'T'),
          )
        },
        'what it is': scale.description,
      }
      for scale in experiment_table.SCALES.values()
    ]
  )


def _figures(
  frames: frame.Frames, lines: pd.DataFrame, folder: pathlib.Path
) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
  """Draws the figures of the first and of the second page.

  A panel is the best evidence of a row. Other ways to draw cohorts and model
  clipping have tables of their own.
  """
  best = evidence.once(evidence.headlines(lines))
  runs = frames.runs
  runs = runs[(runs['clips'] != 'models') & runs['is_complete']]
  runs = runs[runs['privacy_sampling'].fillna('poisson') == 'poisson']
  shown = runs[runs.index.isin([name for own in best['runs'] for name in own])]
  accuracies = pictures.draw_accuracies(frames, shown, folder)
  # Figs. 1 and 2 are of Table 2's clients, of 500 examples.
  places = best.drop_duplicates(['model', 'data', 'split'])
  names = [name for own in places['runs'] for name in own]
  shown = runs[runs.index.isin(names) & ~runs['is_private']]
  shown = shown[shown['seed'] == _SEED]
  updates = pictures.draw_updates(
    frames, shown[shown.index.isin(frames.updates['run'])], folder
  )
  return accuracies + updates[:2], updates[2:]


def _column(table: pd.DataFrame) -> list[str]:
  return list(table['verdict']) if len(table) else []


if __name__ == '__main__':
  app.run(main)
