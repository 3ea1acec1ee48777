"""The tables on the paper's rows, each from `evidence.paper_lines`."""

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd

from analysis import evidence, margins
from tff_clipping.theory import estimates

# What stands beside the paper's figure where ours measures nothing.
NEAR_CHANCE = 'near chance'
# A study of noise.
_PAPERS_NOISE = 'the noise of P = 80'


def published_table(lines: pd.DataFrame) -> pd.DataFrame:
  """The paper's figures beside ours, where ours measure something.

  Args:
    lines: Lines of one table of the paper, one for each row that is shown.
  """
  table = pd.DataFrame(
    {
      'model': lines['model'],
      'data': lines['data'],
      'clients': lines['split'],
      'FedAvg, paper (%)': lines['paper_fed_avg'].map('{:.2f}'.format),
      'FedAvg, ours (%)': _learned(lines, 'fed_avg'),
      'clipping drop, paper': lines['paper_clipping_drop'].map('{:.2f}'.format),
      'clipping drop, ours': _learned(lines, 'clipping_drop'),
    }
  )
  if lines['paper_dp_drop'].notna().any():
    table['DP drop, paper'] = lines['paper_dp_drop'].map('{:.2f}'.format)
    table['DP drop, ours'] = _learned(lines, 'dp_drop')
    table['ε, paper'] = lines['paper_epsilon'].map('{:g}'.format)
    table['ε, ours'] = lines['epsilon'].map(_epsilon)
  scale = [_scale(line) for line in lines.to_dict('records')]
  return table.assign(
    **{'P, Q, batch, T': scale}, seeds=lines['num_seeds']
  ).reset_index(drop=True)


def headline_table(
  table: int, lines: pd.DataFrame, noisy: pd.DataFrame
) -> pd.DataFrame:
  """The best evidence of each row of a table of the paper.

  Where DP-FedAvg was not run at its scale, or is near chance, the drop by noise
  is that with the noise on the mean of the paper's P there; else that of the
  scale with the most seeds and then examples, with either noise. Which one
  stands beside it.

  Args:
    table: The number of the table.
    lines: From `evidence.paper_lines`.
    noisy: From `noise_studies.noise_lines`.
  """
  of_table = lines[lines['table'] == table]
  shown = evidence.headlines(of_table)
  formatted = published_table(shown)
  if 'DP drop, ours' not in formatted:
    return formatted
  for place, line in enumerate(shown.to_dict('records')):
    if line['dp_drop'] is not None and not evidence.is_near_chance(
      line, 'dp_drop'
    ):
      continue
    other, name = _noise_elsewhere(line, of_table, noisy)
    if other is not None:
      formatted.loc[place, ['DP drop, ours', 'ε, ours']] = (
        learned_cell(other, 'dp_drop', num_seeds=line['num_seeds'])
        + f' ({name})',
        _epsilon(other['epsilon']),
      )
  return formatted


def _noise_elsewhere(
  line: Mapping[str, Any], lines: pd.DataFrame, noisy: pd.DataFrame
) -> tuple[pd.Series | None, str]:
  """The line that has the drop by noise in place of a row's own, and which."""
  studies, others = (
    [
      other
      for _, other in found.iterrows()
      if other['row'] == line['row'] and not _is_missing(other['dp_drop'])
    ]
    for found in (noisy, lines)
  )
  for study in studies:
    if study['scale'] == line['scale']:
      return study, _PAPERS_NOISE
  if line['dp_drop'] is not None:
    return None, ''
  found = [(other, f'at {_scale(other)}') for other in others]
  found += [(it, f'{_PAPERS_NOISE}, at {_scale(it)}') for it in studies]
  if not found:
    return None, ''
  return max(
    found,
    key=lambda each: (
      getattr(each[0]['dp_drop'], 'num_seeds', 0),
      each[0]['examples'],
    ),
  )


def clipping_table(lines: pd.DataFrame) -> pd.DataFrame:
  """What clipping costs, with what may explain it, at every scale."""
  lines = evidence.once(lines)
  return pd.DataFrame(
    {
      'row': lines['row'],
      'scale': lines['scale_name'],
      'seeds': lines['num_seeds'],
      'test images': lines['num_test_examples'].map(
        lambda count: margins.number(count, ',.0f')
      ),
      'FedAvg (%)': lines['fed_avg'].map(cell),
      'CE-FedAvg (%)': lines['ce_fed_avg'].map(cell),
      'drop, paper': lines['paper_clipping_drop'].map('{:.2f}'.format),
      'drop, ours': lines['clipping_drop'].map(cell),
      'FedAvg at equal path (%)': lines['equal_path'].map(cell),
      'CE-FedAvg above that': lines['equal_path_lead'].map(cell),
      'clipped (%)': lines['clipped_fraction'].map(
        lambda share: margins.number(100 * share, '.0f')
      ),
      'std / mean of norms (%)': lines['spread'].map(
        lambda spread: margins.number(100 * spread, '.1f')
      ),
    }
  )


