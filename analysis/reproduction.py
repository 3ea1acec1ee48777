"""Writes docs/reproduction.md and its details from the runs in results/.

Command: `python -m analysis.reproduction`, from the root of the checkout. With
`--results=DIR --docs=DIR` it makes the same pages of runs of your own;
`python -m tasks.reproduce` makes the runs. The text is in analysis/templates.
"""

import dataclasses
import pathlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from absl import app, flags

from analysis import (
  algorithm_tables,
  audit_tables,
  baselines,
  bfloat16,
  bound,
  bound_tables,
  evidence,
  explanations,
  frame,
  margins,
  matched_steps,
  mechanisms,
  missing,
  model_clipping_tables,
  noise_studies,
  pages,
  pairs,
  privacy_tables,
  rate_searches,
  reproduction_figures,
  tables,
  verdict_tables,
  verdicts,
)
from tasks.experiments import experiment_table

_RESULTS = flags.DEFINE_string('results', 'results', 'The folder of the runs.')
_DOCS = flags.DEFINE_string('docs', 'docs', 'Where the pages are written.')

PAGES = ('reproduction.md', 'reproduction_details.md')
# Of the figures, beside the pages.
_FOLDER = 'reproduction'
# Of a row at the paper's scale.
_FIGURES = ('fed_avg', 'clipping_drop', 'dp_drop')
# The one on what noise costs.
_OF_NOISE = ('size',)
_MODEL_CLIPPING = ('half_model_norm', 'same_threshold')


@dataclasses.dataclass(frozen=True, eq=False)
class _Evidence:
  """What the pages are made of.

  Attributes:
    frames: All runs.
    paired: From `pairs.paired_runs`.
    lines: From `matched_steps.with_matched_steps`, of runs without variants.
    noisy: From `noise_studies.noise_lines`.
    compared: From `verdicts.with_counted`, of both.
    spread: From `verdicts.spread_verdicts`.
  """

  frames: frame.Frames
  paired: pd.DataFrame
  lines: pd.DataFrame
  noisy: pd.DataFrame
  compared: pd.DataFrame
  spread: pd.DataFrame

  @property
  def counted(self) -> pd.DataFrame:
    """The comparisons that count: one for each pair of rows."""
    return self.compared[self.compared['counts']]


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
  found = _read_evidence(results_dir)
  folder = docs / _FOLDER
  folder.mkdir(parents=True, exist_ok=True)
  for old in folder.glob('*.png'):
    old.unlink()
  values = [_page_values(found), _details_values(found, results_dir)]
  figures = reproduction_figures.draw_figures(
    _with_variants(found.frames), found.lines, folder
  )
  for page, shown, drawn in zip(PAGES, values, figures, strict=True):
    shown['figures'] = pages.pictures(drawn, f'{_FOLDER}/')
    text = pages.fill_template(page, shown)
    (docs / page).write_text(text, encoding='utf-8')
  return len(found.frames.runs)


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


def _read_evidence(results_dir: pathlib.Path) -> _Evidence:
  frames = frame.read_results(results_dir)
  lines = evidence.paper_lines(_with_variants(frames))
  if lines.empty or lines['table'].isna().all():
    raise ValueError(
      '`results_dir` must hold a finished run of a row of the paper, found '
      f'none in {results_dir}.'
    )
  paired = pairs.paired_runs(frames.runs)
  lines = matched_steps.with_matched_steps(
    lines[lines['table'].notna()], paired
  )
  noisy = noise_studies.noise_lines(frames)
  compared = pd.concat(
    [verdicts.comparisons(lines), verdicts.comparisons(noisy, _OF_NOISE)],
    ignore_index=True,
  )
  return _Evidence(
    frames,
    paired,
    lines,
    noisy,
    verdicts.with_counted(compared),
    verdicts.spread_verdicts(lines),
  )


def _with_variants(frames: frame.Frames, *names: str) -> frame.Frames:
  """The runs that no variant changes, or one of some names.

  Each is compared with those among them.
  """
  runs = frames.runs[frames.runs['variants'].isin(['', *names])]
  return dataclasses.replace(frames, runs=baselines.with_baselines(runs))


