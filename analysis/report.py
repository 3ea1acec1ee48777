"""Writes one report over training runs: Markdown with PNGs, and one HTML file.

python -m analysis.report RUN... --output=DIR
"""

import os
import pathlib
import re
import sys
from collections.abc import Sequence

from absl import app, flags

from analysis import (
  concentration,
  document,
  figures,
  paper,
  results,
  style,
  tables,
  update_figures,
)

_OUTPUT = flags.DEFINE_string(
  'output', None, 'Folder for report.md, report.html and the figures.'
)

# A terminal is narrower than a page.
_SHORT_HEADINGS = {
  'final accuracy (%)': 'accuracy %',
  'best (%)': 'best %',
  'drop (points)': 'drop',
  'clipped (%)': 'clipped %',
  'noise multiplier': 'noise mult.',
}

RunLike = str | os.PathLike[str] | results.Run


def write_report(
  run_dirs: Sequence[RunLike], output_dir: str | os.PathLike[str]
) -> pathlib.Path:
  """Reads runs and writes `report.md`, `report.html` and the figures.

  The same runs give the same bytes. Folders that are no runs are named in the
  report and left out. Runs whose settings differ (other data, other seed) stand
  in tables of their own.

  Args:
    run_dirs: Run folders, or runs that were read already.
    output_dir: Where to write; made if it is not there.

  Returns:
    The path of `report.md`.

  Raises:
    ValueError: None of the folders is a run.
  """
  runs, left_out = results.read_runs(run_dirs)
  if not runs:
    reasons = '; '.join(f'{name}: {reason}' for name, reason in left_out)
    raise ValueError(
      f'`run_dirs` must hold at least one run, found none ({reasons or "empty"}'
      ').'
    )
  output = pathlib.Path(output_dir)
  output.mkdir(parents=True, exist_ok=True)
  groups = results.group_by_setting(runs)
  blocks: list[document.Block] = [
    document.Heading('Clipping in federated learning: report', 1)
  ]
  blocks += _runs_section(runs, groups, left_out)
  blocks += _accuracy_section(groups, output)
  blocks += _updates_section(runs, groups, output)
  blocks += _paper_section(groups)
  blocks += _concentration_section(groups, output)
  blocks += _epsilon_section(groups, output)
  report = output / 'report.md'
  report.write_text(document.to_markdown(blocks), encoding='utf-8')
  (output / 'report.html').write_text(
    document.to_html(blocks, output), encoding='utf-8'
  )
  return report


def summary_table(runs: Sequence[RunLike]) -> str:
  """The table of runs as text for a terminal.

  Args:
    runs: Run folders, or runs that were read already.

  Returns:
    One table for each group of comparable runs, then a line for each folder
    that was left out and for each thing that is missing.
  """
  read, left_out = results.read_runs(runs)
  groups = results.group_by_setting(read)
  parts = []
  titles = figures.panel_titles(groups)
  for title, group in zip(titles, groups, strict=True):
    table = tables.format_run_table(tables.run_table(group))
    table = table.drop(columns=['model']).rename(columns=_SHORT_HEADINGS)
    empty = [
      column
      for column in table.columns
      if (table[column] == tables.MISSING).all()
    ]
    text = document.to_text(table.drop(columns=empty))
    parts.append(f'{title}\n{text}')
  parts += [f'{run.name}: {note}' for run in read for note in run.notes]
  parts += [f'left out: {name}: {reason}' for name, reason in left_out]
  return '\n\n'.join(parts)


def main(argv: Sequence[str]) -> None:
  if len(argv) < 2:
    raise app.UsageError('Give at least one run folder.')
  if not _OUTPUT.value:
    raise app.UsageError('Give --output=DIR, the folder for the report.')
  try:
    path = write_report(argv[1:], _OUTPUT.value)
  except (ValueError, OSError) as error:
    print(f'error: {error}', file=sys.stderr)
    sys.exit(2)
  print(summary_table(argv[1:]))
  print(f'\nReport: {path}\n        {path.with_suffix(".html")}')