def equal_path_counts(lines: pd.DataFrame) -> dict[str, int]:
  """Where CE-FedAvg ends beside FedAvg that has moved as far.

  Returns:
    For how many lines with three seeds, not near chance, it ends above, below
    or within the margin, and how many of the first two are so after a
    correction for all of them: `margins.count_signs`, each name with
    `equal_path_` before it. And for how many the mean is above
    (`equal_path_means_above`).
  """
  lines = evidence.once(lines)
  leads = [
    line['equal_path_lead']
    for line in lines.to_dict('records')
    if isinstance(line['equal_path_lead'], margins.Estimate)
    and not evidence.has_little_to_lose(line['fed_avg'])
  ]
  tested = [lead for lead in leads if margins.sign(lead) is not None]
  counts = margins.count_signs(tested)
  return {f'equal_path_{k}': x for k, x in counts._asdict().items()} | {
    'equal_path_means_above': sum(lead.mean > 0 for lead in tested)
  }


def noise_table(lines: pd.DataFrame) -> pd.DataFrame:
  """What noise costs, and how large it is, at every scale.

  noise / c is the expected norm of the noise on the mean update over c, and
  noise / signal that of T rounds over what T updates can be at most.
  """
  private = lines[lines['noise_multiplier'].notna()]
  noise = pd.Series(
    [
      estimates.Mechanism(
        line['noise_multiplier'], line['P'], int(line['num_parameters'])
      ).noise_norm(1.0)
      for line in private.to_dict('records')
    ],
    index=private.index,
    dtype=float,
  )
  return pd.DataFrame(
    {
      'row': private['row'],
      'scale': private['scale_name'],
      'seeds': private['dp_drop'].map(num_seeds),
      'd': private['num_parameters'].map('{:,.0f}'.format),
      'z': private['noise_multiplier'].map('{:.3g}'.format),
      'ε': private['epsilon'].map(_epsilon),
      'noise / c': noise.map('{:.0f}'.format),
      'noise / signal': (noise / private['T'] ** 0.5).map('{:.1f}'.format),
      'DP-FedAvg (%)': private['dp_fed_avg'].map(cell),
      'drop, paper': private['paper_dp_drop'].map('{:.2f}'.format),
      'drop, ours': private['dp_drop'].map(cell),
    }
  )


def learned_cell(
  line: Mapping[str, Any], figure: str, *, num_seeds: int | None = None
) -> str:
  """A figure to stand beside the paper's; `NEAR_CHANCE` where it says nothing.

  Args:
    line: A line of `evidence.paper_lines`.
    figure: `fed_avg`, `clipping_drop` or `dp_drop`.
    num_seeds: The seeds of the row where it stands; `None` for the line's.
  """
  found = line[figure]
  if found is None:
    return cell(found)
  if evidence.is_near_chance(line, figure):
    return NEAR_CHANCE
  is_of_few = isinstance(
    found, margins.Estimate
  ) and found.num_seeds < margins.MIN_SEEDS <= (num_seeds or line['num_seeds'])
  return cell(found) + (f' (seeds {found.num_seeds})' if is_of_few else '')


def cell(figure: margins.Estimate | str | None) -> str:
  """A figure over seeds in a table."""
  return 'not run' if figure is None else str(figure)


def num_seeds(figure: margins.Estimate | str | None) -> str:
  """The number of seeds of a figure in a table."""
  is_figure = isinstance(figure, margins.Estimate)
  return str(figure.num_seeds) if is_figure else margins.MISSING


def _is_missing(figure: margins.Estimate | str | float | None) -> bool:
  return not isinstance(figure, (margins.Estimate, str))


def _learned(lines: pd.DataFrame, figure: str) -> list[str]:
  return [learned_cell(line, figure) for line in lines.to_dict('records')]


def _scale(line: Mapping[str, Any]) -> str:
  """P, Q, batch and T of a line."""
  return f'{line["P"]}, {line["Q"]}, {line["batch"]}, {line["T"]}'


def _epsilon(epsilon: float) -> str:
  return 'not run' if math.isnan(epsilon) else margins.at_most(epsilon)
