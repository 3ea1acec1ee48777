"""The budget calculator's figure; only this module needs matplotlib."""

import pathlib

import matplotlib
import numpy as np
from matplotlib import figure as figure_lib

from tff_clipping.privacy import (
  accountants,
  budget_report,
  calibration,
  sampled_gaussian,
)
from tff_clipping.privacy import plan as plan_lib

_FORMATS = ('.png', '.pdf', '.svg')
_LABELS = {
  'poisson': 'Poisson, add or remove one',
  'fixed_size': 'fixed size, replace one',
  'none': 'all clients, add or remove one',
}


def save_figure(answer: budget_report.Answer, path: str) -> None:
  """Draws epsilon by rounds, and the noise multiplier by cohort size.

  Args:
    answer: The plan is drawn, with its noise under the other sampling as well.
    path: A .png, .pdf or .svg file.

  Raises:
    ValueError: If `path` has another ending.
    OSError: If it cannot be written.
  """
  check_path(path)
  # Text stays text, and the same answer gives the same file.
  with matplotlib.rc_context({'svg.fonttype': 'none', 'svg.hashsalt': 'plot'}):
    figure = figure_lib.Figure(figsize=(9, 3.6), layout='constrained')
    left, right = figure.subplots(1, 2)
    _draw_epsilon_by_rounds(left, answer.plan)
    _draw_noise_by_cohort(right, answer)
    figure.savefig(path, dpi=150)


def check_path(path: str) -> None:
  """Raises as `save_figure` would, before anything is computed."""
  file = pathlib.Path(path)
  if file.suffix.lower() not in _FORMATS:
    raise ValueError(
      f'`plot` must end in one of {", ".join(_FORMATS)}, found {path!r}.'
    )
  with open(file, 'ab'):
    pass


def _samplings(plan: plan_lib.PrivacyPlan) -> list[str]:
  """Returns the samplings to draw."""
  return ['none'] if plan.sampling == 'none' else ['poisson', 'fixed_size']


def _draw_epsilon_by_rounds(axes, plan: plan_lib.PrivacyPlan) -> None:
  """Draws what the plan's noise costs after each number of rounds."""
  most = plan.num_rounds
  rounds = np.unique(np.geomspace(1, most, num=min(most, 25)).astype(int))
  for sampling in _samplings(plan):
    mechanism = sampled_gaussian.add_noise(
      _sampling(plan, sampling, plan.clients_per_round), plan.noise_multiplier
    )
    epsilons = [
      accountants.compute_epsilon(
        mechanism,
        plan.accountant,
        num_rounds=int(each),
        target_delta=plan.target_delta,
      )
      for each in rounds
    ]
    axes.plot(rounds, epsilons, marker='.', label=_LABELS[sampling])
  axes.plot(most, plan.epsilon, 'ko', label='the plan')
  axes.set_xlabel('rounds')
  axes.set_ylabel(f'epsilon at delta = {plan.target_delta:g}')
  axes.set_title(
    f'noise multiplier {plan.noise_multiplier:g}, {plan.accountant}'
  )
  axes.set_ylim(bottom=0)
  axes.legend()


def _draw_noise_by_cohort(axes, answer: budget_report.Answer) -> None:
  """Draws the noise that the plan's epsilon needs with other cohorts."""
  plan = answer.plan
  target = answer.question.target_epsilon or plan.epsilon
  cohorts = np.unique(
    np.geomspace(
      max(1, plan.clients_per_round / 8),
      min(plan.num_clients, plan.clients_per_round * 8),
      num=5,
    ).astype(int)
  )
  if plan.sampling == 'none':
    cohorts = [plan.num_clients]
  for sampling in _samplings(plan):
    found = []
    for cohort in cohorts:
      try:
        noise = calibration.find_noise_multiplier(
          _sampling(plan, sampling, int(cohort)),
          plan.accountant,
          num_rounds=plan.num_rounds,
          target_epsilon=target,
          target_delta=plan.target_delta,
        )
      except ValueError:
        continue  # Out of the accountant's range: no point there.
      found.append((cohort, noise))
    if found:
      axes.plot(*zip(*found, strict=True), marker='.', label=_LABELS[sampling])
  axes.plot(
    plan.clients_per_round, plan.noise_multiplier, 'ko', label='the plan'
  )
  axes.set_xscale('log')
  axes.set_xlabel('clients per round')
  axes.set_ylabel('noise multiplier')
  axes.set_title(f'epsilon {target:.4g}, {plan.num_rounds} rounds')
  axes.set_ylim(bottom=0)
  axes.legend()


def _sampling(
  plan: plan_lib.PrivacyPlan, sampling: str, clients_per_round: int
) -> sampled_gaussian.CohortSampling:
  """Returns other cohorts of the plan's population."""
  return sampled_gaussian.CohortSampling(
    sampling=sampling,
    num_clients=plan.num_clients,
    clients_per_round=clients_per_round,
  )
