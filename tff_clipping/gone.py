"""Refuses plans, ledgers and runs of kinds that only earlier versions have.

Plans, and with them ledgers, are refused by their attributes, and run folders
by their settings. An old file that names a removed attribute, but does not use
it, is read.
"""

from collections.abc import Mapping
from typing import Any

# Attributes and settings that went: the value of a file that had none of it,
# and what it was.
_ATTRIBUTES: Mapping[str, tuple[Any, str]] = {
  'min_clients_per_round': (None, 'bounds of a Poisson cohort'),
  'max_clients_per_round': (None, 'bounds of a Poisson cohort'),
  'threshold': (None, 'a first phase that estimates the clipping norm'),
  'threshold_rounds': (None, 'a first phase that estimates the clipping norm'),
  'threshold_factor': (None, 'a first phase that estimates the clipping norm'),
  'unit': ('client', 'promises to single examples'),
  'max_examples_per_client': (None, 'noise in each local step'),
  'max_batch_size': (None, 'noise in each local step'),
  'estimate_repeats': (0, "estimates of the clients' expected updates"),
  'smoothing': (None, 'smoothed normalization'),
  'sharpness_rho': (None, 'sharpness-aware local steps'),
  'fed_pd_penalty': (None, 'FedPD'),
  'client_rate_decay': (1.0, "a decay of the clients' learning rate"),
}

# Values that went, of attributes and settings that stay: what it was.
_VALUES: Mapping[tuple[str, Any], str] = {
  ('mechanism', 'noised_local_steps'): 'noise in each local step',
  ('algorithm', 'dp_steps_fed_avg'): 'noise in each local step',
  ('mechanism', 'local'): 'local DP',
  ('algorithm', 'local_dp_fed_avg'): 'local DP',
  ('algorithm', 'dp_model_clipping_fed_avg'): 'model clipping with noise',
  ('clipping', 'smooth'): 'smoothed normalization',
  ('local_step', 'sharpness_aware'): 'sharpness-aware local steps',
  ('local_step', 'fed_pd'): 'FedPD',
  ('local_step', 'error_feedback'): 'clipped error feedback',
  ('sampling', 'truncated_poisson'): 'Poisson cohorts within bounds',
  ('sampling', 'shuffled_epochs'): 'epochs in a shuffled order',
  ('mechanism', 'tree'): 'tree aggregation',
  ('task', 'emnist_digits'): 'the files of EMNIST; --task=emnist.npz',
  ('kind', 'tree'): 'tree aggregation',
  ('kind', 'restarted'): 'noise that begins anew',
}


class GoneError(ValueError):
  """A file is of a kind that this version does not have any more."""


def read(values: Mapping[str, Any]) -> dict[str, Any]:
  """Returns attributes or settings without the removed ones.

  Args:
    values: Attributes of a plan or a strategy, or settings of a run, from JSON.

  Raises:
    GoneError: If one of them has a removed value.
  """
  for name, value in values.items():
    without, attribute = _ATTRIBUTES.get(name, (value, ''))
    # A list has no hash.
    went = _VALUES.get((name, value), '') if isinstance(value, str) else ''
    if value != without or went:
      raise GoneError(
        f'`{name}` {value!r} ({went or attribute}) went in 0.3.0: commit '
        '44967cd3 reads it, and CHANGELOG.md says what takes its place.'
      )
  return {k: v for k, v in values.items() if k not in _ATTRIBUTES}
