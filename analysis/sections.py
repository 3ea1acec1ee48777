"""What was run: the report's sections on the runs and the paper's tables."""

import pathlib
from collections.abc import Iterator, Sequence

import pandas as pd

from analysis import (
  document,
  figures,
  paper,
  results,
  style,
  tables,
  update_figures,
)

# What is said wherever exact figures of a private run's clients stand.
SIMULATION_NOTE = (
  "exact figures of the clients' updates, for simulation only: no part of the "
  'private release, and not covered by ε.'
)


def runs_section(
  runs: Sequence[results.Run],
  groups: Sequence[Sequence[results.Run]],
  left_out: Sequence[tuple[str, str]],
) -> list[document.Block]:
  """Every run, its setting, and what is missing or left out."""
  blocks: list[document.Block] = [
    document.Heading('Runs'),
    document.Paragraph(
      'Test accuracy is that of the last round that was evaluated; the best of '
      'any round stands beside it. The drop is in points below the FedAvg run '
      'of the same setting. ε is that of the rounds that were run, by the '
      "plan's accounting; where the sampler really gives another ε, that of "
      f'all planned rounds stands in brackets. “{tables.MISSING}” is what was '
      'not measured or does not apply.'
    ),
  ]
  titles = figures.panel_titles(groups)
  for title, group in zip(titles, groups, strict=True):
    blocks.append(document.Heading(title, 3))
    blocks.append(document.Paragraph(_setting_sentence(group[0])))
    table = tables.run_table(group)
    blocks.append(document.Table(tables.format_run_table(table)))
    blocks.extend(_run_table_notes(group))
    blocks.extend(
      document.Paragraph(f'{run.name}: {run.privacy["description"]}')
      for run in tables.ordered(group)
      if run.privacy and run.privacy.get('description')
    )
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


def _run_table_notes(
  group: Sequence[results.Run],
) -> list[document.Paragraph]:
  """What the table of a group cannot say in its cells."""
  notes = []
  if any(run.has_simulation_figures for run in group):
    notes.append(f'{tables.SIMULATION_MARK} {SIMULATION_NOTE}')
  if any(run.clips_models for run in group):
    notes.append(
      'Model clipping: c is a threshold on the norm of whole models, and '
      'clipped (%) the share of clipped models. The other thresholds are on '
      'updates.'
    )
  return [document.Paragraph(note) for note in notes]


def simulation_caption(runs: Sequence[results.Run]) -> str:
  """What is added to the caption of a figure of these runs' clients."""
  names = [run.name for run in runs if run.has_simulation_figures]
  return f' {", ".join(names)}: {SIMULATION_NOTE}' if names else ''


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
  if run.experiment.get('num_clients') is None and run.num_clients:
    values.insert(0, f'N = {run.num_clients}')
  if run.num_parameters:
    values.append(f'd = {run.num_parameters:,} parameters')
  summary = run.config.get('task', {}).get('partition')
  partition = f' Partition: {summary.rstrip(".")}.' if summary else ''
  return ', '.join(values) + '.' + partition


def accuracy_section(
  groups: Sequence[Sequence[results.Run]], output: pathlib.Path
) -> list[document.Block]:
  """Test accuracy by round."""
  blocks: list[document.Block] = [document.Heading('Accuracy by round')]
  tasks = list(dict.fromkeys(group[0].task for group in groups))
  for task in tasks:
    data = figures.accuracy_data([g for g in groups if g[0].task == task])
    if data.empty:
      blocks.append(
        document.Paragraph(f'{task}: no run has an evaluation yet.')
      )
      continue
    name = f'accuracy_{style.file_part(task)}.png'
    style.save(figures.draw_accuracy(data), output / name)
    blocks.append(document.Picture(name, f'Test accuracy by round on {task}.'))
  return blocks


