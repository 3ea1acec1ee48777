"""Where our figures depart from the paper's, and the likely reasons."""

import math
from collections.abc import Sequence

import pandas as pd

from analysis import document, paper, results, rows, tables


def departures_section(paper_rows: Sequence[rows.Row]) -> list[document.Block]:
  """Where our figures depart from the paper's, and the likely reasons."""
  lines = []
  for row in paper_rows:
    accuracy = row.accuracy()
    if accuracy is None:
      continue
    run = row.runs('fed_avg')[0]
    steps = run.num_rounds * run.experiment['local_steps']
    examples = (
      steps * run.experiment['batch_size'] * run.experiment['clients_per_round']
    )
    lines.append(
      {
        'row': row.name,
        'data': paper.data_name(run),
        'FedAvg, paper (%)': f'{row.published.fed_avg:.2f}',
        'FedAvg, ours (%)': f'{accuracy.value:.2f}',
        'ours less paper': f'{accuracy.value - row.published.fed_avg:+.2f}',
        'local steps T × Q': f'{steps:,}',
        'examples seen': f'{examples:,}',
      }
    )
  blocks: list[document.Block] = [
    document.Heading('Where we depart from the paper, and why')
  ]
  if not lines:
    return [*blocks, document.Paragraph('No run of FedAvg is finished.')]
  blocks += [
    document.Table(pd.DataFrame(lines)),
    document.Paragraph(
      'Accuracy: the likely reason is how little the reduced rows train. The '
      'table has the steps and examples of each; 100 rounds at the paper’s P, '
      'Q and batch would be 3,200 steps and 16,384,000 examples. Further '
      'reasons, which these runs cannot tell apart: MNIST has a quarter of '
      'EMNIST’s images and is the easier set; group norm stands in for '
      'whatever norm layers the paper had; T and the learning rates are ours.'
    ),
  ]
  half = half_way_table(paper_rows)
  if len(half):
    blocks += [
      document.Paragraph(
        'The drop by clipping: a threshold of half the mean norm cuts most '
        'updates to half or less, the long ones of the first rounds most, so '
        'that CE-FedAvg needs at least twice the rounds to get as far. In a '
        'run in which the accuracy still rises that alone is a drop, which a '
        'longer run would not have. Where CE-FedAvg ends above FedAvg at half '
        'of the rounds, nothing more than this need be at work:'
      ),
      document.Table(half),
    ]
  noise = noise_table(paper_rows)
  if len(noise):
    blocks += [
      document.Paragraph(
        'The drop by noise: the noise on the mean update has the norm '
        'z c √d / P. A smaller cohort P makes it larger, at the same ε and '
        'P / N; and its sum over T rounds grows as √T, that of the updates, '
        'at most c long, as T: noise / signal is the quotient of the two sums, '
        'z √d / (P √T). Fewer clients and fewer rounds than the paper’s are '
        'the likely reason for a larger drop. A model that guesses has 10 %: '
        'where DP-FedAvg is there, the drop is all that there was to lose.'
      ),
      document.Table(noise),
    ]
  return blocks


def half_way_table(paper_rows: Sequence[rows.Row]) -> pd.DataFrame:
  """CE-FedAvg at the end beside FedAvg at half of the rounds.

  A threshold of half the mean norm halves most updates, so a short run loses
  by clipping because it gets half as far. Where CE-FedAvg ends above FedAvg at
  half of the rounds, this alone can be all of its drop.

  Args:
    paper_rows: The rows.

  Returns:
    Columns for a table; a row for each of the paper's with both algorithms.
  """
  lines = []
  seen = set()
  for row in rows.at_all_scales(paper_rows):
    plain, clipped = row.runs('fed_avg'), row.runs('ce_fed_avg')
    if not plain or not clipped or plain[0].name in seen:
      continue
    seen.add(plain[0].name)
    half = [_accuracy_at(run, run.num_rounds // 2) for run in plain]
    lines.append(
      {
        'row': row.name,
        'P': str(row.scale[0]),
        'T': str(row.scale[-1]),
        'FedAvg, half of the rounds (%)': _mean(half),
        'CE-FedAvg, all rounds (%)': _mean([r.final_accuracy for r in clipped]),
        'FedAvg, all rounds (%)': _mean([r.final_accuracy for r in plain]),
        'clipped (%)': _mean(
          [100 * r.clipped_fraction for r in clipped], '.0f'
        ),
      }
    )
  return pd.DataFrame(lines)


def noise_table(paper_rows: Sequence[rows.Row]) -> pd.DataFrame:
  """The noise on a round's mean beside the threshold, ours and the paper's.

  Args:
    paper_rows: The rows.

  Returns:
    Columns for a table; a row for each with a finished run of DP-FedAvg.
  """
  lines = []
  for row in rows.at_all_scales(paper_rows):
    for run in row.runs('dp_fed_avg')[:1]:
      ratio = noise_over_threshold(run)
      lines.append(
        {
          'row': row.name,
          'd': f'{run.num_parameters:,}',
          'z': f'{_multiplier(run):.3g}',
          'P': str(run.experiment['clients_per_round']),
          'T': str(run.num_rounds),
          'noise / c': f'{ratio:.0f}',
          'noise / c, with P = 80': (
            f'{noise_over_threshold(run, clients_per_round=80):.0f}'
          ),
          'noise / signal, over T': f'{ratio / math.sqrt(run.num_rounds):.1f}',
          'DP-FedAvg (%)': f'{row.accuracy("dp_fed_avg").value:.2f}',
          'DP drop, paper': f'{row.published.dp_drop:.2f}',
          'DP drop, ours': str(row.drop('dp_fed_avg') or tables.MISSING),
        }
      )
  return pd.DataFrame(lines)


def noise_over_threshold(
  run: results.Run, clients_per_round: int | None = None
) -> float:
  """The expected norm of the noise on the mean update, over c: z √d / P.

  Args:
    run: A private run.
    clients_per_round: P; the run's own by default.
  """
  cohort = clients_per_round or run.experiment['clients_per_round']
  return _multiplier(run) * math.sqrt(run.num_parameters) / cohort


def _multiplier(run: results.Run) -> float:
  return tables.privacy_number(run, 'noise_multiplier')


def _accuracy_at(run: results.Run, round_num: int) -> float:
  """The accuracy of the last evaluation up to a round, in percent."""
  evaluated = run.accuracy_by_round
  earlier = evaluated[evaluated['round_num'] <= round_num]
  return float(earlier['accuracy'].iloc[-1]) if len(earlier) else math.nan


def _mean(values: Sequence[float], spec: str = '.2f') -> str:
  finite = [value for value in values if math.isfinite(value)]
  if not finite:
    return tables.MISSING
  return format(sum(finite) / len(finite), spec)
