"""Writes one report over training runs: Markdown with PNGs, and one HTML file.

Command: `python -m analysis.report RUN... --output=DIR`. A run is a folder of
`tasks.train`, or of a program of one's own with metrics.csv. A section without
runs to show is left out.
"""

import collections
import dataclasses
import datetime
import os
import pathlib
import re
import shlex
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pandas as pd
from absl import app, flags

from analysis import figures, markup, names, stats
from analysis.runs import Metric, Run
from tff_clipping.privacy.ledger import spending

_OUTPUT = flags.DEFINE_string(
  'output', None, 'Folder for report.md, report.html and the figures.'
)

_HEADING = '# Clipping in federated learning: report\n'
# A figure in `report.md`, by the name of its file.
_FIGURE = re.compile(r'^!\[.*\]\(([\w.-]+\.png)\)$', re.MULTILINE)
# Dots an inch of figures: a phone has two or three in the place of one.
_DPI = 160
_WIDTH = 100
# How many results are told one by one in a sentence.
_MAX_TOLD = 6

_SIMULATION_NOTE = (
  "exact figures of the clients' updates, for simulation only: no part of the "
  'private release, and not covered by ε.'
)
_EXACT_NOTE = (
  'exact figures of the same clients, which no ε covers. Do not publish this '
  'report as a whole.'
)
_RESULT_NOTE = (
  'Figures are means over seeds ({} a row). ± is half of the 95 % interval of '
  'the mean by Student’s t, from three seeds on. Each run is compared with the '
  'FedAvg run of the same setting and seed, and with no other. ε is for one '
  'run alone, after the rounds that were run; after all that were planned, if '
  'it has diverged.'
)
# What several runs of a label can share, by the seed of it.
_SHARED_NOTES = {
  'model_seed': (
    'The seeds of {} share their initial model: ± is without what another '
    'initial model would change.'
  ),
  'seed': (
    'Runs of {} share their split and their shuffling, and differ in the '
    'initial model: ± is without what another split would change.'
  ),
}
# What a sentence says of a private run, by the word for its guarantee.
_PROMISES = {
  'holds': 'ε = {}, and the guarantee holds',
  'no': 'ε = {} by the plan, no guarantee as it was run',
  'not known': 'nothing is known of its guarantee',
  'simulated': 'a simulation of the noise of other cohorts: no guarantee',
}
_BAND_NOTE = (
  'Lines are means over the seeds of a setting, bands the range of the seeds. '
  'Each figure has axes of its own.'
)
_SCATTER_NOTE = (
  'Of one seed. A blue dot is the update of one client: its norm, and its '
  'angle to the global update of the last round. The black dot is the average '
  'that the server takes its step with: clipped in CE-FedAvg, and in DP-FedAvg '
  'with the noise, which can make it longer than every client’s update. The '
  'dashed line is c; where a run does not clip, the c that all others of its '
  'setting share. t = 0 is the first round.'
)
_AUDIT_NOTE = (
  'An audited run has canaries among its clients: it is no private release. “ε '
  'at least” is proved, with the confidence stated; “if Gaussian” only for a '
  'Gaussian mechanism, as DP-FedAvg is; the estimate is no bound. True '
  'positives are the canaries in the run that score above 99 % of those held '
  'out, beside the most that the plan allows. docs/audit.md says more.'
)
_AUDIT_COLUMNS = {
  'run': ('run', ''),
  'canaries': ('num_canaries_in', ''),
  'held out': ('num_canaries_out', ''),
  'ε claimed': ('claimed_epsilon', stats.at_most),
  'attack on': ('attack', ''),
  'ε at least': ('epsilon_lower_bound', stats.at_least),
  'ε at least, if Gaussian': ('gaussian_epsilon_lower_bound', stats.at_least),
  'ε, an estimate': ('epsilon_estimate', '.2f'),
  'true positives': ('true_positive_rate', '.1%'),
  'allowed': ('allowed_true_positive_rate', '.1%'),
  'confidence': ('confidence', lambda it: f'{stats.at_least(100 * it)}%'),
  'refuted': ('is_refuted', ''),
}
_SUPERSCRIPTS = str.maketrans('-0123456789', '⁻⁰¹²³⁴⁵⁶⁷⁸⁹')
_MODEL_CLIPPING_NOTE = (
  'Model clipping: c is a threshold on the norm of whole models, and clipped '
  '(%) the share of clipped models. The other thresholds are on updates.'
)


