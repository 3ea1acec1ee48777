"""The tables of runs, and what they cannot say in their cells."""

import math

import pandas as pd

from analysis.runs import frame, margins, titles
from analysis.runs import metric as metrics

# What is said wherever exact figures of a private run's clients stand.
SIMULATION_NOTE = (
  "exact figures of the clients' updates, for simulation only: no part of the "
  'private release, and not covered by ε.'
)
SIMULATION_MARK = '†'
MODEL_CLIPPING_NOTE = (
  'Model clipping: c is a threshold on the norm of whole models, and clipped '
  '(%) the share of clipped models. The other thresholds are on updates.'
)

# How many results are told one by one in a sentence.
_MAX_TOLD = 6

# By `guarantee`, with the ε.
_TOLD_GUARANTEES = {
  'holds': 'ε = {}, and the guarantee holds',
  'no': 'ε = {} by the plan, no guarantee as it was run',
  'not known': 'nothing is known of its guarantee',
  "the sampler's": 'ε = {}: the guarantee is what the sampler gives',
}

_SUPERSCRIPTS = str.maketrans('-0123456789', '⁻⁰¹²³⁴⁵⁶⁷⁸⁹')

_ATTACKS = {
  'all_releases': 'all releases',
  'successive_releases': 'successive releases',
  'final_model': 'the final model',
}
_COHORTS = {
  'poisson': 'Poisson',
  'random_allocation': 'one secret round of each epoch for each client',
  'paper': 'fixed P of N, charged as Poisson (the paper)',
  'fixed_size': 'fixed P of N',
}

_SETTING = {
  'num_clients': 'N',
  'clients_per_round': 'P',
  'local_steps': 'Q',
  'batch_size': 'batch',
  'num_rounds': 'T',
  'client_learning_rate': 'η_l',
  'server_learning_rate': 'η_g',
}


def results(runs: pd.DataFrame) -> pd.DataFrame:
  """What each algorithm came to in each setting, over its seeds.

  Args:
    runs: The rows of the runs.

  Returns:
    A row for each line of `titles.describe_runs`, in the paper's order: its
    `setting` and `algorithm`; `runs`, their names; `metric`;
    `score` and `drop` (an `Estimate`, or None); `epsilon` (of the rounds that
    were run, by the plan's accounting; the largest of the seeds), `delta`, and
    `sampler_epsilon` (what the sampler really gives, NaN where that is the
    same); `unit`, what ε protects; and `guarantee`, in a word, empty where the
    run is not private.
  """
  names = titles.describe_runs(runs)
  lines = []
  for _, group in frame.by_setting(runs).groupby('series', sort=False):
    group = frame.ordered(group)
    for _, own in group.groupby(names['line'][group.index], sort=False):
      first, name = own.iloc[0], names.loc[own.index[0]]
      actual = own['privacy_actual_epsilon']
      lines.append(
        {
          'setting': name['setting'],
          'algorithm': name['algorithm'],
          'runs': tuple(own.index),
          'metric': first['metric'],
          'score': margins.estimate(own['final_score']),
          'drop': margins.estimate(own['drop']),
          'epsilon': own['epsilon_spent']
          .where(own['is_private'])
          .max(skipna=False),
          'delta': first['privacy_target_delta'],
          'sampler_epsilon': actual.where(
            actual != own['privacy_epsilon']
          ).max(),
          'unit': first['privacy_unit'],
          'guarantee': _guarantee(own),
        }
      )
  return pd.DataFrame(lines)


def result_table(found: pd.DataFrame) -> pd.DataFrame:
  """`results` for people: without columns that would be empty.

  Args:
    found: Rows of `results`, of one metric.
  """
  metric = found['metric'].iloc[0]
  decimals = metric.decimals(each.mean for each in found['score'] if each)
  # Those that have a finite figure.
  seeds = [each.num_seeds if each else 0 for each in found['score']]
  deltas = sorted(set(found['delta'].dropna()))
  shared = f' (δ\xa0=\xa0{format_delta(deltas[0])})' if len(deltas) == 1 else ''
  is_private = found['guarantee'] != ''
  lost = 'below FedAvg (points)' if metric.is_share else 'worse than FedAvg by'
  columns = {
    'algorithm': [
      ', '.join(filter(None, names))
      for names in zip(found['algorithm'], found['setting'], strict=True)
    ],
    'seeds': seeds if len(set(seeds)) > 1 else '',
    metric.heading: [_estimate(each, decimals) for each in found['score']],
    lost: [_estimate(each, decimals) for each in found['drop']],
    f'ε{shared}': [_epsilon(line) for _, line in found.iterrows()],
    'δ': [_delta(delta) for delta in found['delta']] if deltas[1:] else '',
    'guarantee': found['guarantee'].where(is_private, margins.MISSING),
  }
  return _without_empty(pd.DataFrame(columns))


