"""Draws what the rounds of a plan cost, and what noise other cohorts need.

Left: epsilon after each number of rounds, with the noise of the plan. Right:
the noise multiplier that the plan's epsilon needs, by the size of a cohort.
Each line is a sampler with the neighbouring relation that its epsilon is for:
compare the lines of one relation alone.

The figure is computed from the plan, and from no client's data. It promises
what the plan promises, and nothing of a run that does not draw the plan's
cohorts. It needs matplotlib: pip install '.[plot]' in a checkout.
"""

import dataclasses
import pathlib

from matplotlib import figure as figure_lib
import numpy as np
from tff_clipping import privacy

_PLAN = dict(
  num_clients=1920,
  clients_per_round=80,
  num_rounds=100,
  target_epsilon=1.5,
  target_delta=1e-5,
)
_SAMPLINGS = {
  'poisson': 'Poisson, add or remove one',
  'fixed_size': 'fixed size, replace one',
}


def draw_epsilon_by_rounds(axes, plan: privacy.PrivacyPlan) -> None:
  """Draws what the plan's noise costs after each number of rounds."""
  rounds = np.unique(np.geomspace(1, plan.num_rounds, num=25).astype(int))
  for sampling, label in _SAMPLINGS.items():
    other = dataclasses.replace(plan, sampling=sampling, target_epsilon=None)
    epsilons = [other.epsilon_after(int(count)) for count in rounds]
    axes.plot(rounds, epsilons, marker='.', label=label)
  axes.plot(plan.num_rounds, plan.epsilon, 'ko', label='the plan')
  axes.set_xlabel('rounds')
  axes.set_ylabel(f'epsilon at delta = {plan.target_delta:g}')
  axes.set_title(f'noise multiplier {plan.noise_multiplier:g}')
  axes.legend()


def draw_noise_by_cohort(axes, plan: privacy.PrivacyPlan) -> None:
  """Draws the noise that the plan's epsilon needs with other cohorts."""
  sizes = [plan.clients_per_round * 2**power // 8 for power in range(7)]
  sizes = [each for each in sizes if 1 <= each <= plan.num_clients]
  for sampling, label in _SAMPLINGS.items():
    asked = dict(_PLAN, accountant=plan.accountant, sampling=sampling)
    multipliers = [
      privacy.calibrate_noise_multiplier(**asked | dict(clients_per_round=size))
      for size in sizes
    ]
    axes.plot(sizes, multipliers, marker='.', label=label)
  axes.plot(plan.clients_per_round, plan.noise_multiplier, 'ko')
  axes.set_xscale('log')
  axes.set_xlabel('clients per round')
  axes.set_ylabel('noise multiplier')
  axes.set_title(f'epsilon {plan.epsilon:.4g}, {plan.num_rounds} rounds')
  axes.legend()


def main(path: pathlib.Path) -> None:
  """Draws a plan.

  Args:
    path: The file of the figure: its ending tells the format.
  """
  plan = privacy.PrivacyPlan.from_target_epsilon(**_PLAN, accountant='pld')
  figure = figure_lib.Figure(figsize=(9, 3.6), layout='constrained')
  left, right = figure.subplots(1, 2)
  draw_epsilon_by_rounds(left, plan)
  draw_noise_by_cohort(right, plan)
  figure.savefig(path, dpi=150)
  print(f'The figure is in {path}.')


if __name__ == '__main__':
  main(pathlib.Path('budget.png'))