def write_report(
  found: stats.Runs,
  output_dir: str | os.PathLike[str],
  *,
  made_by: str = '',
) -> pathlib.Path:
  """Writes `report.md`, `report.html` and the figures.

  The same runs give the same bytes. Folders that are no runs are named in the
  report and left out.

  Args:
    found: The runs.
    output_dir: Where to write; made if it is not there.
    made_by: By what and when, in a sentence for the foot; empty for nothing.

  Returns:
    The path of `report.md`.

  Raises:
    ValueError: There is no run, or a report.md or report.html of somebody else.
  """
  if found.table.empty:
    reasons = '; '.join(f'{name}: {reason}' for name, reason in found.left_out)
    raise ValueError(
      f'A report is on folders of runs, found none ({reasons or "empty"}).'
    )
  output = pathlib.Path(output_dir)
  output.mkdir(parents=True, exist_ok=True)
  path = output / 'report.md'
  earlier = _figures_of(path)
  if earlier is None:
    raise ValueError(
      f'`output` must be a new folder or that of a report, found {path} or its '
      'HTML, which is none of ours.'
    )
  table = _named(found.table)
  pictures = _with_own_files(
    {
      'By round': (_BAND_NOTE, figures.curves(table)),
      'By ε': ('', figures.by_quantity(table, 'epsilon')),
      'By clipping norm': ('', figures.by_quantity(table, 'clipping_norm')),
      'Norms and angles of the updates': (
        _SCATTER_NOTE,
        figures.scatters(table),
      ),
    }
  )
  sections = {
    '': _results(table),
    'Privacy': _privacy(table),
    **{title: _pictures(*shown) for title, shown in pictures.items()},
    'Run by run': _run_by_run(table),
    'Audits': _audits(table),
    'What is missing': '\n'.join(
      f'- {markup.plain(note)}' for note in _notes(table, found.left_out)
    ),
    'How this was made': markup.plain(f'{made_by} {_versions(table)}'.strip()),
  }
  for _, drawn in pictures.values():
    for drawing in drawn:
      figures.save(drawing, output / drawing.name, _DPI)
  text = _HEADING + ''.join(
    (f'\n## {heading}\n' if heading else '') + f'\n{body}\n'
    for heading, body in sections.items()
    if body
  )
  path.write_text(text, encoding='utf-8')
  # Figures of other runs would lie beside it, with exact figures of clients.
  for name in earlier - (_figures_of(path) or set()):
    (output / name).unlink(missing_ok=True)
  html = markup.to_html(text, output)
  path.with_suffix('.html').write_text(html, encoding='utf-8')
  return path


def summary(found: stats.Runs) -> str:
  """What the runs came to, as text for a terminal.

  It is the sentence and the table of results, what private runs spent together,
  and a line for each folder that was left out and each thing that is missing.
  """
  table = _named(found.table)
  parts = []
  for metric, own in _by_metric(table):
    parts.append(textwrap.fill(_result_sentence(metric, own), _WIDTH))
    parts.append(_result_table(metric, own).to_string(index=False))
  parts += [textwrap.fill(text, _WIDTH) for text in _together(table)]
  return '\n\n'.join([*parts, *_notes(table, found.left_out)])


def _named(table: pd.DataFrame) -> pd.DataFrame:
  """Runs in order, under the names of the settings that they differ in."""
  named = table.set_axis(names.run_names(table))
  # The reasons why there is no drop name runs, too.
  return names.ordered(stats.with_drops(named))