def _runs_section(
  runs: Sequence[results.Run],
  groups: Sequence[Sequence[results.Run]],
  left_out: Sequence[tuple[str, str]],
) -> list[document.Block]:
  blocks: list[document.Block] = [
    document.Heading('Runs'),
    document.Paragraph(
      'Test accuracy is that of the last round that was evaluated; the best of '
      'any round stands beside it. The drop is in points below the FedAvg run '
      'of the same setting. ε is that of the rounds that were run, by the '
      "plan's accounting; where the sampler really gives another ε, it stands "
      f'in brackets. “{tables.MISSING}” is what was not measured or does not '
      'apply.'
    ),
  ]
  titles = figures.panel_titles(groups)
  for title, group in zip(titles, groups, strict=True):
    blocks.append(document.Heading(title, 3))
    blocks.append(document.Paragraph(_setting_sentence(group[0])))
    table = tables.run_table(group)
    blocks.append(document.Table(tables.format_run_table(table)))
    reasons = {
      tables.find_baseline(run, group)[1]
      for run in group
      if run.algorithm != 'fed_avg'
    } - {''}
    if reasons:
      blocks.append(
        document.Paragraph(f'No drop is given: {"; ".join(sorted(reasons))}.')
      )
  if len(groups) > 1:
    blocks.append(
      document.Paragraph(
        'These are separate tables because runs are compared only when their '
        'data, model, setting and seed agree:'
      )
    )
    blocks.append(
      document.BulletList(
        tuple(
          f'{group[0].name} and {groups[0][0].name}: '
          + ', '.join(results.differing_settings(group[0], groups[0][0]))
          for group in groups[1:]
        )
      )
    )
  notes = [f'{run.name}: {note}' for run in runs for note in run.notes]
  notes += [
    f'{run.name}: {run.rounds_done} of {run.num_rounds} rounds; it is shown, '
    'but not compared'
    for run in runs
    if not run.is_complete
  ]
  notes += [f'{name}: left out: {reason}' for name, reason in left_out]
  if notes:
    blocks.append(document.Heading('Missing or damaged', 3))
    blocks.append(document.BulletList(tuple(notes)))
  return blocks


def _setting_sentence(run: results.Run) -> str:
  """The setting that the runs of a group share."""
  labels = (
    ('num_clients', 'N'),
    ('clients_per_round', 'P'),
    ('local_steps', 'Q'),
    ('batch_size', 'batch'),
    ('num_rounds', 'T'),
    ('client_learning_rate', 'η_l'),
    ('server_learning_rate', 'η_g'),
    ('seed', 'seed'),
  )
  values = [
    f'{label} = {run.experiment[key]}'
    for key, label in labels
    if run.experiment.get(key) is not None
  ]
  if run.num_parameters:
    values.append(f'd = {run.num_parameters:,} parameters')
  return ', '.join(values) + '.'


def _accuracy_section(
  groups: Sequence[Sequence[results.Run]], output: pathlib.Path
) -> list[document.Block]:
  blocks: list[document.Block] = [document.Heading('Accuracy by round')]
  tasks = list(dict.fromkeys(group[0].task for group in groups))
  for task in tasks:
    data = figures.accuracy_data([g for g in groups if g[0].task == task])
    if data.empty:
      blocks.append(
        document.Paragraph(f'{task}: no run has an evaluation yet.')
      )
      continue
    name = f'accuracy_{_file_part(task)}.png'
    style.save(figures.draw_accuracy(data), output / name)
    blocks.append(document.Picture(name, f'Test accuracy by round on {task}.'))
  return blocks


def _updates_section(
  runs: Sequence[results.Run],
  groups: Sequence[Sequence[results.Run]],
  output: pathlib.Path,
) -> list[document.Block]:
  blocks: list[document.Block] = [
    document.Heading('Norms and angles of the updates'),
    document.Paragraph(
      'Each blue dot is the update of one client: its norm, and its angle to '
      'the global update of the last round. The black dot is the averaged '
      'update, where it was recorded. The dashed line is the threshold c, also '
      'in the panels of FedAvg, which does not clip. t = 0 is the first round.'
    ),
  ]
  with_updates = [run for run in runs if run.updates]
  by_algorithm: dict[tuple[str, str], list[results.Run]] = {}
  for run in tables.ordered(with_updates):
    key = (run.task, paper.algorithm_name(run))
    by_algorithm.setdefault(key, []).append(run)
  for (task, algorithm), same in by_algorithm.items():
    by_model: dict[str, list[results.Run]] = {}
    for run in sorted(same, key=_figure_order):
      by_model.setdefault(paper.model_name(run), []).append(run)
    pictures = [
      (model, update_figures.updates_by_round(shown, groups))
      for model, shown in by_model.items()
    ]
    if len(by_model) > 1:
      t = paper.FIGURE_ROUND
      at_round = update_figures.updates_by_model(same, groups, t)
      if len(at_round):
        pictures.insert(0, (f'Round t = {t}', at_round))
    for subject, data in pictures:
      title = f'{subject} on {task}, {algorithm}'
      name = f'updates_{_file_part(title)}.png'
      style.save(update_figures.draw_updates(data, title), output / name)
      blocks.append(
        document.Picture(name, f'Norm and angle of each update: {title}.')
      )
  missing = [run.name for run in runs if not run.updates]
  if missing:
    blocks.append(
      document.Paragraph(f'Not recorded for: {", ".join(missing)}.')
    )
  return blocks


