"""What fills templates/report.md; draws its figures."""

import pathlib
from typing import Any

import pandas as pd

from analysis import (
  advice,
  audit_tables,
  bound,
  evidence,
  figures,
  frame,
  margins,
  pages,
  pictures,
  run_tables,
  style,
  tables,
  titles,
)


def report_values(frames: frame.Frames, output: pathlib.Path) -> dict[str, Any]:
  """Returns the values by name, and writes the figures.

  Args:
    frames: At least one run.
    output: The folder of the report.
  """
  runs, groups = frame.by_setting(frames.runs), frames.groups()
  names = titles.setting_titles([group.iloc[0] for group in groups])
  titled = list(zip(names, groups, strict=True))
  evaluated = runs['final_accuracy'].notna()
  recorded = runs.index.isin(frames.updates.get('run', []))
  paper_tables = _paper_tables(evidence.paper_lines(frames))
  concentration = _concentration_values(runs, output)
  epsilon = _epsilon_pictures(titled, output)
  audits = audit_tables.attack_table(frames)
  # A threshold can be that of its seed.
  by_seed = [
    part for group in groups for _, part in group.groupby('setting', sort=False)
  ]
  of_seeds = titles.setting_titles([part.iloc[0] for part in by_seed])
  bounds = [
    _bound_values(frames, *pair, output)
    for pair in zip(of_seeds, by_seed, strict=True)
  ]
  advices = [_advice_values(frames, *pair) for pair in titled]
  bounds, advices = list(filter(None, bounds)), list(filter(None, advices))
  is_bound = runs['shown_norm'].notna() & recorded
  return {
    'groups': [_group_values(title, group) for title, group in titled],
    'differences': pages.bullets(
      [
        f'{group.index[0]} and {groups[0].index[0]}: '
        + ', '.join(frame.differing_settings(group.iloc[0], groups[0].iloc[0]))
        for group in groups[1:]
      ]
    ),
    'notes': pages.bullets(notes(frames)),
    'accuracy': pages.pictures(
      pictures.draw_accuracies(frames, runs[evaluated], output, same_scale=True)
    ),
    'has_seeds': any(len(set(group['setting'])) > 1 for group in groups),
    'not_evaluated': ', '.join(runs.index[~evaluated]),
    'updates': pages.pictures(
      pictures.draw_updates(frames, runs[recorded], output)
    ),
    'has_thresholds': is_bound.any(),
    'is_fed_avg_bound': (is_bound & (runs['clips'] == 'nothing')).any(),
    'not_recorded': ', '.join(runs.index[~recorded]),
    'has_paper_tables': bool(paper_tables),
    'paper_tables': paper_tables,
    **concentration,
    'epsilon': epsilon,
    'audits': audits,
    'has_bounds': bool(bounds),
    'bounds': bounds,
    'has_advice': bool(advices),
    'advice': advices,
    'not_shown': pages.bullets(
      [
        f'{section}: it needs {need}.'
        for section, need, shown in (
          (
            "The paper's tables",
            'runs with the model, data and split of one of their rows',
            paper_tables,
          ),
          (
            'Concentration of norms and the drop by clipping',
            f'at least {margins.MIN_PAIRS} pairs of a FedAvg and a CE-FedAvg '
            'run that differ',
            concentration['correlation'],
          ),
          (
            'Accuracy by ε',
            'finished private runs of one setting at two or more values of ε',
            epsilon,
          ),
          ('Audits', 'a run with `--audit_canaries`', len(audits)),
          (
            "The bound's terms by round",
            'runs with recorded updates and a threshold',
            bounds,
          ),
          (
            'Advice',
            'a run with recorded updates, and with no aggregator of your own',
            advices,
          ),
        )
        if not shown
      ]
    ),
  }


def notes(frames: frame.Frames) -> list[str]:
  """What is missing, damaged or left out, a sentence each."""
  runs = frames.runs
  return [
    *(f'{name}: {note}' for name, own in runs['notes'].items() for note in own),
    *(
      f'{name}: {run["rounds_done"]} of {run["num_rounds"]} rounds; it is '
      'shown, but not compared'
      for name, run in runs[~runs['is_complete']].iterrows()
    ),
    *(f'{name}: left out: {reason}' for name, reason in frames.left_out),
  ]


def _group_values(title: str, group: pd.DataFrame) -> dict[str, Any]:
  described = group['privacy_description'].dropna()
  return {
    'title': title,
    'setting': run_tables.setting_sentence(group),
    'table': run_tables.run_table(group),
    'mark_notes': '\n\n'.join(run_tables.mark_notes(group)),
    'clips_models': (group['clips'] == 'models').any(),
    'descriptions': '\n\n'.join(f'{n}: {d}' for n, d in described.items()),
    'no_drop': '; '.join(_no_drops(group)),
  }