def _pictures(note: str, drawn: Sequence[figures.Drawing]) -> str:
  """Figures with their captions below a note; nothing without figures."""
  shown = [
    f'![{caption}]({each.name})\n\n*{caption}*'
    for each in drawn
    for caption in [markup.plain(each.caption)]
  ]
  return '\n\n'.join([note, *shown] if note and shown else shown)


def _by_metric(table: pd.DataFrame) -> list[tuple[Metric, pd.DataFrame]]:
  """For each metric a row for each label: what its seeds came to.

  `guarantee` is a word, empty for a run that is not private; `shared` names the
  seeds that several runs have, `is_whole` says whether all runs of the setting
  ended with a finite figure.
  """
  found = []
  for metric, of_metric in table.groupby('metric', sort=False):
    groups = [*of_metric.groupby(names.labels(of_metric), sort=False)]
    scores = [stats.estimate(own['final_score']) for _, own in groups]
    # What a seed that failed, or is to come, would have made of the mean.
    is_whole = of_metric['is_complete'] & np.isfinite(of_metric['final_score'])
    partial = {*of_metric.loc[~is_whole, 'series']}
    lines = [
      {
        'label': label,
        'mean': score.mean,
        'seeds': score.num_seeds,
        'score': score.text(metric.decimals([score.mean])),
        'drop': _drop(own, score, metric),
        'is_whole': partial.isdisjoint(own['series']),
        'epsilon': _epsilon(own),
        'delta': own['delta'].iloc[0],
        'guarantee': _guarantee(own),
        'shared': [
          key for key in _SHARED_NOTES if own[key].dropna().duplicated().any()
        ],
      }
      for score, (label, own) in zip(scores, groups, strict=True)
    ]
    found.append((metric, pd.DataFrame(lines)))
  return found


def _drop(own: pd.DataFrame, score: stats.Estimate, metric: Metric) -> str:
  """The drop of some seeds, and of how many where not of all."""
  drop = stats.estimate(own['drop'])
  text = drop.text(metric.decimals([score.mean]))
  if drop and drop.num_seeds < score.num_seeds:
    text += f' ({drop.num_seeds} of the seeds)'
  return text


def _epsilon(own: pd.DataFrame) -> str:
  """The largest ε of some seeds, with the paper's where that is another."""
  text = stats.at_most(
    own['epsilon'].where(own['is_private']).max(skipna=False)
  )
  if own['unit'].iloc[0] == 'example':
    text += ' for examples'
  if own['paper_epsilon'].notna().any():
    text += f' (the paper’s: {stats.at_most(own["paper_epsilon"].max())})'
  return text


def _guarantee(own: pd.DataFrame) -> str:
  if not own['is_private'].any():
    return ''
  if own['noise_clients_per_round'].notna().any():
    return 'simulated'
  if own['has_caveats'].any():
    return 'no'
  return 'holds' if np.isfinite(own['epsilon']).all() else 'not known'


def _results(table: pd.DataFrame) -> str:
  """The sentence and the table of the runs of each metric, and a note."""
  found = _by_metric(table)
  parts = []
  for metric, of_metric in found:
    sentence = markup.plain(_result_sentence(metric, of_metric))
    parts.append(f'**{sentence}**')
    parts.append(markup.markdown_table(_result_table(metric, of_metric)))
  every = pd.concat(of_metric for _, of_metric in found)
  seeds = sorted({*every['seeds']} - {0} or {0})
  note = _RESULT_NOTE.format(' or '.join(map(str, seeds)))
  for key, told in _SHARED_NOTES.items():
    labels = every.loc[[key in keys for keys in every['shared']], 'label']
    if len(labels):
      note += f' {told.format("; ".join(labels))}'
  return '\n\n'.join([*parts, markup.plain(note)])


