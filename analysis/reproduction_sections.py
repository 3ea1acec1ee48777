"""The sections of docs/reproduction.md on the paper's tables and findings."""

import collections
from collections.abc import Sequence

import pandas as pd

from analysis import (
  document,
  norm_findings,
  paper,
  paper_findings,
  privacy_costs,
  results,
  rows,
  tables,
)

_Groups = Sequence[Sequence[results.Run]]


def introduction(
  runs: Sequence[results.Run], paper_rows: Sequence[rows.Row]
) -> list[document.Block]:
  """What was run, and how to run it again."""
  versions = collections.Counter(
    (run.config['versions'].get('tensorflow_federated', '?')) for run in runs
  )
  version = ', '.join(sorted(versions))
  return [
    document.Heading('Reproduction', 1),
    document.Paragraph(
      'The tables of the paper beside ours, from training runs on real data. '
      'This page is written by `python -m analysis.reproduction` from the '
      'files of the runs in `results/`, its verdicts too: whoever runs them '
      'again gets the page of their own figures.'
    ),
    document.BulletList(
      (
        f'{len(runs)} runs with TensorFlow Federated {version}, on 2 CPU '
        f'cores; their rounds took {_hours(runs):.1f} hours in all.',
        'N clients, of whom P take part in each of T rounds, with Q local '
        'steps each. FedAvg does not clip; CE-FedAvg clips updates to the '
        'threshold c, half of the mean norm in FedAvg; DP-FedAvg does too, and '
        'adds noise for (ε, δ)-differential privacy of clients, δ = 1e-5 '
        'unless stated.',
        'MNIST stands in for the EMNIST digits everywhere, also where a row is '
        'called by the paper’s name, such as “Table 3: MLP, EMNIST”: EMNIST '
        'was not at hand. Both were drawn from the same forms, and MNIST has a '
        'quarter of the images. Where N × 125 or N × 500 needs more images '
        'than there are, clients overlap; the summary of the split in each '
        '`config.json` says how much.',
        _scale_sentence(paper_rows),
        'The paper does not state its number of rounds T, nor its learning '
        'rates. Its appendix shows rounds up to t = 64 of the MLP and AlexNet '
        'and t = 32 of MobileNetV2 and ResNet-18, so that our rows of T = 20 '
        'and 40 are shorter than it. The rates were searched on FedAvg alone; '
        'the same value then serves all algorithms of a row.',
        'In the tables of the paper ± is the standard deviation over seeds. '
        'Everywhere else it is half of the 95 % interval of the mean: with '
        'several seeds that of Student’s t, which for two seeds is wide; with '
        'one seed the last three evaluations stand in for seeds, and where the '
        'accuracy still rises, that is in it. The choice of the test images is '
        'in it as if each run had its own, which is an upper bound: all have '
        'the same.',
      )
    ),
    document.Paragraph(
      'Each row can be repeated with the command beside it, from the root of '
      'the checkout. Its runs go to `runs/reproduction`; `--data_dir=DIR` '
      'takes data files that are there already (see docs/data.md). The command '
      'goes on where it was stopped, and runs what else has the beginning of '
      'its name. `make reproduce-smallest` repeats one row and compares.'
    ),
  ]


def summary_section(
  paper_rows: Sequence[rows.Row],
  findings: Sequence[paper_findings.Finding],
  concentration_verdicts: pd.DataFrame,
) -> list[document.Block]:
  """Which of the paper's findings our runs show, at a glance."""
  full = [
    f'{row.name}: FedAvg {row.accuracy()} % (paper '
    f'{row.published.fed_avg:.2f}); the drop by clipping '
    f'{row.drop("ce_fed_avg")} ({row.published.clipping_drop:.2f}); '
    f'the drop by noise {row.drop("dp_fed_avg")} '
    f'({row.published.dp_drop:.2f}). {row.drop("ce_fed_avg").num_seeds} seeds.'
    for row in paper_rows
    if row.drop('dp_fed_avg') is not None
    and paper.is_full_scale(row.groups[0], row.published)
  ]
  blocks: list[document.Block] = [document.Heading('In short')]
  if full:
    blocks += [
      document.Paragraph('At the paper’s scale, in points:'),
      document.BulletList(tuple(full)),
    ]
  return [
    *blocks,
    document.Paragraph(
      'The paper’s findings, and in how many comparisons of our rows each '
      'holds; the comparisons stand below, each with its scale. Those of the '
      'most rounds say the most about clipping: in a run that is cut short, '
      'the drop can be all of rounds lost. With one seed a verdict is a hint: '
      'seeds can differ by more than the error that one run shows. Were no '
      'difference real, up to one comparison in twenty would still be decided.'
    ),
    document.Table(
      paper_findings.summary_table(findings, concentration_verdicts)
    ),
  ]