def _no_drops(group: pd.DataFrame) -> list[str]:
  """Which runs are not compared with FedAvg, by the reason why."""
  by_reason = group[group['no_drop'] != ''].groupby('no_drop')
  return [
    f'{", ".join(frame.ordered(runs).index)} ({reason})'
    for reason, runs in by_reason
  ]


def _paper_tables(lines: pd.DataFrame) -> list[dict[str, Any]]:
  """The paper's tables that runs stand for a row of."""
  if lines.empty:
    return []
  values = []
  numbers = lines['row'].map(lambda row: evidence.published(row).table)
  for number, own in lines.groupby(numbers):
    reduced = [evidence.reductions(line) for _, line in own.iterrows()]
    rows = tables.published_table(own).assign(**{'reduced (paper)': reduced})
    values.append({'number': number, 'rows': rows})
  return values


def _concentration_values(
  runs: pd.DataFrame, output: pathlib.Path
) -> dict[str, str]:
  clipped = runs[
    (runs['algorithm'] == 'ce_fed_avg')
    & ~runs['has_own_aggregator']
    & runs['drop'].notna()
  ]
  spread = clipped['fed_avg_run'].map(runs['relative_spread'])
  pairs = clipped.assign(relative_spread=spread)[spread.notna()]
  try:
    correlation = str(
      margins.rank_correlation(pairs['relative_spread'], pairs['drop'])
    )
  except ValueError:
    return {'correlation': '', 'concentration': ''}
  name = 'concentration.png'
  style.save(figures.draw_concentration(pairs, correlation), output / name)
  caption = 'Spread of the update norms of FedAvg against the accuracy lost.'
  return {
    'correlation': correlation,
    'concentration': pages.pictures([(name, caption)]),
  }


def _epsilon_pictures(
  titled: list[tuple[str, pd.DataFrame]], output: pathlib.Path
) -> str:
  drawn = []
  for title, group in titled:
    data = figures.epsilon_data(group)
    if data['epsilon'].nunique() < 2:
      continue
    name = f'epsilon_{style.file_part(title)}.png'
    drawing = figures.draw_epsilon(data, figures.references(group), title)
    style.save(drawing, output / name)
    caption = f'Final accuracy by privacy budget: {title}.'
    drawn.append((name, caption))
  return pages.pictures(drawn)


def _bound_values(
  frames: frame.Frames, title: str, group: pd.DataFrame, output: pathlib.Path
) -> dict[str, Any]:
  data = bound.deviation_data(frames, group)
  if data.empty:
    return {}
  caption = run_tables.simulation_caption(group)
  name = f'deviation_{style.file_part(title)}.png'
  style.save(bound.draw_deviation(data, title), output / name)
  values = {
    'deviation': pages.pictures(
      [(name, f'Clipping and noise by round: {title}.{caption}')]
    ),
    'only_between': data['within_clients'].isna().all(),
    'terms': '',
    'not_estimated': '',
    'broken': '',
  }
  terms = bound.term_data(frames, group)
  if len(terms):
    name = f'bound_{style.file_part(title)}.png'
    style.save(bound.draw_terms(terms, title), output / name)
    absent = ~group['has_constants'] & (group['clips'] != 'models')
    absent &= group.index.isin(frames.updates['run'])
    values |= {
      'terms': pages.pictures(
        [(name, f'The terms of Theorem 1 by round: {title}.{caption}')]
      ),
      'not_estimated': ', '.join(frame.ordered(group[absent]).index),
      'broken': pages.bullets(bound.broken_conditions(group)),
    }
  return values


def _advice_values(
  frames: frame.Frames, title: str, group: pd.DataFrame
) -> dict[str, Any]:
  table = advice.advise(frames, group)
  if table.empty:
    return {}
  source = advice.find_source(frames, group)
  usable = table.loc[table['averaged_noise'] <= 1.0, 'epsilon']
  clips = (group['clips'] == 'updates') & ~group['has_own_aggregator']
  used = group.loc[clips, 'clipping_norm'].dropna()
  exact = group.at[source, 'has_simulation_figures']
  return {
    'title': title,
    'source': source,
    'table': advice.format_advice(table),
    'plan': advice.describe_setting(frames, group),
    'simulation_note': run_tables.SIMULATION_NOTE if exact else '',
    'used': ', '.join(f'{norm:.4g}' for norm in sorted(set(used))),
    'least_epsilon': f'{usable.iloc[0]:g}' if len(usable) else '',
  }
