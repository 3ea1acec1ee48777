"""The population of the paper's experiments, and a plan for it."""

from tff_clipping import privacy

POPULATION = {'num_clients': 1920, 'clients_per_round': 80}
PAPER = {**POPULATION, 'target_delta': 1e-5}


def build_plan(**changes):
  """Returns a plan that is cheap to account for."""
  return privacy.PrivacyPlan(
    **{**PAPER, 'num_rounds': 100, 'noise_multiplier': 1.6, **changes}
  )