def _paper_section(
  groups: Sequence[Sequence[results.Run]],
) -> list[document.Block]:
  blocks: list[document.Block] = [
    document.Heading("The paper's tables"),
    document.Paragraph(
      'Accuracies in percent, drops in points: of CE-FedAvg from FedAvg, and '
      'of DP-FedAvg from CE-FedAvg. The last column says where our setting '
      "departs from the paper's, whose value stands in brackets; the paper "
      'does not state its number of rounds or its learning rates.'
    ),
  ]
  for table in (2, 3, 4):
    rows, not_run = tables.published_table(table, groups)
    blocks.append(document.Heading(f'Table {table}', 3))
    if len(rows):
      blocks.append(document.Table(rows))
    if not_run:
      blocks.append(document.Paragraph(f'Not run: {"; ".join(not_run)}.'))
  return blocks


def _concentration_section(
  groups: Sequence[Sequence[results.Run]], output: pathlib.Path
) -> list[document.Block]:
  heading = document.Heading('Concentration of norms and the drop by clipping')
  pairs = concentration.pairs(groups)
  if len(pairs) < concentration.MIN_PAIRS:
    return [
      heading,
      document.Paragraph(
        f'Not shown: it needs at least {concentration.MIN_PAIRS} pairs of a '
        f'FedAvg and a CE-FedAvg run, found {len(pairs)}.'
      ),
    ]
  try:
    text = str(
      concentration.rank_correlation(pairs['relative_spread'], pairs['drop'])
    )
  except ValueError as error:
    text = f'No rank correlation: {error}'
  name = 'concentration.png'
  style.save(figures.draw_concentration(pairs, text), output / name)
  return [
    heading,
    document.Paragraph(
      f'{text}. The interval is a percentile bootstrap over the pairs; with '
      'few pairs it is wide, and it takes the pairs to be independent.'
    ),
    document.Picture(
      name, 'Spread of the update norms of FedAvg against the accuracy lost.'
    ),
  ]


def _epsilon_section(
  groups: Sequence[Sequence[results.Run]], output: pathlib.Path
) -> list[document.Block]:
  blocks: list[document.Block] = [document.Heading('Accuracy by ε')]
  titles = figures.panel_titles(groups)
  for title, group in zip(titles, groups, strict=True):
    data = figures.epsilon_data(group)
    if data['epsilon'].nunique() < 2:
      continue
    references = {
      paper.algorithm_name(run): run.final_accuracy
      for run in tables.ordered(group)
      if run.algorithm in ('fed_avg', 'ce_fed_avg') and run.is_complete
    }
    name = f'epsilon_{_file_part(title)}.png'
    style.save(figures.draw_epsilon(data, references, title), output / name)
    blocks.append(
      document.Picture(name, f'Final accuracy by privacy budget: {title}.')
    )
  if len(blocks) == 1:
    blocks.append(
      document.Paragraph(
        'Not shown: it needs finished private runs of one setting at two or '
        'more values of ε.'
      )
    )
  return blocks


def _figure_order(run: results.Run) -> tuple[int, bool, str]:
  """Models in the paper's order, IID before non-IID."""
  return paper.model_rank(paper.model_name(run)), not run.is_iid, run.name


def _file_part(text: str) -> str:
  """Text as a part of a file name."""
  return '_'.join(re.findall('[a-z0-9]+', text.lower()))


if __name__ == '__main__':
  app.run(main)
