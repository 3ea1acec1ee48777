"""The population of the paper's experiments, plans for it, and rounds."""

from tff_clipping import privacy
from tff_clipping.privacy.accounting import sampled_gaussian

POPULATION = {'num_clients': 1920, 'clients_per_round': 80}
PAPER = {**POPULATION, 'target_delta': 1e-5}


def build_plan(**changes):
  """Returns a plan that is cheap to account for."""
  return privacy.PrivacyPlan(
    **{**PAPER, 'num_rounds': 100, 'noise_multiplier': 1.6, **changes}
  )


def compose_plans(plans, **asked):
  """Returns what all rounds of some plans cost together."""
  return privacy.compose_together(
    [(plan, plan.num_rounds) for plan in plans], **asked
  )


def build_round(sampling, num_clients, clients_per_round, noise_multiplier):
  """Returns one round of a mechanism."""
  return sampled_gaussian.SampledGaussian(
    sampling=sampling,
    num_clients=num_clients,
    clients_per_round=clients_per_round,
    noise_multiplier=noise_multiplier,
  )
