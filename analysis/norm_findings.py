"""What the paper says of the norms of updates, in our runs (Sec. 2.2)."""

from collections.abc import Sequence

import pandas as pd

from analysis import concentration, paper_findings, rows


def concentration_verdicts(paper_rows: Sequence[rows.Row]) -> pd.DataFrame:
  """Whether concentrated norms go with small drops (Sec. 2.2), by scale.

  Seeds are averaged first: those of one row are no rows of their own.

  Args:
    paper_rows: The rows.

  Returns:
    Columns for a table; a row for each P, Q, batch and T with at least
    `concentration.MIN_PAIRS` rows. Runs of the same row at another T can begin
    with the same rounds, so scales are not put together.
  """
  found = _spreads_and_drops(paper_rows)
  by_scale = {}
  for line in found:
    by_scale.setdefault(', '.join(map(str, line[0].scale)), []).append(line)
  lines = []
  for scale, of_scale in by_scale.items():
    if len(of_scale) < concentration.MIN_PAIRS:
      continue
    try:
      correlation = concentration.rank_correlation(
        [spread for _, spread, _ in of_scale],
        [drop.value for _, _, drop in of_scale],
      )
    except ValueError:
      # All spreads, or all drops, are the same.
      continue
    if correlation.p_value > 0.05:
      verdict = paper_findings.OPEN
    else:
      verdict = (
        paper_findings.HOLDS if correlation.value > 0 else paper_findings.FAILS
      )
    lines.append(
      {
        'P, Q, batch, T': scale,
        'rows': str(correlation.num_pairs),
        'Spearman ρ': f'{correlation.value:.2f}',
        '95 % interval': f'{correlation.low:.2f} to {correlation.high:.2f}',
        'p': f'{correlation.p_value:.2g}',
        'verdict': verdict,
      }
    )
  return pd.DataFrame(lines)


def spread_table(paper_rows: Sequence[rows.Row]) -> pd.DataFrame:
  """What the paper says of the norms at t = 16 (Sec. 2.2), by pairs of rows.

  Args:
    paper_rows: The rows.

  Returns:
    Columns for a table; a row for each statement, with the number of pairs of
    our rows, at one scale, which differ in nothing else.
  """
  found = [
    (row.published, row.scale, *concentration.spreads_at(row.runs('fed_avg')))
    for row, _, _ in _spreads_and_drops(paper_rows)
    if row.published.table == 2
  ]
  lines = []
  for statement, name, smaller in (
    ('less on EMNIST (here MNIST) than on CIFAR-10', 'data', 'EMNIST'),
    ('less on IID data than on non-IID data', 'is_iid', True),
    ('less with ResNet-18 than with AlexNet', 'model', 'ResNet-18'),
  ):
    keys = {'model', 'data', 'is_iid'} - {name}
    pairs = [
      (one, two)
      for one in found
      for two in found
      if one[1] == two[1]
      and getattr(one[0], name) == smaller
      and getattr(two[0], name) != smaller
      and all(getattr(one[0], key) == getattr(two[0], key) for key in keys)
    ]
    lines.append(
      {
        'the norms spread, in the paper': statement,
        'pairs of rows': str(len(pairs)),
        'so by std / mean in': str(sum(one[2] < two[2] for one, two in pairs)),
        'so by std in': str(sum(one[3] < two[3] for one, two in pairs)),
      }
    )
  return pd.DataFrame(lines)


def concentration_table(paper_rows: Sequence[rows.Row]) -> pd.DataFrame:
  """The spread of the norms of FedAvg beside the drop, by rising spread.

  Args:
    paper_rows: The rows.

  Returns:
    Columns for a table; a row for each pair of FedAvg and CE-FedAvg runs that
    the rows share, once.
  """
  ordered = sorted(_spreads_and_drops(paper_rows), key=lambda line: line[1])
  return pd.DataFrame(
    [
      {
        'row': row.name,
        'P': str(row.scale[0]),
        'T': str(row.scale[-1]),
        'std / mean of the norms (%)': f'{100 * spread:.1f}',
        'drop by clipping, paper': f'{row.published.clipping_drop:.2f}',
        'drop by clipping, ours': str(drop),
      }
      for row, spread, drop in ordered
    ]
  )


def _spreads_and_drops(
  paper_rows: Sequence[rows.Row],
) -> list[tuple[rows.Row, float, rows.Estimate]]:
  """Each row at each scale with its spread of norms and its drop, once."""
  found = {}
  for row in rows.at_all_scales(paper_rows):
    plain, drop = row.runs('fed_avg'), row.drop('ce_fed_avg')
    if not plain or drop is None:
      continue
    spreads = [concentration.relative_spread(run) for run in plain]
    # Two rows of the paper can share their runs.
    found.setdefault(plain[0].name, (row, sum(spreads) / len(spreads), drop))
  return list(found.values())
