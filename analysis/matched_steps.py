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
    or None; and `step_ratio` and `matched_step_ratio` (CE-FedAvg's steps over
    FedAvg's, the means over seeds), NaN where they were not recorded.
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
    step_ratio=[part['step_ratio'].mean() for part in plain],
    matched_step_ratio=[part['step_ratio'].mean() for part in matched],
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
      "steps over FedAvg's, η_g = 1 and 2": [
        f'{margins.number(one, ".2f")} and {margins.number(two, ".2f")}'
        for one, two in zip(
          lines['step_ratio'], lines['matched_step_ratio'], strict=True
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
    error (`matched_corrected`, by Bonferroni), and in how many CE-FedAvg is
    above FedAvg (`matched_above`), and the largest upper end of an interval
    (`matched_highest`), in points. How many have a drop with the paper's steps
    (`matched_shown`), from what to what points (`matched_before`), and what
    those are with matched steps (`matched_after`).
  """
  lines = _matched_lines(lines)
  counts = lines['matched_drop'].map(lambda drop: drop.num_seeds)
  lines = lines[counts >= margins.MIN_SEEDS]
  signs = lines['matched_drop'].map(margins.sign)
  p_values = lines['matched_drop'].map(lambda drop: drop.p_value)
  shown = lines[lines['clipping_drop'].map(margins.sign) == 1]
  return {
    'matched_tested': len(lines),
    'matched_left': int((signs == 1).sum()),
    'matched_corrected': int(
      ((signs == 1) & (p_values * len(lines) <= 0.05)).sum()
    ),
    'matched_above': int((signs == -1).sum()),
    'matched_highest': margins.number(
      max(
        (drop.mean + drop.margin for drop in lines['matched_drop']),
        default=None,
      ),
      '.2f',
    ),
    'matched_shown': len(shown),
    'matched_before': _range(shown['clipping_drop']),
    'matched_after': _range(shown['matched_drop']),
  }


def _range(drops: pd.Series) -> str:
  """From the smallest to the largest of some drops; empty without one."""
  if drops.empty:
    return ''
  means = [drop.mean for drop in drops]
  ends = (margins.number(end, '.2f') for end in (min(means), max(means)))
  return ' to '.join(dict.fromkeys(ends))


def _matched_lines(lines: pd.DataFrame) -> pd.DataFrame:
  return evidence.once(lines[lines['matched_drop'].notna()])