def _result_table(metric: Metric, found: pd.DataFrame) -> pd.DataFrame:
  """The results of one metric, without columns that would be empty."""
  deltas = sorted({*found['delta'].dropna()})
  shared = f' (δ\xa0=\xa0{_format_delta(deltas[0])})' if deltas else ''
  lost = 'below FedAvg (points)' if metric.is_share else 'worse than FedAvg by'
  return _without_empty(
    pd.DataFrame(
      {
        'algorithm': found['label'],
        'seeds': found['seeds'] if found['seeds'].nunique() > 1 else '',
        metric.heading: found['score'],
        lost: found['drop'],
        'ε' if deltas[1:] else f'ε{shared}': found['epsilon'],
        'δ': found['delta'].map(_format_delta) if deltas[1:] else '',
        'guarantee': found['guarantee'].replace('', stats.MISSING),
      }
    )
  )


def _result_sentence(metric: Metric, found: pd.DataFrame) -> str:
  """What the runs of one metric came to, in a sentence."""
  known = found[found['mean'].notna()]
  if known.empty:
    return f'No run has a finite {metric.title} yet.'
  unit = ' %' if metric.is_share else ''
  if len(known) > _MAX_TOLD:
    whole = known[known['is_whole']] if known['is_whole'].any() else known
    ranked = whole.sort_values(
      'mean', ascending=metric.goal == 'min', kind='stable'
    )
    label, score = ranked[['label', 'score']].iloc[0]
    return (
      f'Of {len(whole)} algorithms and settings, {label} has the best '
      f'{metric.title}, {score}{unit}; chosen on the test data, that is an '
      'optimistic figure.'
    )
  parts = []
  for line in known.to_dict('records'):
    verb = f' has a {metric.title} of ' if not parts else ': '
    text = f'{line["label"]}{verb}{line["score"]}{unit}'
    if line['drop'] != stats.MISSING:
      lost = 'points below' if metric.is_share else 'worse than'
      text += f', {line["drop"]} {lost} FedAvg'
    if line['guarantee']:
      text += f' ({_PROMISES[line["guarantee"]].format(line["epsilon"])})'
    parts.append(text)
  return '; '.join(parts) + '.'


def _privacy(table: pd.DataFrame) -> str:
  """What private runs promise, together and each, once for equal ones."""
  texts = [*map(markup.plain, _together(table))]
  promises = []
  for name, run in table['files'].items():
    keys = ['description', 'with_clipping_norm']
    if run.settings.get('clipping') == 'adaptive':
      # Its noise is not that of the sentence alone.
      keys.append('aggregation')
    texts_of_run = filter(None, map(run.privacy.get, keys))
    promises += [
      (markup.plain(text), markup.plain(name)) for text in texts_of_run
    ]
  told = pd.DataFrame(promises, columns=['text', 'name'])
  for text, own in told.groupby('text', sort=False)['name']:
    # Of some private runs nothing may be known, or promised.
    is_all = len(own) == table['is_private'].sum()
    texts.append(text if is_all else f'**{"; ".join(own)}**: {text}')
  # A simulation of the noise of other cohorts promises nothing.
  promises_some = table['is_private'] & table['noise_clients_per_round'].isna()
  held = table[promises_some & ~table['has_caveats']]
  exact = table[~promises_some & table['population'].isin(held['population'])]
  if len(exact):
    texts.append(markup.plain(f'{"; ".join(exact.index)}: {_EXACT_NOTE}'))
  simulated = table.index[table['has_simulation_figures']]
  if len(simulated):
    names_of = markup.plain('; '.join(simulated))
    texts.append(f'† {names_of}: {_SIMULATION_NOTE}')
  return '\n\n'.join(texts)


def _together(table: pd.DataFrame) -> list[str]:
  """What the private runs on the same data have spent together."""
  told = []
  is_private = table['is_private'] & table['noise_clients_per_round'].isna()
  for _, own in table[is_private].groupby('population', sort=False):
    ledgers = [run.ledger for run in own['files'] if run.ledger is not None]
    errors = [run.ledger_error for run in own['files'] if run.ledger_error]
    texts = [spending.describe_ledgers(ledgers)]
    if errors and len(own) > 1:
      texts = [f'What they cost together is not known: {errors[0]}']
    lacks = own['files'].map(lambda run: not (run.ledger or run.ledger_error))
    if len(own) > 1 and lacks.any() and not lacks.all():
      names_of = '; '.join(own.index[lacks])
      texts.append(f'What {names_of} spent is not known: there is no ledger.')
    if text := ' '.join(filter(None, texts)):
      data = own['data'].iloc[0] or 'these clients'
      told.append(f'All private runs on {data}: {text}')
  return told


