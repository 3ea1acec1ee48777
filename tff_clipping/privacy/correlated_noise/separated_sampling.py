"""Samplers that keep a limit on how often and how soon a client comes back.

Correlated noise needs that limit and nothing else. 'min_separation': fixed
groups take turns. 'grouped_poisson': the same, with a secret draw from the
group whose turn it is. 'shuffled_epochs': everybody comes once in an epoch, in
a new order in each.
"""

from tff_clipping import argument_checks
from tff_clipping.privacy import correlated_noise
from tff_clipping.privacy.accounting import ranges

SAMPLINGS = ('min_separation', 'grouped_poisson', 'shuffled_epochs')


def build_participation(
  num_clients: int, clients_per_round: int, min_separation: int, sampling: str
) -> correlated_noise.Participation:
  """Returns the rounds in which a sampler lets one client take part.

  Args:
    num_clients: The paper's N.
    clients_per_round: The paper's P, the most clients in a cohort; the expected
      number under 'grouped_poisson'.
    min_separation: b. 1 under 'shuffled_epochs'.
    sampling: One of `SAMPLINGS`.

  Raises:
    TypeError: If an argument is of the wrong kind.
    ValueError: If it is out of range, or the population is too small for such
      cohorts and such a separation.
  """
  argument_checks.check_choice('sampling', sampling, SAMPLINGS)
  num_clients, clients_per_round = ranges.check_population(
    num_clients, clients_per_round
  )
  min_separation = argument_checks.check_integer(
    'min_separation', min_separation, at_least=1, at_most=ranges.MAX_ROUNDS
  )
  if sampling == 'shuffled_epochs':
    if min_separation != 1:
      raise ValueError(
        "`min_separation` must be 1 where `sampling` is 'shuffled_epochs', "
        'which may draw a client last in an epoch and first in the next, '
        f'found {min_separation}.'
      )
    return correlated_noise.Participation(
      min_separation=1, rounds_per_epoch=-(-num_clients // clients_per_round)
    )
  most = num_clients // clients_per_round
  if min_separation > most:
    raise ValueError(
      f'`min_separation` must be at most {most}, found {min_separation}: '
      f'{num_clients} clients cannot fill cohorts of {clients_per_round} '
      'without coming back sooner.'
    )
  return correlated_noise.Participation(min_separation=min_separation)
