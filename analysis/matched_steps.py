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
    paired: From `variants.paired_runs`.

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
    In how many rows and scales with three seeds, of `matched_tested`, a drop is
    left (`matched_left`), CE-FedAvg is above FedAvg (`matched_above`), and 0 is
    in the interval (`matched_none`); and those that have a drop with the
    paper's steps in words, beside that drop (`matched_words`).
  """
  lines = _matched_lines(lines)
  has_margin = [
    drop.num_seeds >= margins.MIN_SEEDS for drop in lines['matched_drop']
  ]
  lines = lines.loc[has_margin]
  signs = [margins.sign(drop) for drop in lines['matched_drop']]
  return {
    'matched_words': '; '.join(
      f'{line["model"]} on {line["data"]}, {line["split"]}, P = {line["P"]}, '
      f'T = {line["T"]}, {line["matched_drop"]} of {line["clipping_drop"]} '
      'points'
      for line in lines.to_dict('records')
      if margins.sign(line['clipping_drop']) == 1
    ),
    'matched_left': signs.count(1),
    'matched_above': signs.count(-1),
    'matched_none': signs.count(0),
    'matched_tested': len(signs),
  }


def _matched_lines(lines: pd.DataFrame) -> pd.DataFrame:
  return evidence.once(lines[lines['matched_drop'].notna()])