def _run_by_run(table: pd.DataFrame) -> str:
  """The settings and the table of single runs, with what is not compared."""
  texts = []
  for title, own in names.by_setting(table[table['data'] != '']):
    run = own.iloc[0]
    values = [
      f'{symbol} = {run[key]:g}'
      for key, symbol in names.SYMBOLS.items()
      if key in stats.SETTING_KEYS and pd.notna(run.get(key))
    ]
    if run['num_parameters'] > 0:
      values.append(f'd = {run["num_parameters"]:,.0f} parameters')
    told = f'{title}: {", ".join(values)}.'
    partition = (run['files'].config.get('task') or {}).get('partition')
    # Of a private run without exact figures, it says too much of the clients.
    if partition and not (
      run['is_private'] and not run['has_simulation_figures']
    ):
      told += f' Partition of {run.name}: {partition.rstrip(".")}.'
    texts.append(markup.plain(told))
  for _, own in table.groupby('metric', sort=False):
    lines = [_line(run) for _, run in own.iterrows()]
    texts.append(
      markup.markdown_table(
        _without_empty(pd.DataFrame(lines).fillna(stats.MISSING))
      )
    )
  if (table['clips'] == 'models').any():
    texts.append(_MODEL_CLIPPING_NOTE)
  by_reason = table[table['no_drop'] != ''].groupby('no_drop', sort=False)
  reasons = [f'{"; ".join(own.index)} ({why})' for why, own in by_reason]
  if reasons:
    told = f'Not compared with FedAvg: {"; ".join(reasons)}.'
    texts.append(markup.plain(told))
  return '\n\n'.join(texts)


def _line(run: pd.Series) -> dict[str, str]:
  """The numbers of a run."""
  metric = run['metric']
  clipped = stats.number(100 * run['clipped_fraction'], '.0f')
  if run['has_simulation_figures'] and clipped != stats.MISSING:
    clipped += '†'
  norm = stats.number(run['clipping_norm'], '.4g')
  if run['clipping'] == 'adaptive':
    norm = f'{norm} at first'
  of = '' if run['is_complete'] else f' of {run["num_rounds"]}'
  spec = f'.{metric.decimals([run["final_score"]])}f'
  return {
    'run': run.name,
    'rounds': f'{run["rounds_done"]}{of}',
    metric.heading: stats.number(run['final_score'], spec),
    **_other_scores(run['files']),
    'c': norm,
    'clipped (%)': clipped,
    'noise multiplier': stats.number(run['noise_multiplier'], '.4g'),
    'sampling': (run['sampling'] or stats.MISSING).replace('_', ' '),
    's/round': stats.number(run['round_seconds'], '.2f'),
    'folder': run['folder'],
  }


def _other_scores(run: Run) -> dict[str, str]:
  """The last values of metrics that do not decide, by their headings."""
  told = {}
  for column, values in run.rounds.items():
    known = column in ('test_loss', run.metric.column)
    last = values.dropna().tail(1)
    if column.startswith('test_') and not known and len(last):
      other = Metric(column.removeprefix('test_'))
      value = other.scale * last.iloc[0]
      told[other.heading] = stats.number(value, f'.{other.decimals([value])}f')
  return told


def _audits(table: pd.DataFrame) -> str:
  """The claim of each audited run beside what each attack shows."""
  lines = pd.DataFrame(
    [
      {'run': name, **attack}
      for name, run in table['files'].items()
      for attack in run.audits
    ]
  )
  if lines.empty:
    return ''
  shown = markup.markdown_table(stats.cells(lines, _AUDIT_COLUMNS))
  return f'{_AUDIT_NOTE}\n\n{shown}'