def tables_section(paper_rows: Sequence[rows.Row]) -> list[document.Block]:
  """Tables 2, 3 and 4, the paper's beside ours."""
  blocks: list[document.Block] = [
    document.Heading("The paper's tables"),
    document.Paragraph(
      'Accuracies in percent. Drops in points: of CE-FedAvg from FedAvg, and '
      'of DP-FedAvg from CE-FedAvg. The accuracy is that of the last round; '
      'the paper speaks of the best of a run for Table 2 and does not say for '
      'Tables 3 and 4. ± is the standard deviation over n seeds; without it '
      'there is one.'
    ),
  ]
  for table in (3, 4, 2):
    of_table = [row for row in paper_rows if row.published.table == table]
    lines, absent = _table_lines(of_table)
    blocks.append(document.Heading(f'Table {table}', 3))
    if lines:
      blocks.append(document.Table(pd.DataFrame(lines)))
    if absent:
      blocks.append(document.Paragraph(f'Not run: {"; ".join(absent)}.'))
  smaller, _ = _table_lines([r for row in paper_rows for r in row.others])
  if smaller:
    blocks += [
      document.Heading('Once more, at other scales', 3),
      document.Paragraph(
        'For the findings below, which compare rows: a difference between two '
        'means little where P, Q, batch and T differ too.'
      ),
      document.Table(_one_table(smaller)),
    ]
  blocks.append(
    document.Paragraph(
      'P / N is 1/24, as in the paper. For Table 2 the paper does not state N, '
      'P, Q and the batch (Sec. 2.2); we take those of its Sec. 4. In Table 2, '
      'EMNIST has 500 examples a client without overlap, so N is 480 there and '
      '60 here, and P / N 1/6. '
      'AlexNet and ResNet-18 on CIFAR-10, IID, are in Tables 2 and 4, as they '
      'are in the paper; where both have the same scale, they share their '
      'runs. ε is recomputed for what was run: the noise is that which the N, '
      'P and T of the row need.'
    )
  )
  return blocks


def _table_lines(
  chosen: Sequence[rows.Row],
) -> tuple[list[dict[str, str]], list[str]]:
  """The lines of rows that were run, and the titles of the others."""
  lines, absent = [], []
  for row in chosen:
    table, _ = tables.published_table(row.published.table, row.groups)
    if len(table) == 0:
      absent.append(row.published.title)
    for line in table.to_dict('records'):
      line['data'] = paper.data_name(row.groups[0][0])
      line['repeat with'] = f'`{row.command}`'
      lines.append(line)
  return lines, absent


def _one_table(lines: Sequence[dict[str, str]]) -> pd.DataFrame:
  """Lines of several of the paper's tables, which have other columns."""
  columns = max(lines, key=len)
  return pd.DataFrame(lines, columns=columns).fillna(tables.MISSING)


def findings_section(
  paper_rows: Sequence[rows.Row],
  findings: Sequence[paper_findings.Finding],
  concentration_verdicts: pd.DataFrame,
) -> list[document.Block]:
  """Which findings hold, with the figures that say so."""
  blocks: list[document.Block] = [
    document.Heading("The paper's findings"),
    document.Paragraph(
      'A comparison is decided where 0 is outside of the 95 % interval of the '
      'difference of two drops, and is left open where it is not. It is made '
      'at each P, Q, batch and T at which both rows were run. “Seems” is what '
      'one seed decides. Near chance, which is '
      f'{paper_findings.CHANCE:.0f} %, is a model below '
      f'{2 * paper_findings.CHANCE:.0f} %, whose drop is all that there was to '
      'lose or nearly, or a row whose FedAvg is below '
      f'{3 * paper_findings.CHANCE:.0f} %, which has little to lose. MNIST '
      'stands in for EMNIST; what is reduced is in the tables above. With Q = '
      '16 and batches of 4, a client takes 64 examples a round, an eighth of a '
      'pass over 500 of them, where the paper’s 2,048 are four passes: clients '
      'drift apart less, so that the reduced rows have less of what the paper '
      'sees in non-IID data. Runs of a row with T = 20 and T = 100 can begin '
      'with the same rounds.'
    ),
  ]
  for number, finding in enumerate(findings, start=1):
    blocks.append(document.Heading(f'{number}. {finding.claim}', 3))
    blocks.append(document.Paragraph(finding.verdict))
    if finding.comparisons:
      blocks.append(document.Table(finding.table()))
    if finding.not_tested:
      blocks.append(
        document.Paragraph(
          f'Without a run of both: {"; ".join(finding.not_tested)}.'
        )
      )
  blocks.append(
    document.Heading(f'{len(findings) + 1}. {paper_findings.CONCENTRATION}', 3)
  )
  if len(concentration_verdicts) == 0:
    blocks.append(document.Paragraph('Not tested: too few rows.'))
  else:
    blocks += [
      document.Paragraph(
        'The rank correlation of the two over the rows, each the mean of its '
        'seeds, at each scale with enough of them. The interval is a bootstrap '
        'over the rows, p is of a permutation test, and both take the rows to '
        'be independent. It is decided where p is at most 0.05.'
      ),
      document.Table(concentration_verdicts),
    ]
  table = norm_findings.concentration_table(paper_rows)
  if len(table):
    blocks += [
      document.Paragraph(
        'What the paper sees in its figures of norms at t = 16, in our pairs '
        'of rows of Table 2 that have one scale and differ in that alone, in '
        'the same round of FedAvg. The paper speaks of the variance; the norms '
        'themselves differ from model to model, and c is a share of their '
        'mean, so that what is cut depends on the spread over the mean:'
      ),
      document.Table(norm_findings.spread_table(paper_rows)),
      document.Paragraph(
        'The rows by the spread of their update norms, the mean over the '
        'rounds of FedAvg; MNIST stands in for EMNIST:'
      ),
      document.Table(table),
    ]
  return blocks


