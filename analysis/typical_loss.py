"""The typical privacy loss of a run: Bayesian DP, which is no guarantee.

Command: `python -m analysis.typical_loss RUN...`, of run folders of dp_fed_avg
with exact updates (`--simulation_diagnostics --update_rounds=...`).

`analysis.runs.typical_loss` says what it is.
"""

import pathlib
import sys

from analysis.runs import files, typical_loss


def describe(directory: pathlib.Path) -> str:
  """Returns the typical loss of a run folder, in a sentence.

  Args:
    directory: The folder.

  Raises:
    ValueError: If it is no run, or not one that this can be computed for.
  """
  run = files.read_folder(directory)
  settings, private = run.config['experiment'], run.privacy
  for name, found, needed in (
    ('algorithm', settings['algorithm'], 'dp_fed_avg'),
    ('sampling', settings.get('sampling'), 'poisson'),
    ('clipping', settings.get('clipping', 'fixed'), 'fixed'),
    ('mechanism', settings.get('mechanism', 'gaussian'), 'gaussian'),
    ('aggregator', settings.get('aggregator'), None),
  ):
    if found != needed:
      raise ValueError(f'`{name}` must be {needed}, found {found}.')
  clients = run.updates[run.updates['client_id'] != files.MEAN_UPDATE_ID]
  norms = [
    part['update_norm'].to_numpy(float) for _, part in clients.groupby('t')
  ]
  if not norms or not private:
    raise ValueError(
      '`--update_rounds` must have recorded updates, found none.'
    )
  num_clients = run.config['task']['num_clients']
  typical = typical_loss.compute_epsilon(
    norms,
    clipping_norm=settings['clipping_norm'],
    noise_multiplier=private['noise_multiplier'],
    sampling_prob=settings['clients_per_round'] / num_clients,
    num_rounds=settings['num_rounds'],
    delta=private['target_delta'],
  )
  return (
    f'typical loss, no guarantee: epsilon {typical:.4g} at delta '
    f'{private["target_delta"]:g}, from exact norms of {len(norms)} rounds; '
    'what the plan guarantees where nothing exact is recorded: '
    f'{private["actual_epsilon"]:.4g}'
  )


if __name__ == '__main__':
  for argument in sys.argv[1:]:
    try:
      print(f'{argument}: {describe(pathlib.Path(argument))}')
    except ValueError as error:
      sys.exit(f'error: {argument}: {error}')
