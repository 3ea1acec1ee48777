"""The ε of private runs under other ways to draw cohorts, and what it costs."""

import warnings
from collections.abc import Sequence

import pandas as pd

from analysis import paper, results, rows, tables
from tff_clipping import privacy

# By `sampling`: how cohorts are drawn, and what is charged.
_WAYS = {
  'poisson': 'Poisson cohorts, charged as such',
  'paper': 'fixed P of N, charged as Poisson (the paper)',
  'fixed_size': 'fixed P of N, charged as such',
}


def cost_table(
  paper_rows: Sequence[rows.Row],
  groups: Sequence[Sequence[results.Run]] = (),
) -> pd.DataFrame:
  """ε of each row's DP-FedAvg, as run and under other samplings.

  Args:
    paper_rows: The rows.
    groups: Groups of comparable runs, for those that are of none of the rows.

  Returns:
    Columns for a table; a row for each of the paper's with a finished run of
    DP-FedAvg with Poisson sampling, at each scale, then one for each other
    setting.
  """
  named = [
    (row.name, run)
    for row in rows.at_all_scales(paper_rows)
    for run in row.runs('dp_fed_avg')[:1]
  ]
  seen = {results.setting_without_seed(run) for _, run in named}
  for group in groups:
    for run in group:
      if (
        run.algorithm == 'dp_fed_avg'
        and run.is_complete
        and _sampling(run) == 'poisson'
        and results.setting_without_seed(run) not in seen
      ):
        seen.add(results.setting_without_seed(run))
        named.append((f'beyond: {paper.setting_title(run)}', run))
  lines = []
  for name, run in named:
    lines.append(
      {
        'row': name,
        'data': paper.data_name(run),
        'N': str(run.num_clients),
        'P': str(run.experiment['clients_per_round']),
        'T': str(run.num_rounds),
        'δ': paper.format_delta(_number(run, 'target_delta')),
        'z': f'{_number(run, "noise_multiplier"):.3f}',
        'ε, Poisson (as run), add or remove': (
          f'{epsilon_under(run, "poisson"):.2f}'
        ),
        'ε, fixed size, replace': f'{epsilon_under(run, "fixed_size"):.2f}',
        'z for this ε, fixed size': (
          f'{noise_under(run, "fixed_size", "rdp"):.3f} by RDP, '
          f'{noise_under(run, "fixed_size", "pld"):.3f} by PLD'
        ),
      }
    )
  return pd.DataFrame(lines)


def variant_groups(
  groups: Sequence[Sequence[results.Run]],
) -> list[Sequence[results.Run]]:
  """The groups of which DP-FedAvg was run with another sampling than Poisson.

  Args:
    groups: Groups of comparable runs.

  Returns:
    Those in which one has another sampling, and those that differ from them in
    the seed alone.
  """
  return results.with_other_seeds(
    [
      group
      for group in groups
      if {'paper', 'fixed_size'} & {_sampling(run) for run in group}
    ],
    groups,
  )


def variant_table(groups: Sequence[Sequence[results.Run]]) -> pd.DataFrame:
  """DP-FedAvg with its noise calibrated for each way to draw cohorts.

  Args:
    groups: What `variant_groups` returns.

  Returns:
    Columns for a table; a row for each way that was run.
  """
  lines = []
  for sampling, way in _WAYS.items():
    chosen = [
      tuple(
        run
        for run in group
        if run.algorithm != 'dp_fed_avg' or _sampling(run) == sampling
      )
      for group in groups
    ]
    drop = rows.drop_of(chosen, 'dp_fed_avg', 'ce_fed_avg')
    if drop is None:
      continue
    run = next(
      run
      for group in chosen
      for run in group
      if run.algorithm == 'dp_fed_avg' and run.is_complete
    )
    lines.append(
      {
        'cohorts': way,
        'data': paper.data_name(run),
        'z': f'{_number(run, "noise_multiplier"):.3f}',
        'ε that is charged': f'{_number(run, "epsilon"):.2f}',
        'ε that holds': f'{_number(run, "actual_epsilon"):.2f}',
        'drop from CE-FedAvg': str(drop),
        'seeds': str(drop.num_seeds),
      }
    )
  return pd.DataFrame(lines)


def epsilon_under(run: results.Run, sampling: str) -> float:
  """The ε that the noise of a run gives under a sampling.

  Args:
    run: A private run.
    sampling: 'poisson' or 'fixed_size'.

  Returns:
    The smaller of the figures of the RDP and of the PLD accountant for cohorts
    of a fixed size, since both hold; by the run's accountant for Poisson.
  """
  accountants = [_accountant(run)] if sampling == 'poisson' else ['rdp', 'pld']
  with warnings.catch_warnings():
    warnings.simplefilter('ignore', privacy.DeltaTooLargeWarning)
    return min(
      privacy.compute_epsilon(
        noise_multiplier=_number(run, 'noise_multiplier'),
        sampling=sampling,
        accountant=accountant,
        **_setting(run),
      )
      for accountant in accountants
    )


def noise_under(run: results.Run, sampling: str, accountant: str) -> float:
  """The noise multiplier that a sampling needs for the ε of a run."""
  return privacy.calibrate_noise_multiplier(
    target_epsilon=float(
      run.experiment.get('target_epsilon') or _number(run, 'epsilon')
    ),
    sampling=sampling,
    accountant=accountant,
    warn=False,
    **_setting(run),
  )


def _setting(run: results.Run) -> dict:
  return dict(
    num_clients=run.num_clients,
    clients_per_round=run.experiment['clients_per_round'],
    num_rounds=run.num_rounds,
    target_delta=_number(run, 'target_delta'),
  )


def _accountant(run: results.Run) -> str:
  return (run.privacy or {}).get('accountant', 'rdp')


def _number(run: results.Run, key: str) -> float:
  return tables.privacy_number(run, key)


def _sampling(run: results.Run) -> str | None:
  return (run.privacy or {}).get('sampling')
