"""What clipping costs where the steps of CE-FedAvg are as long as FedAvg's."""

from typing import Any

import pandas as pd

from analysis import evidence, margins, tables

_MATCHED = 'matched_steps'


def with_matched_steps(
  lines: pd.DataFrame, paired: pd.DataFrame
) -> pd.DataFrame:
  """Adds what CE-FedAvg loses where its steps are as long as FedAvg's.

  Args:
    lines: From `evidence.paper_lines`.
    paired: From `pairs.paired_runs`.

  Returns:
    The lines with the columns `matched_drop` and `matched_gain` (by how much
    the longer steps raise the accuracy of CE-FedAvg, seed by seed), `Estimate`s
    or None; and `path_ratio` and `matched_path_ratio` (how far CE-FedAvg moved
    over how far FedAvg did, the means over seeds), NaN where no updates were
    recorded.
  """
  clipped = paired[paired['algorithm'] == 'ce_fed_avg']
  plain, matched = (
    [same[same['plain'].isin(names)] for names in lines['runs']]
    for same in (
      clipped[clipped['variants'] == variants] for variants in ('', _MATCHED)
    )
  )
  return lines.assign(
    matched_drop=[margins.estimate(part['drop']) for part in matched],
    matched_gain=[margins.estimate(part['gain']) for part in matched],
    path_ratio=[part['path_ratio'].mean() for part in plain],
    matched_path_ratio=[part['path_ratio'].mean() for part in matched],
  )


def matched_table(lines: pd.DataFrame) -> pd.DataFrame:
  """The drops by clipping with the paper's steps and with matched ones.

  Args:
    lines: From `with_matched_steps`.

  Returns:
    Columns for a table; a row for each row and scale that was run both ways.
  """
  lines = _matched_lines(lines)
  return pd.DataFrame(
    {
      'row': lines['row'],
      'scale': lines['scale_name'],
      'drop, paper': lines['paper_clipping_drop'].map('{:.2f}'.format),
      'drop, η_g = 1': lines['clipping_drop'].map(tables.cell),
      'drop, η_g = 2': lines['matched_drop'].map(tables.cell),
      'gained by η_g = 2': lines['matched_gain'].map(tables.cell),
      "path over FedAvg's, η_g = 1 and 2": [
        f'{margins.number(one, ".2f")} and {margins.number(two, ".2f")}'
        for one, two in zip(
          lines['path_ratio'], lines['matched_path_ratio'], strict=True
        )
      ],
      'seeds': lines['matched_drop'].map(tables.num_seeds),
    }
  )


def matched_counts(lines: pd.DataFrame) -> dict[str, Any]:
  """What is left of the drops with matched steps.

  Args:
    lines: From `with_matched_steps`.

  Returns:
    Of the rows and scales with three seeds, `matched_tested` of them: in how
    many a drop is left (`matched_left`), also if all share the chance of one
    error (`matched_corrected`), and in how many CE-FedAvg is above FedAvg
    (`matched_above`); from what to what points the drops are with the paper's
    steps (`matched_before`) and with matched ones (`matched_after`), and the
    largest upper end of an interval of the latter (`matched_highest`).
  """
  lines = _matched_lines(lines)
  drops = lines['matched_drop']
  drops = drops[drops.map(lambda drop: drop.num_seeds) >= margins.MIN_SEEDS]
  counts = margins.count_signs(drops)
  highest = max((drop.mean + drop.margin for drop in drops), default=None)
  return {
    'matched_tested': counts.tested,
    'matched_left': counts.above,
    'matched_corrected': counts.corrected_above,
    'matched_above': counts.below,
    'matched_highest': margins.number(highest, '.2f'),
    'matched_before': margins.span(
      [drop.mean for drop in lines.loc[drops.index, 'clipping_drop']]
    ),
    'matched_after': margins.span([drop.mean for drop in drops]),
  }


def _matched_lines(lines: pd.DataFrame) -> pd.DataFrame:
  return evidence.once(lines[lines['matched_drop'].notna()])
