"""The tables of runs, and what they cannot say in their cells."""

import math

import pandas as pd

from analysis.runs import frame, margins, row

# What is said wherever exact figures of a private run's clients stand.
SIMULATION_NOTE = (
  "exact figures of the clients' updates, for simulation only: no part of the "
  'private release, and not covered by ε.'
)
SIMULATION_MARK = '†'
# And beside an ε that is the plan's alone.
CAVEAT_NOTE = (
  'ε of the plan; the run as it was has no guarantee, for the reasons in its '
  'privacy.json.'
)
CAVEAT_MARK = '‡'
MODEL_CLIPPING_NOTE = (
  'Model clipping: c is a threshold on the norm of whole models, and clipped '
  '(%) the share of clipped models. The other thresholds are on updates.'
)

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


def run_table(group: pd.DataFrame) -> pd.DataFrame:
  """The numbers of comparable runs, a row for each, in the paper's order."""
  group = frame.ordered(group)
  lines = [_line(run) for _, run in group.iterrows()]
  table = pd.DataFrame(lines)
  for key in reversed(row.SEED_KEYS):
    if group[key].nunique() > 1:
      table.insert(0, key.replace('_', ' '), group[key].to_list())
  if group['algorithm'].duplicated().any():
    table.insert(0, 'run', group.index)
  return table


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


def mark_notes(runs: pd.DataFrame) -> list[str]:
  """What the marks in a table of these runs mean, a sentence each."""
  notes = {
    'has_simulation_figures': f'{SIMULATION_MARK} {SIMULATION_NOTE}',
    'has_caveats': f'{CAVEAT_MARK} {CAVEAT_NOTE}',
  }
  return [note for column, note in notes.items() if runs[column].any()]


def _line(run: pd.Series) -> dict[str, str]:
  rounds = str(run['rounds_done'])
  if not run['is_complete']:
    rounds += f' of {run["num_rounds"]}'
  clipped = margins.number(100 * run['clipped_fraction'], '.0f')
  if run['has_simulation_figures'] and clipped != margins.MISSING:
    clipped += SIMULATION_MARK
  epsilon = margins.MISSING
  if run['is_private']:
    epsilon = margins.at_most(run['epsilon_spent'])
    if run['privacy_actual_epsilon'] != run['privacy_epsilon']:
      actual = margins.at_most(run['privacy_actual_epsilon'])
      epsilon += '' if actual == margins.MISSING else f' (sampler: {actual})'
    epsilon += CAVEAT_MARK if run['has_caveats'] else ''
  delta = run['privacy_target_delta']
  return {
    'algorithm': run['algorithm_name'],
    'model': run['model_name'],
    'rounds': rounds,
    'final accuracy (%)': margins.number(run['final_accuracy'], '.2f'),
    'best (%)': margins.number(run['best_accuracy'], '.2f'),
    'below FedAvg (points)': margins.number(run['drop'], '.2f'),
    'c': margins.number(run['clipping_norm'], '.4g'),
    'clipped (%)': clipped,
    'noise multiplier': margins.number(run['privacy_noise_multiplier'], '.4g'),
    'ε': epsilon,
    'δ': format_delta(delta) if delta > 0 else margins.MISSING,
    'sampling': run['privacy_sampling'] or margins.MISSING,
    's/round': margins.number(run['median_round_seconds'], '.2f'),
  }


def format_delta(delta: float) -> str:
  """A δ as 1e-5 or 2.5e-5."""
  mantissa, exponent = f'{delta:.2e}'.split('e')
  return f'{float(mantissa):g}e{int(exponent)}'