def result_sentence(found: pd.DataFrame) -> str:
  """What runs came to, in a sentence.

  Args:
    found: Rows of `results`, of one metric.
  """
  metric = found['metric'].iloc[0]
  known = found[found['score'].notna()]
  if known.empty:
    return f'No run has a finite {metric.title} yet.'
  decimals = metric.decimals(each.mean for each in known['score'])
  if len(known) <= _MAX_TOLD:
    told = [
      _tell_setting(setting, own, decimals)
      for setting, own in known.groupby('setting', sort=False)
    ]
    return ' '.join(f'{text}.' for text in told)
  means = known['score'].map(lambda each: each.mean)
  first = known.loc[means.idxmax() if metric.goal == 'max' else means.idxmin()]
  name = ', '.join(filter(None, (first['algorithm'], first['setting'])))
  return (
    f'Of {len(known)} algorithms and settings, {name} has the best '
    f'{metric.title}, {_value(first["score"], metric, decimals)}; chosen on '
    'the test data, that is an optimistic figure.'
  )


def _tell_setting(setting: str, own: pd.DataFrame, decimals: int) -> str:
  """What the algorithms of one setting came to, FedAvg first."""
  parts = []
  for _, line in own.iterrows():
    metric, drop = line['metric'], line['drop']
    value = _value(line['score'], metric, decimals)
    text = f'{line["algorithm"]} has a {metric.title} of {value}'
    if parts:
      text = f'{line["algorithm"]} {value}'
    if drop is not None:
      is_worse = drop.mean >= 0
      size = margins.Estimate(tuple(x if is_worse else -x for x in drop.values))
      text += f', {_estimate(size, decimals)} '
      if metric.is_share:
        text += f'points {"below" if is_worse else "above"} FedAvg'
      else:
        text += f'{"worse" if is_worse else "better"} than FedAvg'
    if line['guarantee']:
      text += f' ({_TOLD_GUARANTEES[line["guarantee"]].format(_epsilon(line))})'
    parts.append(text)
  text = '; '.join(parts)
  return f'{setting[0].upper()}{setting[1:]}: {text}' if setting else text


def run_table(runs: pd.DataFrame) -> pd.DataFrame:
  """The numbers of each run, without columns that would be empty.

  Args:
    runs: The rows of the runs, of one metric.
  """
  runs = pd.concat(
    [
      frame.ordered(group)
      for _, group in frame.by_setting(runs).groupby('series', sort=False)
    ]
  )
  return _without_empty(
    pd.DataFrame([_line(run) for _, run in runs.iterrows()]).fillna(
      margins.MISSING
    )
  )


def setting_sentence(group: pd.DataFrame) -> str:
  """The setting that the runs of a group share, and their seeds."""
  run = group.iloc[0]
  values = [
    f'{symbol} = {run[key]:g}'
    for key, symbol in _SETTING.items()
    if run[key] is not None and not math.isnan(run[key])
  ]
  seeds = sorted(set(group['seed'].dropna()))
  if seeds:
    values.append(f'seed = {", ".join(f"{seed:.0f}" for seed in seeds)}')
  if run['num_parameters'] > 0:
    values.append(f'd = {run["num_parameters"]:,.0f} parameters')
  summary = run['partition_summary']
  if run['is_private'] and not run['has_simulation_figures']:
    # How many examples the clients have is an exact figure of theirs.
    summary = None
  # The draws of a split, and what is said of them, can differ by seed.
  several = group['partition_summary'].nunique() > 1
  of_run = f' of {run.name}' if several else ''
  partition = f' Partition{of_run}: {summary.rstrip(".")}.' if summary else ''
  return ', '.join(values) + '.' + partition