def _page_values(found: _Evidence) -> dict[str, Any]:
  runs, lines, counted = found.frames.runs, found.lines, found.counted
  best = evidence.headlines(lines)
  full = best[best['is_paper_scale']]
  explained = explanations.find_explanations(found.paired)
  findings = [
    _finding_values(name, found.compared) for name in verdicts.FINDINGS
  ]
  spread = list(found.spread.get('verdict', []))
  kept = counted.loc[verdicts.stays_decided(counted), 'verdict']
  return {
    'num_runs': len(runs),
    'hours': f'{runs["seconds"].sum() / 3600:.1f}',
    'tff': ', '.join(sorted(set(runs['tff_version'].dropna()))),
    'num_rows': len(best),
    'num_full': len(full),
    # Of two rows that share their runs, the one with DP-FedAvg.
    'full': [
      _full_values(line)
      for line in evidence.once(full, keep='last').to_dict('records')
    ],
    'findings': findings,
    'num_findings': len(findings) + 1,
    'num_confirmed': _count(
      [bool(each['holds'] and not each['fails']) for each in findings]
      + [verdicts.HOLDS in spread and verdicts.FAILS not in spread]
    ),
    'num_refuted': _count(
      [bool(each['fails'] and not each['holds']) for each in findings]
      + [verdicts.FAILS in spread and verdicts.HOLDS not in spread]
    ),
    'decided': verdict_tables.decided_table(counted),
    'spread': verdict_tables.spread_in_words(found.spread),
    'num_compared': len(counted),
    'num_tested': verdicts.num_tested(counted),
    'num_decided': counted['verdict'].isin(verdicts.DECIDED).sum(),
    'num_corrected': len(kept),
    'one_corrected': len(kept) == 1,
    'num_kept_for': (kept == verdicts.HOLDS).sum(),
    'num_kept_against': (kept == verdicts.FAILS).sum(),
    'correction': margins.bonferroni_factors(verdicts.num_tested(counted)),
    'matched': matched_steps.matched_table(lines),
    **matched_steps.matched_counts(lines),
    'explanations': explanations.explanation_table(explained),
    'nearest': explanations.nearest_explanations(explained),
    'covered': explanations.covered_drops(explained),
    'mechanisms': mechanisms.mechanism_table(found.paired),
    'rdp_over_pld': mechanisms.rdp_over_pld(found.paired),
    **mechanisms.paper_sampling(found.paired),
    **mechanisms.without_draw(found.paired),
    **{
      f'table_{number}': tables.headline_table(number, lines, found.noisy)
      for number in (2, 3, 4)
    },
    'not_run': '; '.join(
      f'Table {number}: {title}'
      for number in (2, 3, 4)
      for title in evidence.not_run(number, lines)
    ),
  }


def _count(found: Sequence[bool]) -> str:
  return str(sum(found) or 'none')


def _full_values(line: Mapping[str, Any]) -> dict[str, Any]:
  """What the page says of a row at the paper's scale."""
  return {
    'title': f'{line["model"]} on {line["data"]}, {line["split"]}',
    'seeds': line['num_seeds'],
    'rounds': line['T'],
    **{key: tables.cell(line[key]) for key in _FIGURES},
    **{
      f'paper_{key}': margins.number(line[f'paper_{key}'], '.2f')
      for key in _FIGURES
    },
    'early_drop': '' if line['early_drop'] is None else str(line['early_drop']),
    'has_noise': line['dp_drop'] is not None,
    'other_data': (
      line['paper_data'] if line['paper_data'] != line['data'] else ''
    ),
  }


def _finding_values(name: str, compared: pd.DataFrame) -> dict[str, Any]:
  """What the page says of a finding."""
  counted = compared[compared['counts']]
  finding, lessons = verdicts.FINDINGS[name], verdicts.lessons(counted, name)
  of_finding = counted.loc[counted['finding'] == name, 'verdict']
  return {
    'claim': finding.claim,
    'source': finding.source,
    'counts': verdict_tables.in_words(of_finding),
    **{f'is_{other}': name == other for other in verdicts.FINDINGS},
    **verdicts.one_side(counted, name),
    'elsewhere': verdicts.elsewhere(compared, name),
    'contrary': verdicts.contrary(counted, name),
    **lessons,
    'nothing': not any(lessons.values()),
  }


def _details_values(
  found: _Evidence, results_dir: pathlib.Path
) -> dict[str, Any]:
  frames, lines = found.frames, found.lines
  # Audits have a table of their own.
  runs = _with_variants(frames).runs
  runs = runs[~runs['is_audited']]
  measured = frames.runs[frames.runs['has_constants']]
  best = evidence.headlines(lines)
  few_seeds = best.loc[best['num_seeds'] < margins.MIN_SEEDS, 'row']
  return {
    'scales': _scale_table(),
    'clipping': tables.clipping_table(lines),
    'noise': tables.noise_table(pd.concat([lines, found.noisy])),
    **tables.equal_path_counts(lines),
    **{
      finding: verdict_tables.comparison_table(found.compared, finding)
      for finding in verdicts.FINDINGS
    },
    'spread': found.spread,
    'rows': verdict_tables.row_table(lines, found.counted),
    'findings': verdict_tables.finding_table(found.counted, found.spread),
    'norms': verdict_tables.norm_table(lines),
    'costs': privacy_tables.cost_table(runs[runs['is_complete']]),
    'bound': bound_tables.term_table(frames, measured),
    'broken': pages.bullets(bound.broken_conditions(measured)),
    'audits': audit_tables.attack_table(frames),
    'model_clipping': model_clipping_tables.comparison_table(
      _with_variants(frames, *_MODEL_CLIPPING).runs
    ),
    **model_clipping_tables.lead(found.paired),
    'has_explanations': bool(explanations.find_explanations(found.paired)),
    'beyond': algorithm_tables.beyond_table(runs),
    'bfloat16': bfloat16.accuracy_table(found.paired),
    'search': rate_searches.search_table(results_dir / 'search', runs),
    'missing': pages.bullets(missing.missing_runs(frames.runs)),
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


if __name__ == '__main__':
  app.run(main)