def updates_section(
  runs: Sequence[results.Run],
  groups: Sequence[Sequence[results.Run]],
  output: pathlib.Path,
) -> list[document.Block]:
  """The paper's scatter of norms and angles."""
  blocks: list[document.Block] = [
    document.Heading('Norms and angles of the updates'),
    document.Paragraph(
      'Each blue dot is the update of one client: its norm, and its angle to '
      'the global update of the last round. The black dot is the averaged '
      'update, where it was recorded. The dashed line is the threshold c, also '
      'in the panels of FedAvg, which does not clip. t = 0 is the first round.'
    ),
  ]
  for subject, task, algorithm, data, compared, shown in _update_pictures(
    runs, groups
  ):
    title = f'{subject} on {task}, {algorithm}'
    name = f'updates_{style.file_part(title)}.png'
    drawing = update_figures.draw_updates(data, title, compared)
    style.save(drawing, output / name)
    blocks.append(
      document.Picture(
        name,
        f'Norm and angle of each update: {title}.' + simulation_caption(shown),
      )
    )
  missing = [run.name for run in runs if not run.updates]
  if missing:
    blocks.append(
      document.Paragraph(f'Not recorded for: {", ".join(missing)}.')
    )
  return blocks


def paper_section(
  groups: Sequence[Sequence[results.Run]],
) -> list[document.Block]:
  """The paper's tables with our figures beside its own."""
  blocks: list[document.Block] = [
    document.Heading("The paper's tables"),
    document.Paragraph(
      'Accuracies in percent, drops in points: of CE-FedAvg from FedAvg, and '
      'of DP-FedAvg from CE-FedAvg. The last column says where our setting '
      "departs from the paper's, whose value stands in brackets; the paper "
      'does not state its number of rounds or its learning rates.'
    ),
  ]
  blocks.append(document.Heading('Table 1', 3))
  blocks.append(document.Table(tables.table_1()))
  blocks.append(
    document.Paragraph(
      'Where FedAvg comes to rest on the quadratic example, whose minimiser is '
      'at 0. These are exact; `tff_clipping.theory.claims.table_1` says which '
      'learning rate each cell needs, which the paper does not.'
    )
  )
  for table in (2, 3, 4):
    rows, not_run = tables.published_table(table, groups)
    blocks.append(document.Heading(f'Table {table}', 3))
    if len(rows):
      blocks.append(document.Table(rows))
    if not_run:
      blocks.append(document.Paragraph(f'Not run: {"; ".join(not_run)}.'))
  return blocks


def _update_pictures(
  runs: Sequence[results.Run], groups: Sequence[Sequence[results.Run]]
) -> Iterator[
  tuple[str, str, str, pd.DataFrame, pd.DataFrame, Sequence[results.Run]]
]:
  """Subject, task, algorithm and data of each figure of updates.

  Then comes what sets the scales: figures of one model on one task, which are
  there to be compared, have the same; but with clipped models the averaged
  update can be as long as the model. Last, the runs that are shown.
  """
  by_algorithm: dict[tuple[str, str], list[results.Run]] = {}
  for run in tables.ordered([run for run in runs if run.updates]):
    key = (run.task, paper.algorithm_name(run))
    by_algorithm.setdefault(key, []).append(run)
  pictures = []
  for (task, algorithm), same in by_algorithm.items():
    same.sort(key=_figure_order)
    by_model: dict[str, list[results.Run]] = {}
    for run in same:
      by_model.setdefault(paper.model_name(run), []).append(run)
    if len(by_model) > 1:
      t = paper.FIGURE_ROUND
      data = update_figures.updates_by_model(same, groups, t)
      if len(data):
        pictures.append((f'Round t = {t}', task, algorithm, data, same))
    for model, shown in by_model.items():
      data = update_figures.updates_by_round(shown, groups)
      pictures.append((model, task, algorithm, data, shown))
  for subject, task, algorithm, data, shown in pictures:
    compared = pd.concat(
      [
        other_data
        for other_subject, other_task, _, other_data, other_runs in pictures
        if (other_subject, other_task) == (subject, task)
        and other_runs[0].clips_models == shown[0].clips_models
      ]
    )
    yield subject, task, algorithm, data, compared, shown


def _figure_order(run: results.Run) -> tuple[int, bool, str]:
  """Models in the paper's order, IID before non-IID."""
  return paper.model_rank(paper.model_name(run)), not run.is_iid, run.name
