"""The budget calculator's figure; only this module needs matplotlib."""

import dataclasses
import pathlib
from typing import Any

import matplotlib
import numpy as np
from matplotlib import figure as figure_lib

from tff_clipping.privacy.accounting import (
  accountants,
  sampled_gaussian,
  search,
)
from tff_clipping.privacy.calculator import (
  budget_question,
  budget_report,
  output_file,
)
from tff_clipping.privacy.correlated_noise import by_name
from tff_clipping.privacy.plans import base_plan, correlated_plan
from tff_clipping.privacy.plans import plan as plan_lib

_FORMATS = ('.png', '.pdf', '.svg')
_LABELS = {
  'poisson': 'Poisson, add or remove one',
  'fixed_size': 'fixed size, replace one',
  'none': 'all clients, add or remove one',
}
# Strategies for more rounds take long to make, once for each point.
_MAX_ROUNDS = 10_000


def save_figure(answer: budget_report.Answer, path: str) -> None:
  """Draws the plan's epsilon by rounds, and what its noise depends on.

  That is the noise multiplier by cohort size, with the other sampling beside
  it; with correlated noise the error of the running sums by separation, with
  the other mechanisms.

  Args:
    answer: The plan is drawn.
    path: A .png, .pdf or .svg file, which must not exist.

  Raises:
    ValueError: If `path` has another ending, exists or cannot be written.
  """
  check_path(path)
  # Text stays text, and the same answer gives the same file.
  with matplotlib.rc_context({'svg.fonttype': 'none', 'svg.hashsalt': 'plot'}):
    figure = figure_lib.Figure(figsize=(9, 3.6), layout='constrained')
    left, right = figure.subplots(1, 2)
    plan: Any = answer.plan
    if answer.question.is_correlated:
      _draw_correlated_epsilon_by_rounds(left, plan)
      _draw_error_by_separation(right, answer)
    else:
      _draw_epsilon_by_rounds(left, plan)
      _draw_noise_by_cohort(right, answer)
    try:
      figure.savefig(path, dpi=150)
    except OSError as error:
      raise ValueError(
        f'`plot` must be a file that can be written, found {path!r} '
        f'({error.strerror or error}).'
      ) from error


def check_path(path: str) -> None:
  """Raises as `save_figure` would, before anything is computed.

  Args:
    path: The file.
  """
  if pathlib.Path(path).suffix.lower() not in _FORMATS:
    raise ValueError(
      f'`plot` must end in one of {", ".join(_FORMATS)}, found {path!r}.'
    )
  output_file.check(path, 'plot')


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
  _finish_epsilons(axes, plan, plan.accountant)


def _draw_correlated_epsilon_by_rounds(
  axes, plan: correlated_plan.CorrelatedNoisePlan
) -> None:
  """Draws what the plan's first rounds cost."""
  most = plan.num_rounds
  rounds = np.unique(np.geomspace(1, most, num=min(most, 25)).astype(int))
  epsilons = [plan.epsilon_after(int(each)) for each in rounds]
  axes.plot(rounds, epsilons, marker='.', label=f'{plan.sampling}, zero out')
  _finish_epsilons(axes, plan, plan.strategy.kind)


def _finish_epsilons(axes, plan: base_plan.BasePlan, name: str) -> None:
  """Adds the plan itself, and what the axes mean."""
  axes.plot(plan.num_rounds, plan.epsilon, 'ko', label='the plan')
  axes.set_xlabel('rounds')
  axes.set_ylabel(f'epsilon at delta = {plan.target_delta:g}')
  axes.set_title(f'noise multiplier {plan.noise_multiplier:g}, {name}')
  axes.set_ylim(bottom=0)
  axes.legend()


def _draw_error_by_separation(axes, answer: budget_report.Answer) -> None:
  """Draws the error that the plan's epsilon needs with other separations."""
  plan: Any = answer.plan
  target = budget_report.target_epsilon(answer.question, plan)
  separations = np.unique(
    np.geomspace(1, plan.num_clients // plan.clients_per_round, num=6)
    .round()
    .astype(int)
  )
  if plan.num_rounds > _MAX_ROUNDS:
    separations = []
  for mechanism in by_name.MECHANISMS:
    found = []
    for separation in separations:
      try:
        other = budget_question.solve(
          dataclasses.replace(
            answer.question,
            target_epsilon=target,
            num_rounds=plan.num_rounds,
            noise_multiplier=None,
            noise_to_clients_ratio=None,
            clients_per_round=plan.clients_per_round,
            sampling='min_separation',
            mechanism=mechanism,
            min_separation=int(separation),
          )
        )
      except ValueError:
        continue  # Out of the accountant's range: no point there.
      found.append((separation, other.running_sum_error))
    if found:
      axes.plot(*zip(*found, strict=True), marker='.', label=mechanism)
  axes.plot(plan.min_separation, plan.running_sum_error, 'ko', label='the plan')
  axes.set_xscale('log')
  axes.set_yscale('log')
  axes.set_xlabel('rounds from one participation to the next, at least')
  axes.set_ylabel('error of the running sums over c')
  axes.set_title(f'epsilon {target:.4g}, {plan.num_rounds} rounds')
  axes.legend()


def _draw_noise_by_cohort(axes, answer: budget_report.Answer) -> None:
  """Draws the noise that the plan's epsilon needs with other cohorts."""
  plan: Any = answer.plan
  target = budget_report.target_epsilon(answer.question, plan)
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
        noise = search.find_noise_multiplier(
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
