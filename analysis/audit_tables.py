"""What audited runs show: the ε that is claimed, and what attacks find."""

import pandas as pd

from analysis import frame, margins

_ATTACKS = {
  'all_releases': 'all releases',
  'successive_releases': 'successive releases',
  'final_model': 'the final model',
}
_COHORTS = {
  'poisson': 'Poisson',
  'paper': 'fixed P of N, charged as Poisson (the paper)',
  'fixed_size': 'fixed P of N',
}


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
