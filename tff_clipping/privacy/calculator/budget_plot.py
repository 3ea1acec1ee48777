"""The budget calculator's figure; only this module needs matplotlib."""

import dataclasses
import io
import math
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib import figure as figure_lib

from tff_clipping.privacy.accounting import sampled_gaussian
from tff_clipping.privacy.calculator import budget_question, budget_report
from tff_clipping.privacy.correlated_noise import by_name

FORMATS = ('.png', '.pdf', '.svg')
# Strategies for more rounds take long to make, once for each point.
_MAX_ROUNDS = 10_000


def draw_figure(answer: budget_report.Answer, path: str) -> bytes:
  """Returns the plan's epsilon by rounds, and what its noise depends on.

  That is the noise multiplier by cohort size, with the other sampling beside
  it; with correlated noise the error of the running sums by separation, with
  the other mechanisms.

  Args:
    answer: The plan is drawn.
    path: The file that it is for: its ending tells the format.
  """
  # Text stays text, and the same answer gives the same file.
  with matplotlib.rc_context({'svg.fonttype': 'none', 'svg.hashsalt': 'plot'}):
    figure = figure_lib.Figure(figsize=(9, 3.6), layout='constrained')
    left, right = figure.subplots(1, 2)
    _draw_epsilon_by_rounds(left, answer)
    if answer.question.is_correlated:
      _draw_error_by_separation(right, answer)
    else:
      _draw_noise_by_cohort(right, answer)
    content = io.BytesIO()
    figure.savefig(content, format=pathlib.Path(path).suffix[1:], dpi=150)
  return content.getvalue()


def _label_samplings(answer: budget_report.Answer) -> dict[str, str]:
  """Returns the samplings to draw, with their labels."""
  if answer.plan.sampling == 'none':
    return {'none': 'all clients, add or remove one'}
  if answer.plan.sampling == 'random_allocation':
    return {
      'random_allocation': 'random allocation, add or remove one',
      'poisson': 'Poisson, add or remove one',
    }
  return {
    'poisson': 'Poisson, add or remove one',
    'fixed_size': 'fixed size, replace one',
  }


def _draw_epsilon_by_rounds(axes, answer: budget_report.Answer) -> None:
  """Draws what the plan's noise costs after each number of rounds."""
  plan: Any = answer.plan
  if answer.question.is_correlated:
    name = plan.strategy.kind
    plans = {f'{plan.sampling}, zero out': plan}
  else:
    name = plan.accountant
    others = {'target_epsilon': None, **dict.fromkeys(sampled_gaussian.BOUNDS)}
    plans = {
      label: dataclasses.replace(plan, sampling=sampling, **others)
      for sampling, label in _label_samplings(answer).items()
    }
  most = plan.num_rounds
  rounds = np.unique(np.geomspace(1, most, num=min(most, 25)).astype(int))
  for label, each in plans.items():
    epsilons = [each.epsilon_after(int(count)) for count in rounds]
    axes.plot(rounds, epsilons, marker='.', label=label)
  axes.plot(plan.num_rounds, plan.epsilon, 'ko', label='the plan')
  axes.set_xlabel('rounds')
  axes.set_ylabel(f'epsilon at delta = {plan.target_delta:g}')
  axes.set_title(f'noise multiplier {plan.noise_multiplier:g}, {name}')
  axes.set_ylim(bottom=0)
  axes.legend()


def _draw_error_by_separation(axes, answer: budget_report.Answer) -> None:
  """Draws the error that the plan's epsilon needs with other separations."""
  plan: Any = answer.plan
  separations = np.geomspace(
    1, plan.num_clients // plan.clients_per_round, num=6
  ).round()
  _draw_plans(
    axes,
    answer,
    figure='running_sum_error',
    given='min_separation',
    values=separations if plan.num_rounds <= _MAX_ROUNDS else (),
    variants={
      mechanism: {'sampling': 'min_separation', 'mechanism': mechanism}
      for mechanism in by_name.MECHANISMS
    },
  )
  axes.set_yscale('log')
  axes.set_xlabel('rounds from one participation to the next, at least')
  axes.set_ylabel('error of the running sums over c')


def _draw_noise_by_cohort(axes, answer: budget_report.Answer) -> None:
  """Draws the noise that the plan's epsilon needs with other cohorts."""
  plan: Any = answer.plan
  cohorts: Sequence[float] | np.ndarray = np.geomspace(
    max(1, plan.clients_per_round / 8),
    min(plan.num_clients, plan.clients_per_round * 8),
    num=5,
  )
  if plan.sampling == 'random_allocation':
    # Near them, those that have a plan.
    small = np.arange(1, math.isqrt(plan.num_clients) + 1)
    small = small[plan.num_clients % small == 0]
    sizes = np.append(small, plan.num_clients // small)
    cohorts = [sizes[np.abs(np.log(sizes / n)).argmin()] for n in cohorts]
  _draw_plans(
    axes,
    answer,
    figure='noise_multiplier',
    given='clients_per_round',
    values=[plan.num_clients] if plan.sampling == 'none' else cohorts,
    variants={
      label: {'sampling': sampling, 'accountant': plan.accountant}
      for sampling, label in _label_samplings(answer).items()
    },
  )
  axes.set_xlabel('clients per round')
  axes.set_ylabel('noise multiplier')
  axes.set_ylim(bottom=0)


def _draw_plans(
  axes,
  answer: budget_report.Answer,
  *,
  figure: str,
  given: str,
  values: Sequence[float] | np.ndarray,
  variants: Mapping[str, Mapping[str, Any]],
) -> None:
  """Draws a figure of plans for the same epsilon, and that of the plan itself.

  Args:
    axes: Where to draw.
    answer: The plan.
    figure: The attribute of a plan that is drawn.
    given: The attribute of the question that it is drawn by.
    values: Of `given`.
    variants: What else changes in the question, by the label of a line.
  """
  plan = answer.plan
  target = budget_report.target_epsilon(answer.question, plan)
  for label, changes in variants.items():
    found = []
    for value in np.unique(np.array(values, int)):
      asked: dict[str, Any] = {
        'target_epsilon': target,
        'num_rounds': plan.num_rounds,
        'num_clients': plan.num_clients,
        'clients_per_round': plan.clients_per_round,
        given: int(value),
      }
      try:
        other = budget_question.solve(
          answer.question.vary(
            noise_multiplier=None,
            noise_to_clients_ratio=None,
            **asked,
            **changes,
          )
        )
      except ValueError:
        continue  # Out of the accountant's range: no point there.
      found.append((value, getattr(other, figure)))
    if found:
      axes.plot(*zip(*found, strict=True), marker='.', label=label)
  axes.plot(getattr(plan, given), getattr(plan, figure), 'ko', label='the plan')
  axes.set_xscale('log')
  axes.set_title(f'epsilon {target:.4g}, {plan.num_rounds} rounds')
  axes.legend()