def attack_table(frames: frame.Frames) -> pd.DataFrame:
  """The claim of each audited run beside what each attack shows.

  Args:
    frames: The runs.

  Returns:
    Columns for a table; a row for each audited run and attack.
  """
  lines = []
  for attack in frames.audits.to_dict('records'):
    run = frames.runs.loc[attack['run']]
    lines.append(
      {
        'run': attack['run'],
        'cohorts': _COHORTS.get(run['privacy_sampling'], margins.MISSING),
        'canaries, in + out': '{num_canaries_in} + {num_canaries_out}'.format(
          **attack
        ),
        'ε claimed': margins.at_most(attack['claimed_epsilon']),
        'ε as drawn': margins.at_most(attack['actual_epsilon']),
        'attack on': _ATTACKS.get(attack['attack'], attack['attack']),
        'ε at least': margins.at_least(attack['epsilon_lower_bound']),
        'ε at least, if Gaussian': margins.at_least(
          attack['gaussian_epsilon_lower_bound']
        ),
        'ε, an estimate': margins.number(attack['epsilon_estimate'], '.2f'),
        'true positives (allowed), %': (
          f'{100 * attack["true_positive_rate"]:.1f} '
          f'({100 * attack["allowed_true_positive_rate"]:.1f})'
        ),
        'confidence': f'{attack["confidence"]:.0%}',
        'refuted': 'yes' if attack['is_refuted'] else 'no',
      }
    )
  return pd.DataFrame(lines)


def simulation_caption(runs: pd.DataFrame) -> str:
  """What is added to the caption of a figure of these runs' clients."""
  names = runs.index[runs['has_simulation_figures']]
  return f' {", ".join(names)}: {SIMULATION_NOTE}' if len(names) else ''


def _line(run: pd.Series) -> dict[str, str]:
  rounds = str(run['rounds_done'])
  if not run['is_complete']:
    rounds += f' of {run["num_rounds"]}'
  clipped = margins.number(100 * run['clipped_fraction'], '.0f')
  if run['has_simulation_figures'] and clipped != margins.MISSING:
    clipped += SIMULATION_MARK
  norm = margins.number(run['clipping_norm'], '.4g')
  if run.get('clipping') == 'adaptive':
    norm = f'{norm} at first'
  metric = run['metric']
  spec = f'.{metric.decimals([run["final_score"]])}f'
  return {
    'run': run.name,
    'rounds': rounds,
    metric.heading: margins.number(run['final_score'], spec),
    'best': margins.number(run['best_score'], spec),
    **_other_scores(run),
    'c': norm,
    'clipped (%)': clipped,
    'noise multiplier': margins.number(run['privacy_noise_multiplier'], '.4g'),
    'sampling': (run['privacy_sampling'] or margins.MISSING).replace('_', ' '),
    's/round': margins.number(run['median_round_seconds'], '.2f'),
    'folder': run['folder'],
  }


def _other_scores(run: pd.Series) -> dict[str, str]:
  """The last values of metrics that do not decide, by their headings."""
  return {
    other.heading: margins.number(
      other.scale * value, f'.{other.decimals([value])}f'
    )
    for other, value in (
      (metrics.Metric(name), value)
      for name, value in run['other_scores'].items()
    )
  }


def _guarantee(own: pd.DataFrame) -> str:
  """Whether the plan's guarantee holds for runs of several seeds."""
  if not own['is_private'].any():
    return ''
  if own['has_caveats'].any():
    return 'no'
  if not own['epsilon_spent'].map(math.isfinite).all():
    return 'not known'
  if (own['privacy_actual_epsilon'] != own['privacy_epsilon']).any():
    return "the sampler's"
  return 'holds'


def _epsilon(line: pd.Series) -> str:
  """The ε of the plan, with what the sampler gives where that is another."""
  text = margins.at_most(line['epsilon'])
  if line['unit'] == 'example':
    text += ' for examples'
  if math.isfinite(line['sampler_epsilon']):
    text += f' (sampler: {margins.at_most(line["sampler_epsilon"])})'
  return text


def _delta(delta: float) -> str:
  return margins.MISSING if math.isnan(delta) else format_delta(delta)


def _estimate(value: margins.Estimate | None, decimals: int) -> str:
  if value is None:
    return margins.MISSING
  return margins.with_margin(value.mean, value.margin, decimals)


def _value(
  value: margins.Estimate, metric: metrics.Metric, decimals: int
) -> str:
  return _estimate(value, decimals) + (' %' if metric.is_share else '')


def _without_empty(table: pd.DataFrame) -> pd.DataFrame:
  """A table without the columns in which no cell says anything."""
  return table.loc[:, ~table.isin([margins.MISSING, '']).all()]


def format_delta(delta: float) -> str:
  """A δ as 10⁻⁵ or 2.5 · 10⁻⁵, which no line breaks."""
  mantissa, exponent = f'{delta:.2e}'.split('e')
  power = f'10{str(int(exponent)).translate(_SUPERSCRIPTS)}'
  factor = f'{float(mantissa):g}'
  return power if factor == '1' else f'{factor}\xa0·\xa0{power}'