def _notes(
  table: pd.DataFrame, left_out: Iterable[tuple[str, str]]
) -> list[str]:
  """What is missing, damaged or left out, a sentence each."""
  is_evaluated = table['files'].map(lambda run: run.is_evaluated)
  missing = {
    'Not evaluated yet': ~is_evaluated,
    'Not finite at the end, and in no mean': is_evaluated
    & ~np.isfinite(table['final_score']),
    'Updates are not recorded': ~table['has_updates'],
  }
  return [
    *(
      f'{name}: {note}'
      for name, run in table['files'].items()
      for note in run.notes
    ),
    *(
      f'{name}: {run["rounds_done"]} of {run["num_rounds"]} rounds; it is '
      'shown, but not compared'
      for name, run in table[~table['is_complete']].iterrows()
    ),
    *(f'{name}: left out: {reason}' for name, reason in left_out),
    *(
      f'{what}: {"; ".join(table.index[where])}.'
      for what, where in missing.items()
      if where.any()
    ),
  ]


def _versions(table: pd.DataFrame) -> str:
  """With which versions the runs were made, in a sentence."""
  found = pd.DataFrame(
    [run.config.get('versions') or {} for run in table['files']]
  )
  told = [f'{x} {" and ".join(found[x].dropna().unique())}' for x in found]
  return f'The runs: {", ".join(told)}.' if told else ''


def _figures_of(report: pathlib.Path) -> set[str] | None:
  """The names of the figures of a report; None if it is none of ours."""
  if not report.exists():
    # Its HTML is written after it.
    return None if report.with_suffix('.html').exists() else set()
  text = report.read_text(encoding='utf-8', errors='replace')
  return set(_FIGURE.findall(text)) if text.startswith(_HEADING) else None


def _with_own_files(
  pictures: Mapping[str, tuple[str, Sequence[figures.Drawing]]],
) -> dict[str, tuple[str, list[figures.Drawing]]]:
  """Figures of which no two have one file: names can differ in signs alone."""
  seen: collections.Counter[str] = collections.Counter()

  def own_file(drawing: figures.Drawing) -> figures.Drawing:
    seen[drawing.name] += 1
    number = seen[drawing.name]
    name = drawing.name.replace('.png', f'_{number}.png')
    return drawing if number == 1 else dataclasses.replace(drawing, name=name)

  return {
    title: (note, [*map(own_file, drawn)])
    for title, (note, drawn) in pictures.items()
  }


def _without_empty(table: pd.DataFrame) -> pd.DataFrame:
  """A table without the columns in which no cell says anything."""
  return table.loc[:, ~table.isin([stats.MISSING, '']).all()]


def _format_delta(delta: float) -> str:
  """A δ as 10⁻⁵ or 2.5 · 10⁻⁵, which no line breaks."""
  if pd.isna(delta):
    return stats.MISSING
  factor, exponent = f'{delta:.2e}'.split('e')
  power = f'10{str(int(exponent)).translate(_SUPERSCRIPTS)}'
  return power if float(factor) == 1 else f'{float(factor):g}\xa0·\xa0{power}'


def main(argv: Sequence[str]) -> None:
  if len(argv) < 2:
    raise app.UsageError('Give at least one run folder.')
  if not _OUTPUT.value:
    raise app.UsageError('Give --output=DIR, the folder for the report.')
  # What the shell may have expanded is what the report is on.
  command = shlex.join(
    [
      *('python', '-m', 'analysis.report', *argv[1:]),
      f'--output={_OUTPUT.value}',
    ]
  )
  made_by = f'Made by {command} on {datetime.date.today():%Y-%m-%d}.'
  # Read once: a run may be going on.
  with markup.errors_shown():
    found = stats.read_folders(argv[1:])
    path = write_report(found, _OUTPUT.value, made_by=made_by)
  markup.show(
    f'{summary(found)}\n\nReport: {path}\n        {path.with_suffix(".html")}',
    sys.stdout,
  )


if __name__ == '__main__':
  app.run(main)