def privacy_section(
  paper_rows: Sequence[rows.Row], groups: _Groups
) -> list[document.Block]:
  """What ε each private run has, under three ways to draw cohorts."""
  blocks: list[document.Block] = [
    document.Heading('What ε the runs have'),
    document.Paragraph(
      'The paper draws a fixed P of N clients, and its Theorem 2 rephrases the '
      'accounting of Abadi et al., which is of Poisson sampling; we take its '
      'experiments to use it. Our runs of DP-FedAvg draw Poisson cohorts, so '
      'that their ε holds. Beside it: what the same noise gives when cohorts '
      'are a fixed P of N, as in the paper, whose own accounting says the ε of '
      'the Poisson column; and the noise that a fixed P would need for the '
      'target. z is the noise on the sum over c. What is promised is not the '
      'same: Poisson sampling hides that a client is added or removed, a fixed '
      'P that one is replaced by another, which is more, and costs more by '
      'itself. The ε of the fixed size is the smaller of what the RDP and the '
      'PLD accountant give. MNIST stands in for EMNIST.'
    ),
  ]
  costs = privacy_costs.cost_table(paper_rows, groups)
  if len(costs) == 0:
    return [*blocks, document.Paragraph('No run of DP-FedAvg is finished.')]
  blocks.append(document.Table(costs))
  of_variants = privacy_costs.variant_groups(groups)
  variants = privacy_costs.variant_table(of_variants)
  if len(variants):
    seeds = sorted({group[0].seed or 0 for group in of_variants})
    blocks += [
      document.Paragraph(
        'What DP-FedAvg costs when its noise is calibrated for each way: the '
        'MLP of Table 3 (MNIST for EMNIST), at the same target. The accountant '
        'is RDP; by PLD a fixed P needs less noise (above), and would cost '
        'less than here. Repeat with `'
        + rows.reproduce_command(
          'table3_mlp_emnist_noniid_ce table3_mlp_emnist_noniid_dp', seeds
        )
        + '`.'
      ),
      document.Table(variants),
    ]
  return blocks


def _hours(runs: Sequence[results.Run]) -> float:
  """How long all rounds of all runs took together, in hours."""
  return sum(float(run.metrics['round_seconds'].sum()) for run in runs) / 3600


def _scale_sentence(paper_rows: Sequence[rows.Row]) -> str:
  """Which rows have the paper's N, P, Q, batch and client size."""
  full, reduced = [], []
  for row in paper_rows:
    for group in row.groups[:1]:
      whole = paper.is_full_scale(group, row.published)
      (full if whole else reduced).append(row.name)
  sentence = f'At the paper’s N, P, Q and batch: {"; ".join(full) or "no row"}.'
  if reduced:
    sentence += (
      f' At a reduced scale, which the last columns of the tables state: '
      f'{len(reduced)} of {len(full) + len(reduced)} rows. These trained for '
      'minutes on 2 cores; their accuracies are not meant to reach the '
      'paper’s. What they can show is, at most, which of two drops at one '
      'scale is larger.'
    )
  return sentence
